"""Errors of the client side, when no broker answered or was asked.

Contract: as in `storage/errors.py`: a message names the thing, the value, the limit and the way out.
"""

from __future__ import annotations

from ..storage.errors import Error, InvalidArgument, StorageFull
from ..storage.record import NO_HEADERS, Record

__all__ = [
    "CannotDecrypt", "CannotDeserialize", "CannotSerialize", "ClientError", "InvalidArgument", "InvalidQuery",
    "MappedUnavailable", "NoGroup", "NotAssigned", "SpoolFull", "StillFull", "TaskCancelled", "TaskFailed",
    "TimedOut", "Unpicklable", "WindowFull",
]  # fmt: skip


NO_RECORD = Record(b"", None, NO_HEADERS, -1, 0)
"""For errors that are made anew: copies of others."""


class ClientError(Error):
    """An error of a client, producer or consumer in this process."""

    code = "client"


class TimedOut(ClientError, TimeoutError):
    """A wait timed out; the message says for what. It may still happen later."""

    code = "timed_out"
    retry = True


class StillFull(StorageFull, TimedOut):
    """A wait timed out, and the storage of the broker is full. What was sent may be appended once there is room."""

    code = "still_full"


class InvalidQuery(ClientError, ValueError):
    """DuckDB cannot run a query; the message is DuckDB's."""

    code = "invalid_query"


class CannotDecrypt(ClientError):
    """A value that no key of the cipher opens: another key, other bytes, or it was never encrypted."""

    code = "cannot_decrypt"


class CannotSerialize(ClientError):
    """A producer's serializer does not take a value. The record was not sent."""

    code = "cannot_serialize"


class CannotDeserialize(ClientError):
    """A consumer's serializer cannot read a value. It is raised once: the next call goes on behind the record.

    `record` is the record with its bytes.
    """

    code = "cannot_deserialize"

    def __init__(self, message: str, record: Record = NO_RECORD) -> None:
        super().__init__(message)
        self.record = record
        self.offset = record.offset + 1


class WindowFull(ClientError):
    """A producer has as much on its way as its window allows, and the verb does not wait: the record was not taken."""

    code = "window_full"
    retry = True


class SpoolFull(ClientError):
    """A spool has reached its limit of bytes or age, and takes no more until records were forwarded."""

    code = "spool_full"
    retry = True


class NoGroup(ClientError):
    """A consumer without a group cannot use verbs of groups."""

    code = "no_group"


class NotAssigned(ClientError):
    """This consumer does not read the partition now: another member has it, or the topic lacks it."""

    code = "not_assigned"


class MappedUnavailable(ClientError):
    """Mapped delivery was asked for, but the broker's files cannot be read from here."""

    code = "mapped_unavailable"


class Unpicklable(ClientError, TypeError):
    """Bound to a connection of this process, so it cannot be pickled or copied; the message says what to pass on."""

    code = "unpicklable"


class TaskFailed(ClientError):
    """The task whose result was asked for was dead-lettered; the message says why it failed."""

    code = "task_failed"


class TaskCancelled(ClientError):
    """The task whose result was asked for was cancelled."""

    code = "task_cancelled"
