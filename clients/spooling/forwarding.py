"""Forwards the records of a spool: in order, each once, whichever process dies meanwhile.

Idea: records go in chunks, each a transaction under the spool's name whose epoch is the place of its last record.
Before a chunk is committed, its end is written down (`ahead`), and after that its being stored (`stored`). A chunk with
an unknown outcome is sent again with the same end, so with the same epoch, and the broker commits an epoch once.

    stored = ahead --> ahead = end, durable --> commit(epoch = end) --> stored = end, durable --> logs may go

Contract: one forwarder for a spool at a time (AlreadyOpen). A record that the broker refuses stops it, with its error:
nothing is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Self

from ...storage.adopting import SPOOL, adopting
from ...storage.errors import Error
from ...storage.files import Files
from ...storage.lock import take
from ...storage.record import Record
from ...storage.rolling_logs import OFFSET_BITS, RollingLogs
from ..errors import TimedOut
from . import spooled

if TYPE_CHECKING:
    from ..client import Client
    from ..connection.driver import Driver
    from ..producer import Producer

CHUNK_RECORDS, CHUNK_BYTES = 10_000, 4 << 20
"""Of one transaction."""

LOOK_S = 0.05
"""How often an idle forwarder looks for new records."""

REACH_S = 1.0
"""A broker that does not answer for so long is a trouble, and goes on being waited for."""

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 5.0
"""Between two tries while the broker cannot be reached."""


class Forwarder:
    """The one that forwards the spool in `path`. Raises AlreadyOpen, ForeignDirectory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = Files()
        with adopting(path, SPOOL, self._files):
            self._lock = take(f"{path}/forwarding", self._files)
        try:
            self._progress = spooled.load(path, self._files)  # with the lock: the one before may have gone on
            self._logs = RollingLogs(spooled.records_path(path), self._files, "durable")
            self._logs.look()
            spooled.check(path, self._progress, self._logs)
        except BaseException:
            self._lock.release()
            raise
        self._coming: Iterator[tuple[int, Record]] = iter(())
        self._chunk: list[tuple[int, Record]] = []

    def forward(self, client: Client) -> int:
        """Forward one chunk. Returns how many records it had, 0 when there are none. Raises what kept it from it;
        the same chunk is tried again then."""
        progress = self._progress
        if not self._chunk:
            self._gather()
        if not self._chunk and progress.ahead == progress.stored:
            return 0
        end = progress.ahead if progress.ahead > progress.stored else self._chunk[-1][0]
        if end != progress.ahead:
            self._save(spooled.SpoolProgress(progress.name, progress.stored, end))
        if self._chunk:
            self._publish(client, end)
        self._save(spooled.SpoolProgress(progress.name, end, end))
        count, self._chunk = len(self._chunk), []
        self._remove_stored()
        return count or 1

    def _gather(self) -> None:
        """The records of the next chunk; of one that was begun already, exactly those."""
        progress, size = self._progress, 0
        begun = progress.ahead > progress.stored
        while (found := next(self._coming, None)) is not None or self._look():
            if found is None or found[0] <= progress.stored:
                continue
            place, record = found
            if begun and place > progress.ahead:
                self._coming = chain([found], self._coming)
                return
            self._chunk.append(found)
            size += len(record.value)
            if place == progress.ahead if begun else len(self._chunk) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                return

    def _look(self) -> bool:
        """Whether there are more records than those that were read."""
        self._logs.look()
        self._coming = self._logs.news()
        first = next(self._coming, None)
        if first is None:
            return False
        self._coming = chain([first], self._coming)
        return True

    def _publish(self, client: Client, end: int) -> None:
        producers: dict[str, Producer] = {}
        with client.transaction(self._progress.name, end) as transaction:
            for _, record in self._chunk:
                envelope = spooled.unpacked(record)
                producer = producers.get(envelope.topic)
                if producer is None:
                    producer = producers[envelope.topic] = transaction.producer(envelope.topic)
                producer.send_nowait(
                    None if envelope.null else record.value,
                    key=record.key,
                    headers=envelope.headers if envelope.header_list is None else envelope.header_list,
                    timestamp=record.timestamp if envelope.timestamp is None else envelope.timestamp,
                    partition=envelope.partition,
                )
            transaction.commit()  # False: an earlier try was published

    def _save(self, progress: spooled.SpoolProgress) -> None:
        spooled.save(self._path, self._files, progress)
        self._progress = progress

    def _remove_stored(self) -> None:
        """Remove logs that are stored as a whole, and were ended."""
        stored = self._progress.stored >> OFFSET_BITS
        for number in sorted(self._logs.known):
            if number < stored:
                self._logs.remove(number, lambda: True)

    def close(self) -> None:
        """Let another one forward. Idempotent."""
        self._logs.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reach(
    url: str,
    timeout: float,
    *,
    stopping: Callable[[], bool],
    troubled: Callable[[Error], object],
    opened: Callable[[Driver], object] = lambda driver: None,
) -> Client:
    """A client of a broker, which may be away.

    Args:
        timeout: seconds to wait for it, and the client's.
        stopping: whether not to wait any longer.
        troubled: told while it does not answer.
        opened: gets what another thread may close, to end all waits.

    Raises: InvalidUrl, TimedOut and others of `connect`; Closed.
    """
    from ..client import Client
    from ..connection.driver import Driver
    from ..opening import open_connection

    connection = open_connection(url, timeout=timeout, name=None, clock=time.monotonic)
    driver = Driver(connection)
    try:
        opened(driver)
        deadline = connection.deadline()
        while True:
            try:
                driver.run(connection.ready(min(deadline, connection.deadline(REACH_S))))
                return Client(driver)
            except TimedOut as error:
                troubled(error)
                if stopping() or connection.clock() >= deadline:
                    raise
    except BaseException:
        driver.close()
        raise


def keep_forwarding(
    path: str,
    connect: Callable[[], Client],
    *,
    stopping: Callable[[], bool],
    pause: Callable[[float], object],
    patient: Callable[[Error], bool],
    told: Callable[[int], object] = lambda count: None,
    until_empty: bool = False,
) -> None:
    """Forward until told to stop, or with `until_empty` until there is nothing left.

    Args:
        connect: makes a client of the broker.
        stopping: whether to stop.
        pause: waits for some seconds, or until it should stop.
        patient: whether to try again after an error; if not, it is raised.
        told: gets the number of records of each chunk.
    """
    backoff_s = BACKOFF_MIN_S
    while not stopping():
        try:
            with Forwarder(path) as forwarder, connect() as client:
                while not stopping():
                    count = forwarder.forward(client)
                    backoff_s = BACKOFF_MIN_S
                    told(count)
                    if not count:
                        if until_empty:
                            return
                        pause(LOOK_S)
        except Error as error:
            if stopping():
                return
            if not patient(error):
                raise
            pause(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
