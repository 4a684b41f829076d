"""The order of a log: gives batches their terms and times, and says which of them are committed and safe.

Idea: a log asks its `LogOrder` for terms and commits, and does not know what decides them. A standalone node's is
`Sole`; a replica's would follow a leader, and one that lends the log to another process would take it back first.

Contract: one order serves any number of logs, and is asked with the log. Must not know: how batches are written, or
cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from . import appending
from .plan import Appended
from .promises import Promises
from .tail import LogTail

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


class LogOrder(Protocol):
    """Interface of a log to the part that orders its batches."""

    def term(self, log: LogTail) -> int:
        """The term of the next batch that `append` stamps."""
        ...

    def append(self, log: LogTail, batches: Sequence[Buffer], now_us: int) -> list[Appended]:
        """Stamp and write batches, all or none. Raises what `LogWriter.append` does."""
        ...

    def committed(self, log: LogTail) -> int:
        """Seq of the last batch that readers may see."""
        ...

    def safe(self, log: LogTail) -> int:
        """Seq of the last batch that cannot be lost any more, whatever crashes or is cut."""
        ...


class Sole:
    """The only writer of the only copy.

    The term rises at the first append after opening, promised durably before it; time never goes back. A batch is
    committed when it is written or when it is durable, as the log's options say, and safe when it is durable.
    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises

    def term(self, log: LogTail) -> int:
        return log.term if log.in_term else max(log.term, self._promises.term(log.log_id)) + 1

    def append(self, log: LogTail, batches: Sequence[Buffer], now_us: int) -> list[Appended]:
        if not log.ready:
            self._begin(log)
        return appending.append(log, batches, max(now_us, log.last_time_us))

    def _begin(self, log: LogTail) -> None:
        log.check_open()
        if not log.in_term:
            term = self.term(log)
            self._promises.promise(log.log_id, term)
            log.term, log.in_term = term, True
        appending.prepare(log)

    def committed(self, log: LogTail) -> int:
        return log.written if log.options.commit == "written" else log.durable

    def safe(self, log: LogTail) -> int:
        return log.durable
