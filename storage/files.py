"""The seam to the file system: the only module of storage that makes system calls on files.

Idea: everything the log does to a disk is one of the few verbs of `Files` and `File`. `mem://` replaces them with
files in memory, and tests with files that record operations or fail (tests/support/files.py).

Contract: a write is whole or an OSError; running out of space, quota or descriptors is StorageFull (nothing was
acknowledged, existing bytes stay); `sync` is fdatasync and its error must never be retried. New files are 0600 and
their blocks are reserved before a process maps them, new directories 0700.
Must not know: what a segment, a batch or a mark is.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import stat
import struct
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Self

import numpy as np

from . import forks
from .errors import StorageFull
from .linux import need_linux

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

_FULL = {
    errno.ENOSPC: "no space is left on the device",
    errno.EFBIG: "the file is as large as this process may have any (raise its limit: ulimit -f)",
    errno.EDQUOT: "the disk quota is used up",
    errno.EMFILE: "this process has too many open files (raise its limit: ulimit -n)",
    errno.ENFILE: "this machine has too many open files",
}
_NO_FILES = {
    errno.ELOOP: "is a symbolic link, and files of a log are not: remove it",
    errno.EISDIR: "is a directory where a file belongs: move it away",
    errno.ENOTDIR: "is no directory, or lies below a file: move away the file that stands where a directory belongs",
    errno.ENXIO: "is a socket, a pipe or a device where a file belongs: move it away",
}
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NO_BUFFERS = 1024
"""Most buffers one pwritev takes (IOV_MAX)."""

SMALL_BYTES = 64 << 10
"""The most bytes of a read that must not wait; clearing and copying more would cost as much as reading it."""

Progress = Callable[[int, int], None]
"""`progress(bytes done, bytes in all)`, which those who read or copy many files call now and then."""

_WRITE_OUT = 2  # of sync_file_range: begin to write, and wait for nothing
_WHOLE = ctypes.c_longlong(0)  # of a file: from its start, and to its end
_NOT_THERE = (errno.ENOSYS, errno.EINVAL, errno.EPERM)  # of a system call

_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_FLOCK = struct.Struct("hhqqi4x")
_WRITE_LOCK, _NO_LOCK = 1, 2  # as fcntl has them, on Linux

LOCK_BYTES_FROM = 1 << 20
"""A lock of a file covers all before this position; bytes behind it may be locked one by one."""


def full_or(error: OSError, path: str, doing: str) -> Exception:
    """StorageFull for an error that means so, else the error itself."""
    reason = _FULL.get(error.errno or 0)
    return error if reason is None else StorageFull(f"cannot {doing} {path}: {reason}")


def _named(error: OSError, path: str) -> OSError:
    """The error with the file it is about, which the system often leaves out, and the way out where there is one."""
    return OSError(error.errno, _NO_FILES.get(error.errno or 0, error.strerror), path)


class File:
    """One open file. Positions and sizes in bytes."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pread(self, size: int, position: int) -> bytes:
        """Read `size` bytes; fewer only at the end of the file."""
        try:
            data = os.pread(self._descriptor, size, position)
        except OSError as error:
            raise _named(error, self.path) from error
        if len(data) == size or not data:
            return data
        more = self.pread(size - len(data), position + len(data))
        return data + more

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As `pread`, or None when that would wait for the disk. Much comes as a view, which copies nothing more."""
        data = memoryview(bytearray(size)) if size <= SMALL_BYTES else np.empty(size, np.uint8).data
        try:
            count = os.preadv(self._descriptor, [data], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(size, position)
        if count == size or position + count >= self.size():
            return bytes(data[:count]) if size <= SMALL_BYTES else data[:count].toreadonly()
        return None

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one after the other at `position`. Raises OSError or StorageFull unless all is written."""
        try:
            if len(buffers) == 1:
                wanted = len(buffers[0])
                written = os.pwrite(self._descriptor, buffers[0], position)
            else:
                wanted = sum(map(len, buffers))
                written = os.pwritev(self._descriptor, buffers[:_NO_BUFFERS], position)
            if written != wanted:
                self._write_rest(buffers, position, written, wanted)
        except OSError as error:
            raise full_or(error, self.path, "write to") from error

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int, wanted: int) -> None:
        while written < wanted:
            skip, rest = written, []
            for buffer in buffers:
                view = memoryview(buffer).cast("B")
                if skip < len(view):
                    rest.append(view[skip:])
                skip = max(0, skip - len(view))
            count = os.pwritev(self._descriptor, rest[:_NO_BUFFERS], position + written)
            if count == 0:
                raise OSError(errno.EIO, f"nothing more could be written to {self.path}")
            written += count

    def allocate(self, size: int) -> None:
        """Reserve blocks so that the file is at least `size` bytes long. Raises StorageFull."""
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise full_or(error, self.path, f"reserve {size} bytes for") from error

    def begin_sync(self) -> None:
        """Have the disk begin to write what `sync` will wait for. An OSError says what one of `sync` says."""
        call = _sync_file_range()
        if call is not None and call(self._descriptor, _WHOLE, _WHOLE, _WRITE_OUT):
            code = ctypes.get_errno()
            if code not in _NOT_THERE:
                raise OSError(code, os.strerror(code), self.path)

    def sync(self) -> None:
        """fdatasync. After an OSError nothing is known about the bytes written: never sync the same ones again."""
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def map(self) -> memoryview:
        """The file as it is long now, read-only. Valid until the last view of it is gone, even after `close`."""
        size = self.size()
        if size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Close the descriptor; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class FileLock:
    """A lock on a file that ends with the process that took it, even if a forked child lives on."""

    __slots__ = ("__weakref__", "_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        forks.tell(self)

    def __del__(self) -> None:
        self.release()

    def _forked(self) -> None:
        """A child shares the parent's lock through its descriptor: closing it there leaves the parent's alone."""
        self.release()

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def fileno(self) -> int:
        """The descriptor: a process that is sent a copy of it holds the lock as well."""
        return self._descriptor

    def note(self, text: bytes) -> None:
        """Write the holder into the file, for the error message of processes that find it locked."""
        os.pwrite(self._descriptor, text, 0)  # before truncating: on a full disk another writer may take freed blocks
        os.ftruncate(self._descriptor, len(text))

    def take_bytes(self) -> bool:
        """Take all bytes from LOCK_BYTES_FROM on as well. False while another opening has any: none is taken then."""
        return _set_lock(self._descriptor, _WRITE_LOCK, LOCK_BYTES_FROM, 0)

    def free_bytes(self) -> None:
        """Let other openings take single bytes from LOCK_BYTES_FROM on."""
        _set_lock(self._descriptor, _NO_LOCK, LOCK_BYTES_FROM, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the lock up; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Files:
    """The file system of this machine. Paths are text. A symbolic link is followed to a directory, never to a file.

    A link in place of a file would have a log write into whatever it points to.
    """

    def __init__(self) -> None:
        """Raises NeedsLinux."""
        need_linux("a log in files")

    def new_id(self) -> bytes:
        """16 bytes that no other call has given or will give: a random UUID (version 4).

        All randomness of a log comes from here, so that files made for a simulation decide about it, too.
        """
        return uuid.uuid4().bytes

    def create(self, path: str, size: int = 0) -> File:
        """A new file with `size` bytes of zeros reserved. Raises FileExistsError, StorageFull (and leaves nothing)."""
        file = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            if size:
                file.allocate(size)
        except BaseException:
            file.close()
            os.unlink(path)
            raise
        return file

    def open(self, path: str, *, write: bool = False) -> File:
        """An existing file. Raises FileNotFoundError, StorageFull when there is no descriptor for it."""
        return self._open(path, os.O_RDWR if write else os.O_RDONLY)

    def _open(self, path: str, flags: int) -> File:
        return File(path, self._descriptor(path, flags))

    def _descriptor(self, path: str, flags: int) -> int:
        links = 0 if flags & os.O_DIRECTORY else os.O_NOFOLLOW
        try:
            # Without O_NONBLOCK, a pipe would wait for a writer.
            descriptor = os.open(path, flags | links | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise full_or(_named(error, path), path, "open") from error
        kind = os.fstat(descriptor).st_mode
        if links and not stat.S_ISREG(kind):
            os.close(descriptor)
            raise _named(OSError(errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO, ""), path)
        return descriptor

    def read(self, path: str) -> bytes:
        """All of a small file. Raises FileNotFoundError, OSError."""
        with self.open(path) as file:
            return file.pread(file.size(), 0)

    def sync(self, path: str) -> None:
        """Make the content of a file durable that is not open here. Raises FileNotFoundError, OSError."""
        with self.open(path, write=True) as file:
            file.sync()

    def create_anew(self, path: str, size: int = 0) -> File:
        """As `create`, in place of a file that was left there by a crash."""
        if self.exists(path):
            self.unlink(path)
        return self.create(path, size)

    def rewrite(self, path: str, content: Buffer) -> None:
        """Give a small file this content, durably; made when missing. Raises StorageFull, OSError.

        It is written beside `path` first: whatever happens, `path` has all of its old content or all of the new.
        """
        temporary = f"{path}.new"
        with self.create_anew(temporary) as file:
            file.pwritev([content], 0)
            file.sync()
        self.replace(temporary, path)
        self.sync_dir(path.rpartition("/")[0] or "/")

    def free(self, directory: str) -> int:
        """Bytes that this process may still write on the file system of a directory."""
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`. Raises FileExistsError rather than replace anything."""
        if not _rename_noreplace(source, target):
            os.link(source, target)
            os.unlink(source)

    def replace(self, source: str, target: str) -> None:
        """Give `source` the name `target`, whatever had it."""
        try:
            os.replace(source, target)
        except IsADirectoryError as error:
            raise _named(error, target) from error

    def unlink(self, path: str) -> None:
        """Raises FileNotFoundError, IsADirectoryError."""
        try:
            os.unlink(path)
        except IsADirectoryError as error:
            raise _named(error, path) from error

    def mkdir(self, path: str) -> None:
        """Make a directory and those above it, each one's name durable; it may exist already."""
        missing: list[str] = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(os.path.abspath(path))
        for each in reversed(missing):
            try:
                os.mkdir(each, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise full_or(error, each, "create") from error
            self.sync_dir(os.path.dirname(os.path.abspath(each)))

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, in no order; [] when it does not exist."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise full_or(_named(error, path), path, "list") from error

    def exists(self, path: str) -> bool:
        """Raises OSError where that cannot be told: what is taken for gone would be made anew, or given up."""
        return _mode(os.lstat, path) != 0

    def is_file(self, path: str) -> bool:
        """Whether a file is there, and no directory, link or socket of that name. Raises OSError as `exists`."""
        return stat.S_ISREG(_mode(os.lstat, path))

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there, or a link to one. Raises OSError as `exists`."""
        return stat.S_ISDIR(_mode(os.stat, path))

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        descriptor = self._descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename_dir(self, source: str, target: str) -> None:
        """Move a directory. Raises OSError when `target` exists and is not empty."""
        os.rename(source, target)

    def remove_tree(self, path: str) -> None:
        """Unlink a directory with all it holds; missing is fine."""
        shutil.rmtree(path, ignore_errors=not os.path.lexists(path))

    def try_lock(self, path: str) -> FileLock | bytes:
        """Lock the file (made when missing) up to LOCK_BYTES_FROM, or the content its holder wrote."""
        descriptor = self._descriptor(path, os.O_RDWR | os.O_CREAT)
        if not _set_lock(descriptor, _WRITE_LOCK, 0, LOCK_BYTES_FROM):
            text = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
            return text
        return FileLock(path, descriptor)


def _mode(look: Callable[[str], os.stat_result], path: str) -> int:
    """The mode of what stands at a path; 0 for nothing. Raises OSError."""
    try:
        return look(path).st_mode
    except OSError as error:
        if error.errno in _NOTHING:
            return 0
        raise


def _set_lock(descriptor: int, kind: int, first: int, size: int) -> bool:
    """Lock or free `size` bytes (0: all that follow) for this opening of a file. False while another has any."""
    import fcntl  # which only Unix has

    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, first, size, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _rename_noreplace(source: str, target: str) -> bool:
    """renameat2 without replacing; False where the kernel or the file system does not know it."""
    result = _libc().renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code), source, None, target)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _sync_file_range() -> Callable[..., int] | None:
    """The call of the C library, if it has it. It does not wait, so no other thread gets the interpreter meanwhile."""
    return getattr(ctypes.PyDLL(None, use_errno=True), "sync_file_range", None)
