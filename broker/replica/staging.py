"""What a member has fetched of a state, beside its own logs, until all of it is there.

    DATA/staged/<log id>/       batches that the member lacks, as a log that begins where they do; files beside it
    DATA/staged/order/          the order log behind the entry, with its checkpoint
    DATA/staged/snapshot-<n>    the install record: all of it is there, for entry n

Idea: a log that agrees up to some batch gets what follows (`extended`); one that has nothing in common with what the
leader still has is fetched whole, with its state (`replaced`). Nothing outside of this directory changes. What was
staged before a crash, or from another leader, is used as far as it fits: batches follow by their chain.

Contract: the record is durable last; `installing.install` then carries it out, at opening. Raises InvalidBatch where
batches do not follow, StorageFull, Poisoned, OSError. Must not know where pieces come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ...storage import layout, snapshots
from ...storage.data_directory import STAGED
from ...storage.errors import Error, is_damage
from ...storage.log import LogOptions, LogWriter
from ...storage.recovery import LogEnd
from . import checkpoint as checkpoints
from .catchup_messages import AskBatches, AskFile, Manifest, ShippedFile, ShippedLog
from .places import Places
from .replicated import Replicated

if TYPE_CHECKING:
    from ...storage.files import File, Files

ORDER_DIRECTORY = "order"

OwnEnd = Callable[[ShippedLog], "LogEnd | None"]
"""The place up to which the member's own log is known to agree with every other; None when it has none, or no log."""


class InstalledLog(Struct, array_like=True, frozen=True):
    """One log of an install record. `behind`: the batch that what is staged follows; not above `seq`."""

    log_id: bytes
    topic: bytes
    partition: int
    replaced: bool
    behind: int
    seq: int
    checksum: int


class InstallRecord(Struct, array_like=True, frozen=True):
    """Everything of `entry` is staged. `damaged`: the member lost something, so what is replaced is kept aside."""

    version: int
    entry: int
    damaged: bool
    logs: list[InstalledLog]


