"""Stands in for `journalctl -o json`: prints, of entries in a file, what the real one of systemd 252 would print.

    python journalctl.py STORE [OPTION | FIELD=VALUE]...

Of one field any of the values given, of several fields all; from the end backwards with --reverse; and without that, --lines together
with --since counts from the beginning, as the real one does. A store whose first line is no object is one that may not be read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main(store: Path, argv: list[str]) -> int:
    given = dict(option.removeprefix("--").partition("=")[::2] for option in argv if option.startswith("--"))
    matches: dict[str, set[str]] = {}
    for argument in argv:
        if not argument.startswith("-"):
            name, _, value = argument.partition("=")
            matches.setdefault(name, set()).add(value)
    with store.open("rb") as file:
        entries = list(file)
        if entries and not entries[0].startswith(b"{"):
            sys.stderr.write(entries[0].decode())
            return 1
        bodies = [json.loads(line) for line in entries]
        if "fields" in given:
            print("\n".join(sorted({name for body in bodies for name in body})))
            return 0
        found = [body for body in bodies if _fits(body, given, matches)]
        if lines := int(given.get("lines", 0)):
            found = found[:lines] if "since" in given and "reverse" not in given else found[-lines:]
        for body in found[::-1] if "reverse" in given else found:
            _put(body, given)
        if "follow" in given:
            for body in _appended(file):
                if _fits(body, given, matches):
                    _put(body, given)
    return 0


def _fits(body: dict[str, Any], given: dict[str, str], matches: dict[str, set[str]]) -> bool:
    at = int(body["__REALTIME_TIMESTAMP"]) / 1e6
    return (
        all(str(body.get(name, "")) in values for name, values in matches.items())
        and ("priority" not in given or int(body.get("PRIORITY", 99)) <= int(given["priority"]))
        and at >= float(given.get("since", "@0")[1:])
        and at <= float(given.get("until", "@1e12")[1:])
    )


def _put(body: dict[str, Any], given: dict[str, str]) -> None:
    names = given.get("output-fields", "").split(",")
    told = {name: value for name, value in body.items() if names == [""] or name in names or name.startswith("__")}
    print(json.dumps(told), flush=True)


def _appended(file: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    while True:
        rest += file.read()
        *lines, rest = rest.split(b"\n")
        yield from map(json.loads, lines)
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
