"""The file of users and grants as a running process sees it: read again when it has changed.

Contract: `changed` costs one stat. A file that cannot be used is told of once, and what was read before stays. One that
is not there, or cannot be read now (no descriptors), is tried again. Must not know what is made of the content.
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
        self._told = ""

    def changed(self) -> bool:
        """Read the file if it has changed. Returns whether `content` is another now."""
        try:
            stamp = access_file.stamp_of(self._path)
        except OSError as error:
            self._say(f"the users file {self._path} cannot be read: {error.strerror}")
            return False
        if stamp == self._stamp:
            return False
        try:
            self.content = access_file.read(self._path)
        except InvalidUsers as error:
            if not isinstance(error.__cause__, OSError):
                self._stamp = stamp  # the same content would be refused again
            self._say(error.message)
            return False
        self._stamp, self._told = self.content.stamp, ""
        return True

    def _say(self, reason: str) -> None:
        """Tell why the file cannot be used, once."""
        if reason != self._told:
            self._told = reason
            self._tell(f"the users file changed and cannot be used, what it said before stays: {reason}")
