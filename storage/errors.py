"""The root of the error tree, and the errors of storage.

Idea: every failure penstock can name is a subclass of `Error`, raised, never returned. A class carries
a machine `code` (stable: it travels on the wire and comes out of `--json`) and says whether trying the
same thing again can help. Floors above add their own branches in their own `errors.py`.

Contract: a message names the thing, the value, the limit and the way out. Imports nothing of ours.
"""

from __future__ import annotations

import errno
from typing import ClassVar

_DAMAGE = (
    *(errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENOENT),
    *(errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.ENXIO),  # something else stands in place of a file
)


class Error(Exception):
    """Base of everything penstock raises.

    `code` is the machine name, unique in the tree; `retry` is True when repeating the same call may
    succeed without any change. Classes also derive from the matching Python error: ValueError for invalid
    values, LookupError for missing things, TimeoutError, and ImportError for missing libraries.
    """

    code: ClassVar[str] = "error"
    retry: ClassVar[bool] = False
    by_code: ClassVar[dict[str, type[Error]]] = {}
    offset: int = -1  # where reading may go on, on errors about a position; -1 when unknown
    retry_after: float = 0.0  # seconds after which a retry may help, when known

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:
            taken = Error.by_code.setdefault(cls.code, cls)
            assert taken is cls, f"error code {cls.code!r} is used by {taken.__name__} and {cls.__name__}"

    @property
    def message(self) -> str:
        """The human sentence."""
        return str(self.args[0]) if self.args else self.code


class InvalidArgument(Error, ValueError):
    """An invalid argument: a size, a time, a position, the name of a format."""

    code = "invalid_argument"


class StorageError(Error):
    """Something about the log on disk or in memory."""

    code = "storage"


class InvalidTopic(StorageError, ValueError):
    """An invalid topic name or log path, or one of penstock's internal topics."""

    code = "invalid_topic"


class NeedsLinux(StorageError, NotImplementedError):
    """Needs Linux: logs in files, and sockets of one machine."""

    code = "needs_linux"


class EndOfLog(StorageError):
    """Reading at the end: nothing is committed there yet."""

    code = "end_of_log"
    retry = True


class OutOfBounds(StorageError, LookupError):
    """An offset outside the log; the message names the valid range."""

    code = "out_of_bounds"


class Diverged(StorageError):
    """A position whose term is not the log's at that offset; the message names the valid end."""

    code = "diverged"


class InvalidBatch(StorageError, ValueError):
    """Bytes that are not a well-formed batch, or records that cannot become one."""

    code = "invalid_batch"


class RecordTooLarge(InvalidBatch):
    """A record over `max_record_bytes`."""

    code = "record_too_large"


class BatchTooLarge(InvalidBatch):
    """A batch over the frame or segment limit."""

    code = "batch_too_large"


class Corrupt(StorageError):
    """Damage at or below the mark: bytes that were durable are wrong or missing.

    `path` and `position` say where, as far as the reader sees files ("" and -1 when not); `topic` and `partition` of
    what a client reads; `next_offset` is where good records go on (None when unknown).
    """

    code = "corrupt"

    def __init__(
        self, message: str, *, path: str = "", position: int = -1, next_offset: int | None = None, topic: str = "",
        partition: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.path = path
        self.position = position
        self.next_offset = next_offset
        self.topic = topic
        self.partition = partition


class ReadFailed(StorageError):
    """A file could not be read: an I/O error, too many open files; or other nodes are asked for what has rotted.

    Ask again, where `retry_after` is not 0 in so many seconds.
    """

    code = "read_failed"
    retry = True

    @classmethod
    def of(cls, place: object, error: OSError) -> ReadFailed:
        """That an I/O error kept a place from being read."""
        return cls(f"{place!r} cannot be read now: {error}")


class BadChecksum(Corrupt, InvalidBatch):
    """A checksum that does not match its bytes."""

    code = "bad_checksum"


class AcceptedLoss(Corrupt):
    """Damaged records whose loss an operator accepted: readers go on at `next_offset`, with a warning."""

    code = "accepted_loss"


class AlreadyOpen(StorageError):
    """Another writer holds the log or the data directory."""

    code = "already_open"


class Poisoned(StorageError):
    """A sync failed: nothing more is acknowledged until the log is opened anew. Reads go on."""

    code = "poisoned"


class StorageFull(StorageError):
    """No space (or no descriptor) for the next bytes; what was acknowledged stays."""

    code = "storage_full"
    retry = True


class NewerFormat(StorageError):
    """Written by a newer version of penstock than this one."""

    code = "newer_format"


class ForeignDirectory(StorageError):
    """A directory of another node or kind, or none of penstock's, or one that the system does not let us use."""

    code = "foreign_directory"


def is_damage(error: Error | OSError) -> bool:
    """Whether an error of reading says something of the bytes: they do not verify, or are not to be had (a bad sector,
    no file).

    Any other one may be gone the next time (no descriptor, no memory, no permission, a server that is away). Even a bad
    sector may: nothing is removed because it could not be read.
    """
    return error.errno in _DAMAGE if isinstance(error, OSError) else not error.retry


def way_to_install(extra: str) -> str:
    """The command that brings the packages of an extra of penstock."""
    return f"pip install '.[{extra}]' in a clone of penstock"


class MissingCodec(StorageError, ImportError):
    """A batch is compressed with a codec whose library is not installed."""

    code = "missing_codec"


class MissingLibrary(StorageError, ImportError):
    """The call needs a library that is not installed; the message names the extra that brings it."""

    code = "missing_library"


class Closed(StorageError):
    """The log, client, producer or consumer was closed before this call."""

    code = "closed"


class ReadOnly(StorageError):
    """Appending to a log that was opened with `read_only`."""

    code = "read_only"


class BoardUnavailable(StorageError):
    """The shared block of watermarks is missing, not one of ours, retired, or just being set up."""

    code = "board_unavailable"
    retry = True
