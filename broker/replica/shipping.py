"""The leader's side of a catch-up: hands out the state at one entry, one piece for each question.

Idea: the manifest is made from a checkpoint that was just written. While a member fetches what it names, nothing of it
goes: snapshots, segments, runs and the order behind the checkpoint stay (`held`). A member that is silent for
`QUIET_TICKS` has it no longer.

Contract: reads only what is committed. What leaves in one tick is bounded, so that shipping does not displace the
shard's own work; a piece is bounded by `PIECE_BYTES` or one batch. Whatever cannot be read any more is withdrawn, and
the member asks for another manifest. Must not know Raft, or what batches mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from ...storage import layout, runs, snapshots
from ...storage.data_directory import METADATA
from ...storage.errors import StorageError
from ...storage.reader import LogReader
from .catchup_messages import (
    PIECE_BYTES,
    AskBatches,
    AskFile,
    FilePiece,
    LogStart,
    Manifest,
    Shipped,
    ShippedBatches,
    ShippedFile,
    ShippedLog,
    WholeBatches,
    Withdrawn,
    progress,
)
from .damage import damage_of, verify

if TYPE_CHECKING:
    from ...storage.errors import Corrupt
    from ...storage.files import Files
    from ...storage.log import LogWriter
    from .checkpoint import Checkpoint

QUIET_TICKS = 100
"""Without a question of a member, its manifest is withdrawn."""

OFFER_TICKS = 20
"""Without a question after an offer, the offer has failed."""

LISTED_AT_ONCE = 64
"""Logs of a manifest that are listed in one turn."""

TICK_BYTES = 4 << 20
"""What may leave in one tick, to all members together; one piece may exceed it."""

SendPiece = Callable[[int, Shipped | WholeBatches, Sequence[bytes]], None]
"""Send a message of a catch-up to a member, with batches."""


class Shipment:
    """What one member fetches."""

    def __init__(self, manifest: Manifest, logs: dict[bytes, LogWriter]) -> None:
        self.manifest = manifest
        self.by_id = {each.log_id: each for each in manifest.logs}
        self.quiet = 0
        self.progress = ""
        """What the member asked for last."""
        self._places = {log_id: (log.path, log.files, log.generation) for log_id, log in logs.items()}
        self._reader: LogReader | None = None

    def batches(self, ask: AskBatches) -> list[bytes]:
        """The next batches of a log, at least one. Raises StorageError, OSError."""
        shipped = self.by_id[ask.log_id]
        chunk = self._open(shipped).cursor_at(ask.seq + 1).next(PIECE_BYTES, shipped.seq)
        if chunk is None:
            return []
        verify(chunk.batches, self._places[ask.log_id][0])
        return [bytes(batch.buffer) for batch in chunk.batches]

    def _open(self, shipped: ShippedLog) -> LogReader:
        path, files, generation = self._places[shipped.log_id]
        if self._reader is None or self._reader.path != path:
            self.close()
            end = layout.word(generation, shipped.seq)
            self._reader = LogReader(path, files, limit=lambda: end, log_id=shipped.log_id)
        return self._reader

    def file(self, ask: AskFile) -> bytes:
        """A piece of a file. Raises OSError, and Corrupt where a run has rotted, which the member would not notice."""
        path, files, _ = self._places[ask.log_id]
        if not ask.position and runs.number_of(ask.name) is not None:
            runs.check(files, f"{path}/{ask.name}")
        with files.open(f"{path}/{ask.name}") as file:
            return bytes(file.pread(PIECE_BYTES, ask.position))

    def path_of(self, ask: AskBatches | AskFile) -> str:
        """The log that is asked for."""
        return self._places[ask.log_id][0]

    def note(self, ask: AskBatches | AskFile) -> None:
        """The member asks for this now."""
        shipped, logs = self.by_id[ask.log_id], self.manifest.logs
        seq = ask.seq if isinstance(ask, AskBatches) else shipped.seq
        self.progress = progress(shipped, seq, logs.index(shipped) + 1, len(logs))

    def has(self, ask: AskBatches | AskFile) -> bool:
        """Whether the manifest names what is asked for."""
        shipped = self.by_id.get(ask.log_id)
        if ask.entry != self.manifest.entry or shipped is None:
            return False
        if isinstance(ask, AskBatches):
            return shipped.start.seq <= ask.seq < shipped.seq
        return any(file.name == ask.name and ask.position < file.size for file in shipped.files)

    def close(self) -> None:
        """Close what is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class ManifestDraft:
    """The logs of a manifest, listed some at a time: each takes a few reads, and there may be thousands."""

    def __init__(self, checkpoint: Checkpoint, time_us: int, logs: Iterable[LogWriter]) -> None:
        """`time_us`: of the checkpoint's entry. Nothing of the logs goes before the manifest is made."""
        self.logs = {log.log_id: log for log in logs}
        self._checkpoint = checkpoint
        self._time_us = time_us
        places = checkpoint.places()
        self._left = ((log, *places[log_id]) for log_id, log in self.logs.items() if log_id in places)
        self._named: list[ShippedLog] = []

    def step(self, most: int = LISTED_AT_ONCE) -> bool:
        """List some more. Returns whether all are. Raises StorageError, OSError, and Corrupt for a bad sector."""
        some = list(islice(self._left, most))
        for log, seq, checksum in some:
            try:
                self._named.append(_shipped(log, seq, checksum))
            except OSError as error:
                if (damage := damage_of(error, log.path)) is None:
                    raise
                raise damage from error
        return len(some) < most

    def manifest(self) -> Manifest:
        """All that is listed."""
        checkpoint = self._checkpoint
        return Manifest(checkpoint.entry, msgspec.msgpack.encode(checkpoint), self._time_us, self._named)


