"""The file of users and grants as a running process sees it: read again when it has changed.

Contract: `changed` costs one stat. A file that cannot be used is told of once, and what was read before stays. Must not
know what is made of the content.
"""

from __future__ import annotations

from collections.abc import Callable

from . import access_file
from .errors import InvalidUsers

LOOK_S = 1.0
"""Between two looks of a process that asks with every request."""


class WatchedAccess:
    """See the module. `content` is what was read last."""

    def __init__(self, path: str, tell: Callable[[str], object]) -> None:
        """`tell` gets the sentence about a file that cannot be used. Raises InvalidUsers."""
        self._path = path
        self._tell = tell
        self.content = access_file.read(path)
        self._stamp = self.content.stamp

    def changed(self) -> bool:
        """Read the file if it has changed. Returns whether `content` is another now."""
        try:
            stamp = access_file.stamp_of(self._path)
        except OSError:
            return False
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.content = access_file.read(self._path)
        except InvalidUsers as error:
            self._tell(f"the users file changed and cannot be used, what it said before stays: {error.message}")
            return False
        self._stamp = self.content.stamp
        return True
