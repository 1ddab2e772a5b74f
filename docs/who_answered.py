"""Says which model closed the last turn of a history, and with how many tokens: who_answered.py HISTORY. Exits 1 where none did."""

from __future__ import annotations

import json
import sys
from pathlib import Path

lines = (json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines())
turn = [line for line in lines if line.get("meta") == "turn"][-1]
tokens = turn["usage"].get("output", 0)
if turn["outcome"] != "replied" or not tokens:
    sys.exit(f"no model answered: {turn}")
print(f"(Answered by the model itself: {turn['usage']['input']} tokens read, {tokens} written.)")
