"""Every row of the table, each by a script of its own, one after another.

    python bench [ROW]...

Nothing here is a test: the machine is others' too. CPU is the firm figure, wall counts where it is near CPU; both are medians of interleaved rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from row import Row, table

SCRIPTS = ("help", "oneshot", "turn", "rounds", "sessions", "history", "idle", "growth", "models", "units", "sandboxes", "steps")


def rows(name: str) -> list[Row]:
    """What one script has measured; a row that says so where it failed."""
    print(f"bench: {name}", file=sys.stderr, flush=True)
    argv = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return [Row(name, float("nan"), "", 0, 0, beside="it failed: see above")]
    return [Row(**row) for row in json.loads(done.stdout)]


def main() -> None:
    found = [row for name in sys.argv[1:] or SCRIPTS for row in rows(name)]
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}\n\n{table(found)}")
    print("\nPeers were measured on another machine of this kind, and do not do the same work in a turn.")


if __name__ == "__main__":
    main()
