"""What a log, a channel or a spool asks before it takes a directory: is it one of its own, or new?

Idea: each kind knows the names that only it has, and those that it makes before it has one. A directory with none of
its own names and any other is another kind's, or not penstock's at all.

Contract: what is refused is left as it was. Must not know what the files hold.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .errors import ForeignDirectory, InvalidArgument
from .files import Files


class DirectoryKind(NamedTuple):
    """The names in the directory of `what`: `own` are its alone, and `begun` may stand in a new one."""

    what: str
    own: str
    begun: str


LOG = DirectoryKind(
    "log",
    r"\d{20}-\d{8}\.segment",
    r"\d{20}-\d{8}\.index|(snapshot|finals|run|spare)-.*|.*\.(new|lost)|lock|promises|board|first|poison|accepted",
)
CHANNEL = DirectoryKind("channel", "items|done", "lock|taken")
SPOOL = DirectoryKind("spool", r"forwarded\.json", r"forwarded\.json\.new|records|lock|forwarding")


@contextmanager
def adopting(path: str, kind: DirectoryKind, files: Files) -> Iterator[None]:
    """Make the directory, and open what is in it inside of this block.

    Raises ForeignDirectory for a directory of another kind, and for one that the system does not let us use.
    """
    try:
        _refuse_strangers(path, kind, files.listdir(path))
        files.mkdir(path)
        yield
    except (PermissionError, NotADirectoryError, FileExistsError, FileNotFoundError) as error:
        where = "" if error.filename in (None, path) else f" ({error.filename})"
        raise ForeignDirectory(f"{path} cannot be a {kind.what}'s directory: {error.strerror}{where}") from error


def _refuse_strangers(path: str, kind: DirectoryKind, names: list[str]) -> None:
    strange = [name for name in names if not re.fullmatch(f"{kind.own}|{kind.begun}", name)]
    if strange and not any(re.fullmatch(kind.own, name) for name in names):
        raise ForeignDirectory(f"{path} is no {kind.what}'s directory (it holds {min(strange)}): choose an empty one")


def directory_path(path: str | os.PathLike[str]) -> str:
    """The absolute path of a directory. Raises InvalidArgument for what no file system takes."""
    try:
        found = os.path.abspath(os.fspath(path))
        os.fsencode(found)
    except (TypeError, UnicodeEncodeError):
        found = b""
    if not isinstance(found, str) or "\0" in found:
        raise InvalidArgument(f"path={path!a} is not the path of a directory: give a str or a Path")
    return found
