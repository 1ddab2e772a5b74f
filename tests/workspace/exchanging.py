"""A program of its own: exchanges pairs of names without pause, so that each is now the one thing and now the other.

python exchanging.py DIRECTORY A B [A B …]      runs until its standard input ends; prints how often it exchanged
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import sys

_EXCHANGE = 2
_ON_THE_WAY = (errno.ENOENT, errno.ENOTDIR)  # a name on the way to these two is the other thing just now


def main(directory: str, names: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    at = os.open(directory, os.O_RDONLY)
    pairs = [(os.fsencode(a), os.fsencode(b)) for a, b in zip(names[::2], names[1::2], strict=True)]
    count = 0
    while not select.select([0], [], [], 0)[0]:
        for _ in range(100):
            for a, b in pairs:
                if libc.renameat2(at, a, at, b, _EXCHANGE) == 0:
                    count += 1
                elif ctypes.get_errno() not in _ON_THE_WAY:
                    sys.exit(os.strerror(ctypes.get_errno()))
    print(count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
