"""Producers that append to logs by themselves, beside a node in the same process.

Idea: as a client does it. A producer asks for a grant, appends as long as it has one, and sends again through the
broker what it is in doubt about, under the same sequence. Each step of an append can be a stop (support/lending.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from penstock.storage.batch import encode
from penstock.storage.board import Row
from penstock.storage.layout import SegmentName
from penstock.storage.lending.appending import DirectAppender
from penstock.storage.lending.grant import LogGrant
from penstock.storage.recovery import LogEnd
from penstock.storage.segment import reference
from penstock.transport import messages as m
from support.core import Core
from support.engine import records
from support.lending import Bytes, SteppedFile, SteppedWords, Steps
from support.writeback import WritebackFiles

TURNS = 4


class Scene:
    """A node that lends its logs, and topics in it."""

    def __init__(self, **how: Any) -> None:
        self.table: dict[int, Bytes] = {}
        self.core = Core(WritebackFiles(), table=self.table, **how)

    def topic(self, name: str = "t", partitions: int = 1, **settings: Any) -> bytes:
        named = {"commit": "written", **settings}
        request = self.core.send(lambda request: m.CreateTopic(request, name, partitions, named))
        while self.core.answer(request) is None:
            self.core.turn()
        return self.core.answer(request).topics[0].topic

    def restart(self, *, clean: bool = False) -> None:
        """The node is closed, or killed, and another one opens."""
        if clean:
            self.core.close()
        now_s = self.core.now_s
        self.core = Core(self.core.files, table=self.table, cut=bool(self.table))
        self.core.now_s = now_s

    def wait(self, seconds: float) -> None:
        """Time passes, and then a turn."""
        self.core.now_s += seconds
        self.core.turn()

    def read(self, topic: bytes, partition: int = 0) -> list[bytes]:
        """All values, as fetches at this moment give them: there is no turn in between."""
        values: list[bytes] = []
        while True:
            found = self._read_from(topic, partition, len(values))
            if not found:
                return values
            values += found

    def _read_from(self, topic: bytes, partition: int, offset: int) -> list[bytes]:
        core = self.core
        request = core.send(lambda request: m.Fetch(request, topic, partition, offset, -1, 1 << 20, 0))
        (payload,) = [payload for _, each, payload in core.port.sent if getattr(each, "request", 0) == request]
        return records(payload, offset)

    def lent(self) -> int:
        """How many logs are lent."""
        return self.core.node.stats()["lending.lent"]

    def row(self, partition: int = 0) -> Row:
        """The words of a partition's log."""
        log = self.core.node.logs[1 + partition]
        return self.core.board.row(self.core.watermarks.number_of(log))