class Shipping:
    """All shipments of a leader. `hold` is told whether files must stay, `ended` of members that fell silent, and
    `met` of damage."""

    def __init__(
        self, send: SendPiece, hold: Callable[[bool], None], ended: Callable[[int], None],
        met: Callable[[Corrupt], None],
    ) -> None:  # fmt: skip
        self._send = send
        self._met = met
        self._hold = hold
        self._ended = ended
        self._shipments: dict[int, Shipment] = {}
        self._offers: dict[int, int] = {}  # to members, and how many ticks ago
        self._asked: deque[tuple[int, AskBatches | AskFile]] = deque()
        self._left = TICK_BYTES
        self.shipped_bytes = 0

    def entry(self) -> int | None:
        """The lowest entry whose manifest is out; None without any."""
        return min((each.manifest.entry for each in self._shipments.values()), default=None)

    def progress(self, member: int) -> str:
        """What a member fetches, and how far it is; "" where it fetches nothing."""
        shipment = self._shipments.get(member)
        return "" if shipment is None else shipment.progress

    def offered(self, member: int) -> None:
        """A member was told that there is a state for it."""
        self._offers[member] = 0

    def begin(self, member: int, listing: ManifestDraft) -> None:
        """Send a member the manifest of a checkpoint that was just made."""
        self.end(member)
        self._offers.pop(member, None)
        self._hold(True)
        manifest = listing.manifest()
        self._shipments[member] = Shipment(manifest, listing.logs)
        self._send(member, manifest, ())

    def asked(self, member: int, ask: AskBatches | AskFile) -> None:
        """A member asks for a piece."""
        shipment = self._shipments.get(member)
        if shipment is None or not shipment.has(ask):
            self._send(member, Withdrawn(ask.entry), ())
            return
        shipment.quiet = 0
        shipment.note(ask)
        self._asked.append((member, ask))
        self._work()

    def tick(self) -> None:
        """Time passed: more may leave, and members that are silent lose their manifests."""
        self._left = min(self._left + TICK_BYTES, TICK_BYTES)
        for member in list(self._offers):
            self._offers[member] += 1
            if self._offers[member] > OFFER_TICKS:
                del self._offers[member]
                self._ended(member)
        for member, shipment in list(self._shipments.items()):
            shipment.quiet += 1
            if shipment.quiet > QUIET_TICKS:
                self.end(member)
                self._ended(member)
        self._work()

    def _work(self) -> None:
        while self._asked and self._left > 0:
            member, ask = self._asked.popleft()
            shipment = self._shipments.get(member)
            if shipment is not None and shipment.has(ask):
                self._answer(member, shipment, ask)

    def _answer(self, member: int, shipment: Shipment, ask: AskBatches | AskFile) -> None:
        try:
            if isinstance(ask, AskBatches):
                batches = shipment.batches(ask)
                self._send(member, ShippedBatches(ask.entry, ask.log_id, ask.seq), batches)
                size = sum(map(len, batches))
            else:
                data = shipment.file(ask)
                self._send(member, FilePiece(ask.entry, ask.log_id, ask.name, ask.position, data), ())
                size = len(data)
        except (StorageError, OSError) as error:
            self._withdraw(member)
            if (damage := damage_of(error, shipment.path_of(ask))) is not None:
                self._met(damage)  # this leader has lost it, and does not say so: it would be asked again
            else:
                self._send(member, Withdrawn(ask.entry), ())
            return
        self._left -= size
        self.shipped_bytes += size

    def _withdraw(self, member: int) -> None:
        """What a member fetches cannot be had here. It asks for another manifest, as after an offer, or is gone."""
        self.end(member)
        self.offered(member)

    def end(self, member: int) -> None:
        """A member has all of it, or needs it no more."""
        shipment = self._shipments.pop(member, None)
        if shipment is not None:
            shipment.close()
            if not self._shipments:
                self._hold(False)

    def end_all(self) -> None:
        """This node leads no more."""
        for member in list(self._shipments):
            self.end(member)
        self._asked.clear()
        self._offers.clear()


def _shipped(log: LogWriter, seq: int, checksum: int) -> ShippedLog:
    """One log of a manifest: where it begins, and the files that say what it adds up to there."""
    topic, partition = _place_of(log.path)
    start = log.place_behind(log.names[0].base_seq - 1)[0]
    begins = LogStart(start.seq, start.offset, start.checksum, start.time_us, start.term)
    return ShippedLog(log.log_id, topic, partition, begins, seq, checksum, _state_files(log, seq))


def _place_of(path: str) -> tuple[bytes, int]:
    above, _, name = path.rpartition("/")
    return (b"", 0) if name == METADATA else (bytes.fromhex(above.rpartition("/")[2]), int(name))


def _state_files(log: LogWriter, seq: int) -> list[ShippedFile]:
    """The newest whole snapshot up to `seq`, and all runs, of which it names some.

    Raises Corrupt where none is whole that the batches go on from: the member would ask for ever.
    """
    files, path = log.files, log.path
    found = snapshots.load_newest(files, path, log.log_id, first_seq=log.names[0].base_seq, last_seq=seq)
    if found is None:
        return []
    numbered = [name for name in files.listdir(path) if runs.number_of(name) is not None]
    names = [snapshots.file_name(found.seq), *numbered]
    return [_state_file(files, path, name) for name in names]


def _state_file(files: Files, path: str, name: str) -> ShippedFile:
    with files.open(f"{path}/{name}") as file:
        return ShippedFile(name, file.size(), int.from_bytes(file.pread(8, 0), "little"))