class StagedLog:
    """One log as far as it is fetched."""

    def __init__(self, shipped: ShippedLog, path: str, files: Files, *, start: LogEnd, replaced: bool) -> None:
        self.shipped = shipped
        self.path = path
        self.start = start
        self.replaced = replaced
        self._files = files
        self._log: LogWriter | None = None
        self._parts: list[ShippedFile] = list(shipped.files) if replaced else []
        self._part: File | None = None
        self._position = 0

    @property
    def written(self) -> int:
        """The last batch that is staged, or the one before the first."""
        return self.start.seq if self._log is None else self._log.written

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to install."""
        return self.replaced or self.shipped.seq > self.start.seq

    def open(self, options: LogOptions) -> None:
        """Make the staged log, or go on with what an earlier try left of it."""
        found = self._left_over(options)
        if found is None:
            self._files.remove_tree(self.path)
            order = Replicated(Places(0, {}))
            found = LogWriter.create(
                self.path, files=self._files, log_id=self.shipped.log_id, options=options, order=order, start=self.start
            )
        self._log = found
        for part in list(self._parts):
            if self._is_whole(part):
                self._parts.remove(part)

    def _left_over(self, options: LogOptions) -> LogWriter | None:
        if not layout.live_segments(self._files.listdir(self.path))[0]:
            return None
        try:
            found = LogWriter.open(
                self.path, files=self._files, options=options, order=Replicated(Places(0, {})),
            )  # fmt: skip
        except Error as error:
            if not is_damage(error):
                raise  # a full disk, for example: what was fetched is whole
            return None
        if self._fits(found):
            return found
        found.close(clean=False)
        return None

    def _fits(self, found: LogWriter) -> bool:
        """Whether what an earlier try left is a part of what is shipped now."""
        shipped, begins = self.shipped, found.place_behind(found.names[0].base_seq - 1)[0]
        if found.damage or found.log_id != shipped.log_id or found.written > shipped.seq:
            return False
        if found.written == shipped.seq and found.checksum != shipped.checksum:
            return False
        if not self.replaced:
            return (begins.seq, begins.checksum) == (self.start.seq, self.start.checksum)
        newest = max((snapshots.seq_of(file.name) or 0 for file in shipped.files), default=0)
        return begins.seq <= newest and found.written >= shipped.start.seq

    def _is_whole(self, part: ShippedFile) -> bool:
        path = f"{self.path}/{part.name}"
        if not self._files.exists(path):
            return False
        with self._files.open(path) as file:
            return (file.size(), int.from_bytes(file.pread(8, 0), "little")) == (part.size, part.checksum)

    def ask(self, entry: int) -> AskBatches | AskFile | None:
        """What to ask for next; None when all of it is here."""
        if self.written < self.shipped.seq:
            return AskBatches(entry, self.shipped.log_id, self.written)
        if self._parts:
            return AskFile(entry, self.shipped.log_id, self._parts[0].name, self._position)
        return None

    def add_batches(self, batches: Sequence[bytes]) -> None:
        """Append batches. Raises InvalidBatch where they do not follow, StorageFull, Poisoned."""
        assert self._log is not None
        self._log.append_stamped(batches)

    def add_piece(self, name: str, position: int, data: bytes) -> None:
        """Write a piece of a file that was asked for; others are ignored. Raises StorageFull, OSError."""
        if not self._parts or self._parts[0].name != name or position != self._position or not data:
            return
        part = self._parts[0]
        if self._part is None:
            self._part = self._files.create_anew(f"{self.path}/{name}.new", part.size)
        self._part.pwritev([data], position)
        self._position += len(data)
        if self._position >= part.size:
            self._part.sync()
            self._part.close()
            self._part, self._position = None, 0
            self._files.replace(f"{self.path}/{name}.new", f"{self.path}/{name}")
            del self._parts[0]

    def finish(self) -> None:
        """Make all of it durable. Raises Poisoned, StorageFull, OSError, and Corrupt where a snapshot is damaged."""
        self.close(clean=True)
        for name in self._files.listdir(self.path):
            if snapshots.seq_of(name) is not None:
                snapshots.load(self._files, self.path, name, self.shipped.log_id)
        self._files.sync_dir(self.path)

    def close(self, *, clean: bool = False) -> None:
        """Close what is open."""
        if self._part is not None:
            self._part.close()
            self._part = None
        if self._log is not None:
            self._log.close(clean=clean)
            self._log = None


class StagedState:
    """What is fetched of one manifest. `own`: how far the member's own logs are known to be right."""

    def __init__(
        self, files: Files, data: str, order_id: bytes, manifest: Manifest, own: OwnEnd, options: LogOptions
    ) -> None:
        self.manifest = manifest
        self.path = f"{data}/{STAGED}"
        self._files = files
        self._order_id = order_id
        self._own = own
        self._options = options
        self.logs = [self._plan(shipped) for shipped in manifest.logs if shipped.seq]
        self._left = iter([log for log in self.logs if log.is_changed])
        self.current: StagedLog | None = None

    def _plan(self, shipped: ShippedLog, *, replaced: bool = False) -> StagedLog:
        end = None if replaced else self._own(shipped)
        is_extended = end is not None and shipped.start.seq <= end.seq <= shipped.seq
        if is_extended and end is not None and end.seq == shipped.seq:
            is_extended = end.checksum == shipped.checksum
        start = end if is_extended and end is not None else shipped.start.end()
        path = f"{self.path}/{shipped.log_id.hex()}"
        return StagedLog(shipped, path, self._files, start=start, replaced=not is_extended)

    def next_ask(self) -> AskBatches | AskFile | None:
        """What to ask for now; None when all is staged. Raises StorageFull, Poisoned, OSError, Corrupt."""
        while True:
            if self.current is None:
                self.current = next(self._left, None)
                if self.current is None:
                    return None
                self._files.mkdir(self.path)
                self.current.open(self._options)
            ask = self.current.ask(self.manifest.entry)
            if ask is not None:
                return ask
            self.current.finish()
            self.current = None

    def replace_current(self) -> None:
        """What was fetched does not follow what is here: fetch the log whole."""
        current = self.current
        assert current is not None
        current.close()
        self._files.remove_tree(current.path)
        whole = self._plan(current.shipped, replaced=True)
        self.logs[self.logs.index(current)] = self.current = whole
        whole.open(self._options)

    def finish(self, *, damaged: bool) -> None:
        """Stage the order log too, and write the record, durably. Raises StorageFull, Poisoned, OSError."""
        self._files.mkdir(self.path)
        self._stage_order()
        logs = [
            InstalledLog(
                log.shipped.log_id, log.shipped.topic, log.shipped.partition, log.replaced, log.start.seq,
                log.shipped.seq, log.shipped.checksum,
            )
            for log in self.logs
        ]  # fmt: skip
        entry = self.manifest.entry
        body = msgspec.msgpack.encode(InstallRecord(1, entry, damaged, logs))
        self._files.sync_dir(self.path)
        snapshots.save(self._files, self.path, entry, 0, body, self._order_id)

    def _stage_order(self) -> None:
        """An order log that begins behind the entry, with the checkpoint of the entry."""
        manifest, path, files = self.manifest, f"{self.path}/{ORDER_DIRECTORY}", self._files
        found = checkpoints.decode(manifest.checkpoint, path)
        files.remove_tree(path)
        start = LogEnd(found.entry, 0, 0, found.checksum, manifest.time_us, found.term).at_start()
        order = Replicated(Places(0, {}))
        log = LogWriter.create(
            path, files=files, log_id=self._order_id, options=self._options, order=order, start=start
        )
        log.close()
        mine = msgspec.structs.replace(found, commit=found.entry, acked=layout.word(log.generation, found.entry))
        checkpoints.save(files, path, self._order_id, mine)

    def close(self) -> None:
        """Close what is open; what is staged stays for the next try."""
        if self.current is not None:
            self.current.close()


def read_record(files: Files, data: str, order_id: bytes) -> InstallRecord | None:
    """The record of an install that was begun; None without one. Raises Corrupt."""
    found = snapshots.load_newest(files, f"{data}/{STAGED}", order_id)
    return None if found is None else msgspec.msgpack.decode(found.body, type=InstallRecord)


def record_names(files: Files, data: str) -> Iterator[str]:
    """The files of install records."""
    path = f"{data}/{STAGED}"
    return (f"{path}/{name}" for name in files.listdir(path) if snapshots.seq_of(name.removesuffix(".new")) is not None)