class Direct:
    """One producer of one partition."""

    def __init__(
        self,
        scene: Scene,
        topic: bytes,
        partition: int = 0,
        *,
        producer: int = 77,
        peer: str = "direct",
        epoch: int = 0,
    ) -> None:
        self.scene = scene
        self.steps = Steps()
        self.sequence = 0
        self.acked: list[bytes] = []
        self.appender: DirectAppender | None = None
        self.grant: LogGrant | None = None
        self._topic = topic
        self._partition = partition
        self._producer = producer
        self._epoch = epoch
        self._peer = peer
        self._asked: dict[int, tuple[bytes, int]] = {}

    def ask(self, **instead: int) -> Any:
        """Ask for a grant, and return the answer."""
        if self.appender is not None:
            self.appender.end()
            self.appender = None
        fields = {"producer_id": self._producer, "epoch": self._epoch, "next_sequence": self.sequence, **instead}
        answer = self.scene.core.ask(
            lambda request: m.Lend(request, self._topic, self._partition, **fields), peer=self._peer
        )
        if isinstance(answer, m.Lent):
            self._attach(answer)
        return answer

    def _attach(self, lent: m.Lent) -> None:
        core = self.scene.core
        grant = self.grant = granted(lent, self._producer, self._epoch)
        ref, files = reference(lent.directory, SegmentName(lent.base_seq, lent.generation)), core.files
        words = cast("memoryview", SteppedWords(core.board.row(lent.row).words, self.steps))
        self.appender = DirectAppender(
            grant, Row(words), Bytes(self.scene.table, self.steps),
            cast("Any", SteppedFile(files.open(ref.path, write=True), self.steps)),
            cast("Any", SteppedFile(files.open(ref.index_path, write=True), self.steps)),
            incarnation=lambda: files.incarnation, monotonic=lambda: self.scene.core.now_s,
        )  # fmt: skip

    def batch(self, value: bytes, sequence: int) -> bytes:
        return bytes(encode([value], producer_id=self._producer, producer_epoch=self._epoch, first_sequence=sequence))

    def append(self, value: bytes) -> bool:
        """Append one record by itself. False: it is in doubt, and not sent again."""
        sequence, self.sequence = self.sequence, self.sequence + 1
        done = self.appender is not None and self.appender.append(self.batch(value, sequence)) is not None
        if done:
            self.acked.append(value)
        return done

    def produce(self, value: bytes, sequence: int | None = None) -> int:
        """Send a record through the broker. Returns the request, which `hear` looks for."""
        if sequence is None:
            sequence, self.sequence = self.sequence, self.sequence + 1
        payload = self.batch(value, sequence)
        request = self.scene.core.send(
            lambda request: m.Produce(request, self._topic, self._partition), payload, peer=self._peer
        )
        self._asked[request] = (value, sequence)
        return request

    def hear(self) -> None:
        """Take the answers that came."""
        for request, (value, _) in list(self._asked.items()):
            answer = self.scene.core.answer(request)
            if isinstance(answer, m.Produced):
                self.acked.append(value)
                del self._asked[request]
            else:
                assert answer is None, answer

    def send(self, value: bytes) -> bool:
        """Append, or send through the broker and wait for the answer. Returns whether it was appended directly."""
        if self.append(value):
            return True
        self.produce(value, self.sequence - 1)
        for _ in range(TURNS):
            self.scene.core.turn()
        self.hear()
        return False

    def heard(self, value: bytes) -> bool:
        """Whether a record that was sent through the broker is acknowledged, or was before."""
        for request, (sent, _) in list(self._asked.items()):
            if sent == value and isinstance(self.scene.core.answer(request), m.Produced):
                self.acked.append(value)
                self._asked.clear()
                return True
        return False

    def forget(self) -> None:
        """No answer is waited for any more."""
        self._asked.clear()

    def end(self) -> None:
        """The process is killed between two appends."""
        if self.appender is not None:
            self.appender.end()
        self.gone()

    def gone(self) -> None:
        """The connection is lost."""
        self.scene.core.node.disconnect(self._peer)

    def append_and(self, value: bytes, step: int, do: Callable[[], object]) -> bool:
        """Append, and have something done when the producer is at a step of it."""
        self.steps.at[self.steps.count + step] = do
        assert self.appender is not None
        done = self.append(value)
        if self.appender.trouble is not None:
            raise self.appender.trouble
        return done

    def stop_at(self, value: bytes, step: int) -> bool:
        """Be stopped for good at a step of an append: the lock stays. False: the append has less steps."""

        def stop() -> None:
            raise Stopped

        assert self.appender is not None
        end, self.appender.end = self.appender.end, lambda: None  # type: ignore[method-assign]
        with suppress(Stopped):
            self.append_and(value, step, stop)
            self.steps.at.clear()
            self.appender.end = end  # type: ignore[method-assign]
            return False
        self._end = end
        return True

    def kill(self) -> None:
        """The stopped process is killed: its lock and its connection are gone."""
        self._end()
        self.appender = None
        self.gone()


def granted(lent: m.Lent, producer: int, epoch: int) -> LogGrant:
    """A grant, as its holder has it."""
    end = LogEnd(lent.seq, lent.position, lent.offset, lent.checksum, lent.last_us, lent.term)
    segment, index, lock = lent.files
    return LogGrant(
        number=lent.number, incarnation=lent.incarnation, row=lent.row, log_id=lent.log_id, base_seq=lent.base_seq,
        generation=lent.generation, end=end, producer_id=producer, epoch=epoch,
        segment_bytes=lent.segment_bytes, max_batch_bytes=lent.max_batch_bytes, time_us=lent.time_us,
        monotonic_s=lent.monotonic_s, files=(segment, index, lock),
    )  # fmt: skip


class Stopped(BaseException):
    """The process is stopped here, or killed."""
