"""The engine's interfaces to the outside: a port for answers, a store of logs, and the time.

Idea: the engine is only rules. The driver of a `Node` (the broker process, or `file://` and `mem://` inside a client)
brings a `Port` and a `Store` and calls the node from one thread.

Contract: the node calls these methods from within its own calls, never otherwise; none may call back into the node.
Slow work (syncing, unlinking, cold pages) may be started here and finish later. Knows no socket, file or clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ...storage.batch import Batch
    from ...storage.finals import FinalFiles
    from ...storage.lending.grant import LogGrant
    from ...storage.log import LogWriter
    from ...storage.reader import Chunk, Cursor
    from ...storage.segment import SegmentRef
    from ...storage.snapshots import Snapshot
    from ...transport.messages import Answer, Deliver
    from .tables.settings import TopicSettings

Peer = Hashable
"""The sender of a message: opaque, equal for the life of one connection (a ROUTER identity, a channel)."""

Payload = bytes | bytearray | memoryview
"""Batches, back to back. The node keeps a reference until the next flush, and never changes it."""

Work = Generator[int | None, None, Any]
"""Work that may be long: it yields after every few tens of microseconds, and is done in portions (portions.py)."""

Handlers = dict[type, Callable[[Peer, Any, Payload, "Now"], Work | None]]
"""What an area of the node does with each message: the message's class, and a method that takes one of it.

Work that it gives back is the rest of what is to be done.
"""

Randomness = Callable[[int], bytes]
"""`randomness(n)` gives n random bytes; a test passes a seeded one."""


class Now(NamedTuple):
    """Both clocks, read once per turn of the driver's loop."""

    wall_us: int  # microseconds since 1970, UTC; may jump
    monotonic_s: float  # seconds, never goes back, never jumps


class Cold(Enum):
    """The answer of a read whose pages are not in memory."""

    COLD = "cold"


COLD: Final = Cold.COLD


class Port(Protocol):
    """The way out: answers, deliveries, wake-ups, and reads that must not block."""

    def reply(self, peer: Peer, message: Answer, payload: Payload = b"") -> bool:
        """Send one message to `peer` over the connection it asked on.

        Also carries unsolicited messages (Assigned, Evicted, and Deliver of "control" sessions).
        Returns False when the peer is gone or cannot take it now; a reply is then dropped (the client asks
        again), a Deliver is read again once the driver calls `Node.eased(peer)`.
        """
        ...

    def is_behind(self, peer: Peer) -> bool:
        """Whether `peer` has so much to read already that no Deliver should be read for it.

        Once that has changed, the driver calls `Node.eased(peer)`.
        """
        ...

    def open_delivery(self, session: int, peer: Peer, owner: str = "") -> str:
        """A fresh endpoint for one "push" session and exactly one peer; "" makes the session use "control".

        `peer` is the connection that asks, `owner` what the principal behind it has proved: that one alone may connect.
        """
        ...

    def deliver(self, session: int, message: Deliver, payload: Payload) -> bool:
        """Send on the session's own endpoint. False: no peer is connected, or it is full.

        Once something has happened to it, the driver calls `Node.eased(session)`.
        """
        ...

    def close_delivery(self, session: int) -> None:
        """Close the session's endpoint and drop what it holds. Called once per opened one."""
        ...

    def open_wake(self, session: int) -> int:
        """A slot on the board for one "mapped" session; -1 where readers look by themselves. Raises LimitReached."""
        ...

    def begin_reading(self, session: int, log: LogWriter) -> None:
        """The reader of this mapped session is about to be told to read `log`: its appender may wake it."""
        ...

    def end_reading(self, session: int, log: LogWriter) -> None:
        """It reads `log` no more. Called before `close_wake`."""
        ...

    def wake(self, session: int) -> None:
        """The end offset of a partition of this mapped session moved: wake its reader if that sleeps."""
        ...

    def asleep(self) -> set[int]:
        """The mapped sessions whose readers `wake` would find asleep; others have seen what was published by now."""
        ...

    def close_wake(self, session: int) -> None:
        """Release the slot. Called once per opened one."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counters of what is around the node, by dotted name. Reading them takes microseconds."""
        ...

    def read(
        self, cursor: Cursor, max_bytes: int, limit_seq: int, token: Hashable
    ) -> Chunk | Literal[Cold.COLD] | None:
        """`cursor.next(max_bytes, limit_seq)`, unless that would wait for the disk.

        COLD leaves the cursor where it is: the port brings the pages in elsewhere and then has the driver call
        `Node.warmed(token)`. Raises Corrupt and OSError as the cursor does, and an error of bringing them in.
        """
        ...


