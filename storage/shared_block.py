"""A named block of memory that processes share: POSIX shared memory, or a file where there is none.

Contract: all space is reserved before a process maps it (a full /dev/shm is an error, never a SIGBUS); permissions are
as requested, whatever the umask. The caller closes descriptors. Must not know: what the block holds.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from .errors import BoardUnavailable, StorageFull

SHARED_MEMORY = "/dev/shm"
NAME_BYTES_MAX = 255
"""Of shared memory, as the system has it."""


def is_file(name: str) -> bool:
    """Shared memory names have one slash, in front; a file is named by its absolute path."""
    return "/" in name[1:]


def _is_name(name: str) -> bool:
    """Whether a file may hold this as the name of a block: libraries of shared memory are not asked about any other."""
    return (
        name not in ("", "/", "/.", "/..")
        and name[0] == "/"
        and "\0" not in name
        and (is_file(name) or len(name) < NAME_BYTES_MAX)
    )


def reserve(name: str, size: int, mode: int) -> int:
    """A descriptor of the block, created or opened, `size` bytes long and with all of them reserved.

    Raises:
        StorageFull: no space; the message says how much is needed. A block made here is removed again.
        BoardUnavailable: no shared memory on this machine.
    """
    descriptor = _descriptor(name, os.O_RDWR | os.O_CREAT, mode)
    fresh = os.fstat(descriptor).st_size == 0
    try:
        os.fchmod(descriptor, mode)
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        if fresh:
            remove(name)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
            place = Path(name).parent if is_file(name) else "/dev/shm"
            raise StorageFull(
                f"the board needs {size} bytes and {place} has no space for it: enlarge {place}, "
                "or have fewer rows (board_rows)"
            ) from error
        raise
    return descriptor


def open_block(name: str, *, write: bool) -> int:
    """A descriptor of a block that exists.

    Raises:
        BoardUnavailable: there is none, it may not be opened, or that is no name of a block.
    """
    if not _is_name(name):
        raise BoardUnavailable(f"{name[:64]!r} is no name of a board: it is /name, or the absolute path of a file")
    try:
        return _descriptor(name, os.O_RDWR if write else os.O_RDONLY, 0)
    except FileNotFoundError as error:
        raise BoardUnavailable(f"there is no board {name}: is the broker running on this machine?") from error
    except PermissionError as error:
        raise BoardUnavailable(f"no permission to map board {name}: join the broker's group") from error
    except OSError as error:
        raise BoardUnavailable(f"board {name} cannot be opened: {error.strerror}") from error


def size_of(name: str) -> int:
    """Bytes of the block; 0 when there is none."""
    try:
        descriptor = open_block(name, write=False)
    except BoardUnavailable:
        return 0
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def owner_of(name: str) -> int:
    """The user that a block belongs to. Raises BoardUnavailable as `open_block`."""
    descriptor = open_block(name, write=False)
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)


def remove(name: str) -> None:
    """Remove the name; a name already gone is what was wanted."""
    Path(_path(name)).unlink(missing_ok=True)


def _path(name: str) -> str:
    """Where a block is. Linux has POSIX shared memory as files of a tmpfs, and shm_open(3) opens them there."""
    return name if is_file(name) else f"{SHARED_MEMORY}{name}"


def _descriptor(name: str, flags: int, mode: int) -> int:
    try:
        return os.open(_path(name), flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError as error:
        if is_file(name) or not flags & os.O_CREAT:
            raise
        raise BoardUnavailable(f"{SHARED_MEMORY} cannot be used ({error.strerror}): use a board file") from error
