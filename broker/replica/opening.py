"""Opens a replica: recovers the order log, and gives every other log the end that the order says it has.

Idea: the checkpoint has the place of every log at one entry; from there the walk (walk.py) follows the order as far as
the logs reach. Batches that stand inside entries are appended again, the order is cut where a named one is missing, and
every tail behind the order is cut. All of it is synced before the replica serves.

Contract: a crash at any point of an opening leaves what the next one opens to the same entries or more. Raises
`ReplicaDamaged`, with nothing changed, where something is gone that was durable: a log that is missing, that lacks its
beginning, that ends before its place in the checkpoint or before its newest snapshot, an order that ends before an
entry that was acknowledged. A directory that the order does not name is set aside, and never removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ...storage import layout, snapshots
from ...storage.data_directory import ASIDE, stored_logs
from ...storage.errors import Corrupt, Error, InvalidBatch, InvalidTopic
from ...storage.log import LogOptions, LogWriter
from ...storage.opening import find_end
from ..raft.messages import Entry, EntryKind
from . import acked
from . import checkpoint as checkpoints
from .checkpoint import Checkpoint
from .directories import Members, change_of
from .entries import batches_of
from .errors import ReplicaDamaged
from .order_log import OrderLog
from .places import START, LogRow, Places
from .replicated import Replicated
from .walk import Missing, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ...storage.files import Files
    from ...storage.layout import SegmentName


class OpenedOrder(Struct):
    """What an opening found. The logs are closed again; `order` is open."""

    order: OrderLog
    places: Places
    checkpoint: Checkpoint
    members: Members  # at the last entry that is known to be committed
    appended: int = 0
    cut_entries: int = 0
    cut_logs: int = 0
    set_aside: list[str] = []


def open_order(
    files: Files, data: str, order: OrderLog, options: LogOptions | None = None, suspect: Collection[str] = ()
) -> OpenedOrder:
    """Bring every log of a data directory to the end of the order, durably.

    `suspect`: paths of logs with a sync that never answered (see `LogWriter.open`).

    Raises ReplicaDamaged, StorageFull, Poisoned, NewerFormat.
    """
    logs = _Logs(files, data, options or LogOptions(), suspect)
    try:
        logs.open()
        return _open(files, order, logs)
    except (Corrupt, InvalidBatch, InvalidTopic) as error:
        path = getattr(error, "path", "")
        raise ReplicaDamaged(f"this replica has lost what was durable: {error}", path=path) from error
    finally:
        logs.close()


def _open(files: Files, order: OrderLog, logs: _Logs) -> OpenedOrder:
    path, log_id = order.log.path, order.log.log_id
    found = checkpoints.load(files, path, log_id, first=order.first_index(), last=order.last_index())
    if found is None:
        raise ReplicaDamaged(f"{path} has no checkpoint: a replica begins with one")
    if order.log.damage:
        raise ReplicaDamaged(f"{path} is damaged: {order.log.damage[0].reason}", path=path)
    if found.entry and order.checksum(found.entry) != found.checksum:
        raise ReplicaDamaged(f"{path} holds another entry {found.entry} than its checkpoint says")
    logs.check(found)
    places = Places(found.entry, found.places())
    logs.order.places = places
    changes: list[Entry] = []
    missing = walk(_entries(order, found.entry + 1, changes), places, logs.stands)
    known = _known_commit(files, found, order, places, logs)
    acknowledged = max(known, _acked(order, found))
    if places.last < acknowledged:
        raise ReplicaDamaged(
            f"the order in {path} can be followed to entry {places.last}, and {acknowledged} was acknowledged here",
            path=_lacking(order, places, logs),
        )
    order.commit = known
    opened = OpenedOrder(order, places, found, _members(found, changes, known), set_aside=logs.set_aside(places))
    _settle(opened, logs, missing)
    places.apply(known)
    return opened


def _lacking(order: OrderLog, places: Places, logs: _Logs) -> str:
    """The log that lacks a batch of the entry before which the order ends; "" where the order itself ends there."""
    following = places.last + 1
    for entry in order.entries(following, min(following, order.last_index()) + 1) or []:
        for _, row in batches_of(entry.kind, entry.data):
            if not row.position and not logs.stands(LogRow(row.log_id, row.seq, row.checksum)):
                return logs.by_id[row.log_id].path
    return ""


def _entries(order: OrderLog, first: int, changes: list[Entry]) -> Iterator[Entry]:
    """Entries from `first` on, a few at a time. Those that change the members are added to `changes`."""
    while first <= order.last_index():
        some = order.entries(first, order.last_index() + 1)
        assert some, "a checkpoint reaches the first entry"
        changes += [entry for entry in some if entry.kind is EntryKind.CHANGE]
        yield from some
        first = some[-1].index + 1


def _members(found: Checkpoint, changes: list[Entry], known: int) -> Members:
    """The members at entry `known`: those of the checkpoint, and what was changed since."""
    members = found.members()
    for entry in changes:
        if entry.index <= known:
            members = members.after(change_of(entry))
    return members


def _known_commit(files: Files, found: Checkpoint, order: OrderLog, places: Places, logs: _Logs) -> int:
    """The highest entry that is known to be committed: that of the checkpoint, of the order itself, or of any log's
    newest snapshot.

    The name of a newer checkpoint counts where what is in it has rotted: its entry was committed, and durable here.
    """
    noted = (layout.split(word)[1] for word in acked.found(order.log, acked.COMMITTED))
    known = max(found.commit, _newest_snapshot(files, order.log), *noted)
    for log_id, log in logs.by_id.items():
        if log_id not in places.end:
            continue  # it is set aside
        newest = _newest_snapshot(files, log)
        entry = places.entry_of(log_id, newest) if newest else 0
        if entry is None:
            raise ReplicaDamaged(f"{log.path} has a snapshot of batch {newest}, which the order does not reach")
        known = max(known, entry)
    return known


def _newest_snapshot(files: Files, log: LogWriter) -> int:
    """The batch of a log's newest snapshot; 0 without one."""
    return max((snapshots.seq_of(name) or 0 for name in files.listdir(log.path)), default=0)