class Runs(Protocol):
    """Large parts of a log's snapshots that never change, by number."""

    def save(self, number: int, body: bytes) -> int:
        """Write one; returns its checksum. Raises StorageFull."""
        ...

    def load(self, number: int, checksum: int) -> bytes:
        """Read one. Raises Corrupt when it is missing, damaged, or another."""
        ...

    def drop(self, keep: Collection[int]) -> None:
        """Remove all but these, as far as they can be removed now."""
        ...


class LentLog(Protocol):
    """One log that is lent to a producer, which appends to it; see storage/lending/lender.py."""

    lent: bool
    refused: str
    """Why what the producer wrote may not stand; "" as long as it may."""

    def follow(self, latest_us: int) -> None:
        """Take over what the producer said is there, if none of it is later than `latest_us`."""
        ...

    def taken(self) -> list[Batch]:
        """What was taken over since the last call, in order."""
        ...

    def borrow(self, latest_us: int) -> bool:
        """Take over everything, and keep the producer from appending. False: it is in the middle, or `refused`."""
        ...

    def give_back(self) -> None:
        """What was to be appended is. The log is not `lent` any more where it went on to another segment."""
        ...

    def recall(self, latest_us: int) -> bool:
        """End the grant, with everything that was appended. False while the producer is in the middle."""
        ...

    def force(self, latest_us: int) -> None:
        """End the grant though the producer is in the middle. Raises what a cut raises, and it is over all the same."""
        ...


class LentLogs(Protocol):
    """Lends logs to producers on the same machine."""

    def lend(
        self,
        log: LogWriter,
        number: int,
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        judge: Callable[[Batch], object],
        now: Now,
    ) -> tuple[LentLog, LogGrant] | None:
        """Lend a log, which is synced first, under a random number. None while that cannot be.

        Args:
            sequence: of the producer's next record.
            judge: raises for a batch that may not stand.
            now: with the time of the log.

        Raises StorageFull, OSError, Poisoned.
        """
        ...

    def moved(self) -> Sequence[LogWriter]:
        """The lent logs with something to follow."""
        ...

    def over(self, log: LogWriter) -> None:
        """A grant is over."""
        ...


class RecordRoom(Protocol):
    """What records may take of the disk, so that everything else has the rest."""

    def take(self, size: int, now_s: float) -> None:
        """Take so many bytes for records. Raises StorageFull, and takes nothing."""
        ...

    def flushed(self) -> None:
        """What was taken is written."""
        ...


class Store(Protocol):
    """The home of logs, with their paths, options, locks and board rows."""

    def metadata(self) -> LogWriter:
        """Open the node's metadata log, creating it the first time."""
        ...

    def create(self, topic: bytes, partition: int, settings: TopicSettings) -> LogWriter:
        """Create the log of a new partition, durably, and open it. It becomes known only when its topic is logged."""
        ...

    def open(self, topic: bytes, partition: int, settings: TopicSettings) -> LogWriter:
        """Open the log of a partition that the catalogue knows; never creates one. Raises when it is missing."""
        ...

    def configure(self, log: LogWriter, settings: TopicSettings) -> None:
        """The topic's settings changed while the log is open."""
        ...

    def delete(self, topic: bytes) -> None:
        """Rename a topic's directory to the trash, then unlink it. The node closed its logs. No directory is fine."""
        ...

    def directory(self, topic: bytes, partition: int) -> str:
        """A partition's directory, for local readers; "" if other processes cannot open it."""
        ...

    def row(self, log: LogWriter) -> int:
        """The log's row on the board; -1 without a board."""
        ...

    def hurry(self, log: LogWriter) -> None:
        """Sync soon: a request waits for durability, though the topic has commit="written"."""
        ...

    def save_snapshot(self, log: LogWriter, seq: int, term: int, body: bytes) -> None:
        """Begin saving a snapshot; it may become durable later (see `covered`)."""
        ...

    def load_snapshot(self, log: LogWriter, below: int | None = None) -> Snapshot | None:
        """The newest snapshot that verifies, or None.

        Of a seq lower than `below`, when that is given: the others turned out to be of no use, and are removed.
        Raises Corrupt when what is left does not reach the log.
        """
        ...

    def runs(self, log: LogWriter) -> Runs:
        """Large parts of snapshots. One that is saved is durable before a snapshot that is saved later."""
        ...

    def finals(self, log: LogWriter) -> FinalFiles:
        """The finals of this log's queue groups."""
        ...

    def covered(self, log: LogWriter) -> int:
        """The seq of the second-newest durable snapshot. 0 when there are not two."""
        ...

    def removable_to(self, log: LogWriter) -> int:
        """The last batch that durable snapshots cover well enough for its segment to go; 0 when there is none."""
        ...

    def retire(self, log: LogWriter, segments: Sequence[SegmentRef]) -> None:
        """Unlink segments below the committed first offset, now or soon, then call `log.forget(segments)`.

        Those that do not go now, as there are many, or as others are on their way, are asked for again.
        """
        ...


