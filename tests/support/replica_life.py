"""A replica's files under test: an order log and three logs, and what was promised about them.

Idea: a `ReplicaWorld` does to the files of one replica what its loop does: as leader it stamps batches and appends the
entry, as follower it cuts where a new leader contradicts it. It remembers every entry, what was acknowledged, and what
was committed. `survive` opens one disk image and holds what it finds against that.

Contract: deterministic. The real modules over recorded files; only Raft, peers and the engine are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from penstock.broker.raft.messages import ConfState, Entry
from penstock.broker.replica import checkpoint as checkpoints
from penstock.broker.replica.beginning import begin, ids_of
from penstock.broker.replica.checkpoint import Checkpoint, LogPlace
from penstock.broker.replica.durable_prefix import DurablePrefix
from penstock.broker.replica.entries import INLINE_BYTES, batches_of, encode_flush
from penstock.broker.replica.opening import OpenedOrder, open_order
from penstock.broker.replica.order_log import OrderLog
from penstock.broker.replica.places import START, LogRow, Places
from penstock.broker.replica.replicated import Replicated
from penstock.storage import layout, log_ids
from penstock.storage.batch import encode
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from support.files import RecordingFiles

DATA = "/data"
IDS = ids_of("test", [1, 2, 3])
OPTIONS = LogOptions(segment_bytes=64 << 10, allocate_bytes=8 << 10)
MEMBERS = msgspec.msgpack.encode(ConfState((1, 2, 3)))
TOPIC = bytes(range(16))
PATHS = [f"{DATA}/topics/{TOPIC.hex()}/{number}" for number in range(3)]
LOGS = [log_ids.own_id(path) or b"" for path in PATHS]
DIRECTORIES = ["", DATA, f"{DATA}/metadata", f"{DATA}/order", f"{DATA}/topics", f"{DATA}/topics/{TOPIC.hex()}", *PATHS]
LARGE = INLINE_BYTES + 500


@dataclass(frozen=True)
class Promised:
    """At one point: entries up to `acked` were acknowledged, up to `commit` committed; `entries` by checksum.

    `history` has every entry ever appended, by index: any of them may be found, if nothing below was taken back.
    """

    acked: int
    commit: int
    entries: tuple[tuple[int, bytes], ...]


@dataclass
class ReplicaWorld:
    """One replica's files, and what it was asked to keep."""

    files: RecordingFiles = field(default_factory=lambda: RecordingFiles(directories=DIRECTORIES))
    entries: list[Entry] = field(default_factory=list)
    term: int = 2
    commit: int = 1
    made: int = 0

    def __post_init__(self) -> None:
        begin(self.files, DATA, IDS, ConfState((1, 2, 3)), options=OPTIONS)
        for path, log_id in zip(PATHS, LOGS, strict=True):
            order = Replicated(Places(0, {}))
            LogWriter.create(path, files=self.files, log_id=log_id, order=order, options=OPTIONS).close()
        self._start(open_order(self.files, DATA, self._order(), OPTIONS))
        self.entries = self.order.entries(1, self.order.last_index() + 1) or []

    def _order(self) -> OrderLog:
        return OrderLog(f"{DATA}/order", self.files, log_id=IDS.order, options=OPTIONS)

    def _start(self, opened: OpenedOrder) -> None:
        self.order, self.places = opened.order, opened.places
        self.replicated = Replicated(self.places)
        self.logs = {
            log_id: LogWriter.open(path, files=self.files, order=self.replicated, options=OPTIONS)
            for path, log_id in zip(PATHS, LOGS, strict=True)
        }
        self.prefix = DurablePrefix(self.order.last_index())

    def promised(self) -> Promised:
        return Promised(self.prefix.entry, self.commit, tuple((each.term, bytes(each.data)) for each in self.entries))

    def note(self) -> None:
        self.files.note(self.promised())

    # -- what happens to it -------------------------------------------------------------------------

    def flush(self, sizes: Sequence[int]) -> None:
        """The leader appends a batch of so many bytes to each log (0: none), and the entry."""
        self.replicated.leading = self.term
        for log, size in zip(self.logs.values(), sizes, strict=True):
            if size:
                self.made += 1
                log.append([encode([(b"%d " % self.made).ljust(size, b".")])], 1000 + self.made)
        stamped = self.replicated.take()
        self._append(Entry(self.order.last_index() + 1, self.term, encode_flush(1000 + self.made, stamped)))

    def _append(self, entry: Entry) -> None:
        rows = [(named, flush.inlined(named)) for flush, named in batches_of(entry.kind, entry.data)]
        self.order.append([entry])
        self.places.appended(entry.index, [LogRow(row.log_id, row.seq, row.checksum) for row, _ in rows])
        self.prefix.appended(entry.index, [(row.log_id, row.seq) for row, body in rows if body is None])
        self.entries = [*self.entries[: entry.index - 1], entry]
        self.note()

    def no_op(self) -> None:
        self.term += 1
        self._append(Entry(self.order.last_index() + 1, self.term))

    def sync_order(self) -> None:
        self.order.log.sync()
        self._advance()

    def sync_log(self, number: int) -> None:
        self.logs[LOGS[number]].sync()
        self._advance()

    def _advance(self) -> None:
        self.prefix.advance(self.order.log.durable, lambda log_id: self.logs[log_id].durable)
        self.order.note_acked(self.prefix.entry)
        self.note()

    def commit_all(self) -> None:
        """Everything that is acknowledged here is committed, and applied."""
        self.commit = max(self.commit, self.prefix.entry)
        self.order.commit = self.commit
        self.places.apply(self.commit)
        self.note()

    def conflict(self) -> None:
        """A leader of a higher term has another entry in the place behind what is committed: a no-op."""
        self.term += 1
        index = self.commit + 1
        if self.order.last_index() < index:
            return
        self.prefix.cut(index - 1)
        self.files.note(self.promised())
        back = self.places.cut(index - 1)
        self.order.cut(index - 1)
        for log_id, (seq, _) in back.items():
            self.go_back(self.logs[log_id], seq)
        self._append(Entry(index, self.term))

    def go_back(self, log: LogWriter, seq: int) -> None:
        log.go_back(seq)

    def checkpoint(self) -> None:
        for log in self.logs.values():
            log.sync()
        self._advance()
        entry = self.places.entry
        logs = [LogPlace(log_id, *place) for log_id, place in sorted(self.places.applied.items())]
        acked = layout.word(self.order.log.generation, self.prefix.entry)
        found = Checkpoint(
            cluster=IDS.cluster, entry=entry, term=self.order.term(entry), checksum=self.order.checksum(entry),
            commit=self.commit, acked=acked, configuration=MEMBERS, logs=logs,
        )  # fmt: skip
        checkpoints.save(self.files, self.order.log.path, IDS.order, found)
        self.note()

    def close(self) -> None:
        """In good order, and open again."""
        for log in self.logs.values():
            log.close()
        self.order.close()
        self._advance_all()
        self._start(open_order(self.files, DATA, self._order(), OPTIONS))
        self.order.commit = self.commit
        self.places.apply(self.commit)

    def _advance_all(self) -> None:
        self.prefix = DurablePrefix(self.order.last_index())
        self.note()


