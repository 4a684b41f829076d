"""Processes that a test started through something else: who they are, when they end, where they listen (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LISTENS = "0A"  # state of a TCP socket in /proc/net/tcp
ACCEPTS = "00010000"  # flags of a listening socket in /proc/net/unix
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def descendants(pid: int) -> set[int]:
    """Processes started by this one, by those, and so on."""
    children = {int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")}
    return children.union(*(descendants(child) for child in children))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except FileNotFoundError:
        return []  # a thread or process that ended meanwhile


@contextmanager
def end_of(pid: int) -> Iterator[int]:
    """A descriptor that becomes readable when the process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def listening(pids: set[int] | None = None) -> set[str]:
    """Where these processes listen, or where any process does: paths, and addresses as the kernel writes them."""
    own = None if pids is None else {inode for pid in pids for inode in _socket_inodes(pid)}
    found = {row[1]: row[9] for kind in ("tcp", "tcp6") for row in _rows(kind) if row[3] == LISTENS}
    found |= {row[7]: row[6] for row in _rows("unix") if row[3] == ACCEPTS and len(row) > 7}
    return {place for place, inode in found.items() if own is None or inode in own}


def _rows(kind: str) -> list[list[str]]:
    return [line.split() for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]


def _socket_inodes(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def is_local(place: str) -> bool:
    return place.startswith(("/", "@")) or place.partition(":")[0] in LOOPBACK
