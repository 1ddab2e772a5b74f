"""What the gateway does once a day, where no timer does it: `bubbles tidy`, as a child.

It does not know what is deleted. Days are counted by the machine's own clock, which goes on while it sleeps and cannot be set.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from bubbles import starter
from bubbles.paths import Home
from bubbles.tidying.ages import DAY_S, Mark

FIRST_S = 300.0  # after the start, when all that had to be resumed is
AGAIN_S = 3600.0  # after a run that has left something to the next one
_LOOK_S = 60.0
_STOP_S = 5.0


class Tidier(threading.Thread):
    """Runs it first after `first_s`, then every `every_s`, until `stopping`; what it says goes to `say`, a line at a time."""

    def __init__(
        self, home: Home, stopping: threading.Event, say: Callable[[str], object], *, first_s: float = FIRST_S, again_s: float = AGAIN_S
    ) -> None:
        super().__init__(name="tidier")
        self._home, self._stopping, self._say = home, stopping, say
        self._wait_s, self._again_s = first_s, again_s

    def run(self) -> None:
        due = Mark.now().up + self._wait_s
        while not self._stopping.wait(min(_LOOK_S, max(0.0, due - Mark.now().up))):
            if Mark.now().up >= due:
                due = Mark.now().up + (self._again_s if self._tidy() else DAY_S)

    def _tidy(self) -> bool:
        """Run it to its end, or until we are stopped; whether there is more to do."""
        try:
            code, out, err = self._ran()
        except OSError as error:
            self._say(f"gateway: tidy cannot be started: {error.strerror}")
            return False
        for line in err.splitlines():
            self._say(f"tidy: {line}")
        summary = _last(out)
        if code and not self._stopping.is_set():
            self._say(f"gateway: tidy ended with {code}")
        elif summary.get("deleted"):
            self._say(f"gateway: tidied {summary['deleted']} files, {summary.get('bytes', 0) / 1e6:.1f} MB")
        return bool(summary.get("more"))

    def _ran(self) -> tuple[int, str, str]:
        argv = [sys.executable, "-P", "-m", "bubbles.programs", "tidy", "--json"]
        env = {**starter.environment("tidy"), "BUBBLES_HOME": str(self._home.root)}
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=env, cwd="/", start_new_session=True) as child:
            while not self._stopping.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return _ended(child, 0.2)
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _ended(child, _STOP_S)
            child.kill()
            return _ended(child, None)


def _ended(child: subprocess.Popen[str], timeout_s: float | None) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=timeout_s)
    return child.returncode, out, err


def _last(out: str) -> dict[str, Any]:
    """The object on the last line; an empty one where there is none."""
    with contextlib.suppress(ValueError):
        found = json.loads((out.splitlines() or [""])[-1])
        return found if isinstance(found, dict) else {}
    return {}
