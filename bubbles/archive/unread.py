"""What of a home could not be read, and why: a backup goes on without it, and tells."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of us, and not of the file


class Unread(dict[str, str]):
    """By path in the home: why."""

    @contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """The block reads what is at `path`. It ends early where nothing is there any more, or where it cannot be read: that is noted."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if error.errno in _SHORT:
                raise
            self[path] = error.strerror or str(error)

    def outermost(self) -> dict[str, str]:
        """Without what lies in something that is named itself."""
        return {path: why for path, why in sorted(self.items()) if not any(path[:n] in self for n, char in enumerate(path) if char == "/")}