class NodeStanding(Struct, frozen=True):
    """What a node of a cluster is now, as far as it knows; the default is that of a broker that is alone."""

    role: str = ""
    """leader or follower."""
    term: int = 0
    leader: tuple[str, ...] = ()
    """Where clients connect to the leader of the term."""


LEADS_NOT_YET = (
    "this node does not lead yet: what stands in its logs is not committed, or nodes of a new cluster have not met "
    "(penstock cluster status shows which); ask again"
)
"""Of a node that knows no leader."""


class NodeConfig(Struct, frozen=True, kw_only=True):
    """Identity and limits of one node. Times in seconds, sizes in bytes."""

    node: str = ""  # ids of DATA/node.json, as hex
    cluster: str = ""
    server: str = "penstock"  # name and version, for people
    boot_id: str = ""  # with `data` and `board`: what a reader on the same machine needs
    data: str = ""
    board: str = ""
    endpoint: str = ""  # named in every partition; "" means the one the client asked on
    advertise: tuple[str, ...] = ()  # where clients connect to
    oldest_version: int = 1
    newest_version: int = 1

    max_frame_bytes: int = 64 << 20  # a produced batch, and the second frame of any request
    max_record_bytes: int = 16 << 20  # default of topics; one record
    max_partitions: int = 1024  # per topic
    max_topics: int = 100_000
    members: int = 1  # of the cluster; with several, what is committed is on a majority of disks
    max_producers: int = 1000  # remembered per partition; the longest silent unnamed one goes first
    max_schedules: int = 1000  # per partition
    max_barriers: int = 100_000  # per partition
    max_barrier_bytes: int = 256 << 20  # per partition, with the results that they know; new ones use the first half
    max_stages: int = 10_000  # per partition, neither committed nor dropped yet
    max_transactions: int = 100_000  # names remembered in each of the 4 partitions that have decisions
    max_dedup_keys: int = 1_000_000  # remembered per partition within the window of its topic
    max_sessions: int = 10_000
    chunk_bytes: int = 256 << 10  # most that is read at once for one delivery; at least one batch

    producer_expiry_s: float = 7 * 86400.0  # an unnamed producer silent for so long is forgotten
    stage_expiry_s: float = 3600.0  # a stage that got nothing for so long, and was not committed, is dropped
    transaction_expiry_s: float = 90 * 86400.0  # which epoch of a transaction was decided is forgotten so long after
    group_expiry_s: float = 30 * 86400.0  # a group silent for so long is deleted, one of a queue with its last record
    grace_s: float = 0.0  # at most, after an outage: see logs/grace.py; 0 where clients live in this process
    handover_s: float = 10.0  # how long a revoked partition may be kept before it is taken
    session_timeout_min_s: float = 1.0
    session_timeout_max_s: float = 300.0
    wait_max_s: float = 60.0  # longest wait of a Fetch
    clock_jump_s: float = (
        3600.0  # a wall clock that jumps ahead by more is followed once it has stayed there (clock.py)
    )
    housekeeping_s: float = 5.0  # between two passes of retention and expiry
    snapshot_batches: int = 20_000  # a partition is snapshot after so many batches
    snapshot_bytes: int = 256 << 20  # or so many bytes

    @property
    def limits(self) -> dict[str, int]:
        """What a leader accepts, by name: nodes of one cluster should have the same."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name.startswith("max_")}