class Found:
    """What an opening finds on one disk. Raises AssertionError when it breaks a promise."""

    def __init__(self, image: dict[str, bytes], promised: Sequence[Promised]) -> None:
        """`promised`: the last state that was promised, then those that were on their way when the power was cut."""
        self.files = RecordingFiles(image, DIRECTORIES)
        self.order = OrderLog(f"{DATA}/order", self.files, log_id=IDS.order, options=OPTIONS)
        self.opened = open_order(self.files, DATA, self.order, OPTIONS)
        self.entries = self.order.entries(1, self.order.last_index() + 1) or []
        self._check_order(promised)
        self._check_logs()

    def _check_order(self, promised: Sequence[Promised]) -> None:
        found = [(each.term, bytes(each.data)) for each in self.entries]
        certain = promised[0]
        assert any(list(each.entries[: len(found)]) == found for each in promised), "entries that were never there"
        kept = list(promised[0].entries[: certain.commit])
        assert found[: certain.commit] == kept, f"committed entries are lost: {len(found)} of {certain.commit}"
        acked = min(each.acked for each in promised)
        assert len(found) >= acked, f"the order ends at {len(found)}, {acked} was acknowledged"

    def _check_logs(self) -> None:
        """Each log ends where the order says, with the batches that it names."""
        named: dict[bytes, list[int]] = {log_id: [] for log_id in LOGS}
        for entry in self.entries:
            for _, row in batches_of(entry.kind, entry.data):
                named[row.log_id].append(row.checksum)
        for path, log_id in zip(PATHS, LOGS, strict=True):
            log = LogWriter.open(path, files=self.files, order=Replicated(self.opened.places), options=OPTIONS)
            found = [log.checksum_at(seq) for seq in range(1, log.written + 1)]
            assert found == named[log_id], f"{path} has {len(found)} batches, the order names {len(named[log_id])}"
            assert self.opened.places.end.get(log_id, START)[0] == log.written
            log.close(clean=False)


def copy_of(files: MemoryFiles) -> dict[str, bytes]:
    return {path: bytes(content.data) for path, content in files.contents.items()}
