"""Whether this run may take its time: `make soak` sets BUBBLES_TEST_SOAK=1."""

from __future__ import annotations

import os

SOAK = os.environ.get("BUBBLES_TEST_SOAK") == "1"