def _acked(order: OrderLog, found: Checkpoint) -> int:
    """The last entry that was acknowledged, as far as the checkpoint and the order itself say, unless a later
    generation of the order began before it."""
    return _held_to(order.log.names, (found.acked, *acked.found(order.log)))


def _held_to(names: Sequence[SegmentName], words: Iterable[int]) -> int:
    """The highest entry of these words, each no further than where later generations begin."""
    begun = [(name.generation, name.base_seq - 1) for name in names]
    known = map(layout.split, words)
    return max((min([entry, *(end for later, end in begun if later > own)]) for own, entry in known), default=0)


def check_suspect(files: Files, path: str, log_id: bytes) -> None:
    """Raise ReplicaDamaged where an order with a sync that never answered ends before an entry that it acknowledged.

    Opening it writes all that it keeps above the mark into a new generation, which holds what older ones say to where
    it begins. Raises Corrupt, InvalidTopic, StorageFull, OSError.
    """
    found = find_end(files, path, suspect=True)
    acknowledged = _held_to(found.names, acked.stored(files, path, found.names, log_id))
    if found.end.seq < acknowledged:
        raise ReplicaDamaged(f"{path} ends at entry {found.end.seq}, and {acknowledged} was acknowledged here")


def _settle(opened: OpenedOrder, logs: _Logs, missing: list[Missing]) -> None:
    """Append what is missing, cut what is void, and sync: the order last, so that it names nothing that is gone."""
    order, places = opened.order, opened.places
    for row, batch in missing:
        log = logs.by_id[row.log_id]
        opened.cut_logs += logs.end_at(log, row.seq - 1)
        logs.order.follow(log, [batch])
        opened.appended += 1
    for log_id, log in logs.by_id.items():
        opened.cut_logs += logs.end_at(log, places.end.get(log_id, START)[0])
        if log.poisoned is None:
            log.sync()
    if order.last_index() > places.last:
        opened.cut_entries = order.last_index() - places.last
        order.cut(places.last)
    order.log.sync()


