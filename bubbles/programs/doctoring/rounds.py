"""Runs the checks side by side, each for as long as it may take and no longer, and mends what may be mended.

It does not know what a check asks. One that hangs in the kernel is left there: the process ends without it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from bubbles.errors import BubblesError
from bubbles.programs.doctoring.finding import FIXED, Check, Finding, Patient, closed, fail, warn

_LATE = "see what hangs: a disk, a server, a daemon; a machine that is only busy: bubbles doctor, once it is less so"
_FIX_S = 30.0  # a fix that takes longer is left to itself


class Visit(threading.Thread):
    """One check under way."""

    def __init__(self, check: Check, patient: Patient) -> None:
        super().__init__(name=check.name, daemon=True)
        self.check, self._patient = check, patient
        self._until = time.monotonic() + check.limit_s
        self._found: list[Finding] = []

    def run(self) -> None:
        try:
            for finding in self.check.findings(self._patient):
                self._found.append(finding)
        except Exception as error:  # one check that has a fault does not keep the others from being told
            self._found.append(fault(error, self._patient))

    def findings(self) -> list[Finding]:
        """What it has found by its end, or by the end of its time."""
        self.join(max(0.0, self._until - time.monotonic()))
        found = list(self._found)
        if self.is_alive():
            found.append(warn(f"this could not be looked at within {self.check.limit_s:g} s: {self.check.asks}", _LATE))
        return found


def visits(checks: Iterable[Check], patient: Patient) -> Iterator[tuple[Check, list[Finding]]]:
    """Each check with its findings, in their order."""
    begun = [Visit(check, patient) for check in checks]
    for visit in begun:
        visit.start()
    for visit in begun:
        yield visit.check, visit.findings()


def fault(error: Exception, patient: Patient) -> Finding:
    """What a check that raised has to say."""
    root = patient.home.root
    if isinstance(error, PermissionError) and not os.access(root, os.R_OK | os.X_OK):
        return closed(root, error)
    if isinstance(error, BubblesError):
        return fail(error.text, error.remedy)
    if isinstance(error, ImportError):
        return fail(f"this cannot be looked at: {error}", "see `packages` above")
    if isinstance(error, OSError):
        return fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    return fail(f"this check has a fault of ours ({type(error).__name__}: {error})", "please report it")


def mended(finding: Finding, dry: bool) -> Finding:
    """The finding after its fix, if it has one; `dry`: only with what would be done."""
    if finding.fix is None:
        return finding
    if dry:
        return replace(finding, done=f"would {finding.fix.would}")
    why = _done(finding.fix.deed)
    return replace(finding, done=f"cannot {finding.fix.would}: {why}") if why else replace(finding, level=FIXED, done=f"did {finding.fix.would}")


def _done(deed: Callable[[], object]) -> str:
    """Why it could not be done; "" where it was."""
    told: list[str] = []

    def attempt() -> None:
        try:
            deed()
            told.append("")
        except BubblesError as error:
            told.append(error.text)
        except OSError as error:
            told.append(f"{error.strerror or error}: {error.filename}")

    worker = threading.Thread(target=attempt, daemon=True)
    worker.start()
    worker.join(_FIX_S)
    return told[0] if told else f"it did not end within {_FIX_S:g} s"