class _Logs:
    """Every log of a data directory but the order log, open while it is brought to its end."""

    def __init__(self, files: Files, data: str, options: LogOptions, suspect: Collection[str] = ()) -> None:
        self.order = Replicated(Places(0, {}))
        self.by_id: dict[bytes, LogWriter] = {}
        self._files = files
        self._data = data
        self._options = options
        self._suspect = suspect

    def open(self) -> None:
        """Open all there are, recovered. Raises ReplicaDamaged, and what `LogWriter.open` does."""
        for path in stored_logs(self._files, self._data):
            self._open(path)

    def _open(self, path: str) -> None:
        if layout.live_segments(self._files.listdir(path))[0]:
            log = LogWriter.open(
                path, files=self._files, order=self.order, options=self._options, suspect=path in self._suspect
            )
            if log.damage:
                log.close(clean=False)
                raise ReplicaDamaged(f"{path} is damaged: {log.damage[0].reason}", path=path)
            other = self.by_id.setdefault(log.log_id, log)
            if other is not log:
                log.close(clean=False)
                raise ReplicaDamaged(f"{other.path} and {path} hold the same log")
            first = log.names[0].base_seq
            if _newest_snapshot(self._files, log) < first - 1:  # so it was not retention
                raise ReplicaDamaged(f"{path} begins at batch {first}: what was before it is gone", path=path)

    def check(self, found: Checkpoint) -> None:
        """Raise ReplicaDamaged where a log does not reach its place in the checkpoint."""
        for log_id, (seq, checksum) in found.places().items():
            log = self.by_id.get(log_id)
            if log is None:
                raise ReplicaDamaged(f"log {log_id.hex()}, which the checkpoint names, is missing below {self._data}")
            if seq and seq >= log.names[0].base_seq and log.checksum_at(seq) != checksum:
                raise ReplicaDamaged(f"{log.path} does not hold batch {seq} as the checkpoint names it", path=log.path)
            if log.written < seq:
                raise ReplicaDamaged(
                    f"{log.path} ends at batch {log.written}, before {seq} of the checkpoint", path=log.path
                )

    def stands(self, row: LogRow) -> bool:
        """Whether a batch that an entry names stands in its log, or retention took it.

        Raises ReplicaDamaged where the log is missing, which was durable before the order named it.
        """
        log = self.by_id.get(row.log_id)
        if log is None:
            raise ReplicaDamaged(f"log {row.log_id.hex()}, which the order names, is missing below {self._data}")
        return row.seq < log.names[0].base_seq or log.checksum_at(row.seq) == row.checksum

    def end_at(self, log: LogWriter, seq: int) -> bool:
        """Cut a log behind `seq` if it goes on; whether it did."""
        if log.written > seq:
            log.cut(seq)
            return True
        return False

    def set_aside(self, places: Places) -> list[str]:
        """Move logs away that neither the checkpoint nor an entry names."""
        moved: list[str] = []
        for log_id, log in list(self.by_id.items()):
            if log_id in places.end or not self._is_strange(log):
                continue
            log.close(clean=False)
            del self.by_id[log_id]
            target = f"{self._data}/{ASIDE}/{log_id.hex()}-{self._files.new_id().hex()[:8]}"
            self._files.mkdir(f"{self._data}/{ASIDE}")
            self._files.rename_dir(log.path, target)
            self._files.sync_dir(log.path.rpartition("/")[0])
            self._files.sync_dir(f"{self._data}/{ASIDE}")
            moved.append(target)
        return moved

    def _is_strange(self, log: LogWriter) -> bool:
        """Whether a log holds, or held, anything. One without batches may be prepared for a topic to come."""
        return bool(log.written) or log.names[0].generation > 1

    def close(self) -> None:
        """Close all that are open."""
        for log in self.by_id.values():
            try:
                log.close()
            except (Error, OSError):
                log.close(clean=False)  # it is opened anew next, which finds the same end
