"""Every message of the wire, one class each: the contract between client and broker.

A message is the first frame: a msgpack array [tag, field, ...]. Messages that carry records have a
second frame: batches, back to back, as `storage/FORMAT.md` lays them out. Normative text: PROTOCOL.md.

`request` is chosen by the asker, above 0, and comes back in the answer; 0 marks what nobody asked for.
A `topic` is always the 16-byte topic id (a recreated topic is another topic), a `name` its name.
Times are int64 microseconds UTC, offsets count records, sequences count a producer's records.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Message(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=False):
    """Base of all messages. New fields go at the end, with a default, and old peers skip them."""


# -- any time -------------------------------------------------------------------------------------


class Failure(Message, tag=0):
    """Answer to a request that could not be done."""

    request: int
    code: str
    message: str
    retry: bool = False
    where: str = ""  # the endpoint to ask instead, when the broker knows one


class Done(Message, tag=1):
    """Answer to a request whose only result is that it is committed."""

    request: int


class Hello(Message, tag=2):
    """First message of a connection; sent again whenever the peer may have forgotten us."""

    request: int
    oldest_version: int
    newest_version: int
    client: str  # library and version, for people


class Welcome(Message, tag=3):
    """The version that will be spoken, the limits, and what a local reader needs."""

    request: int
    version: int
    server: str
    node: str
    cluster: str
    incarnation: int  # random, new at every start of the broker: sessions of another one are gone
    max_frame_bytes: int
    max_record_bytes: int
    boot_id: str  # equal to ours when on the same machine
    data: str  # data directory of the broker
    board: str  # name of the board, see FORMAT.md


class Ping(Message, tag=4):
    """Are you there? Answered by Done; also keeps a session alive when it names one."""

    request: int
    session: int = 0


# -- topics ---------------------------------------------------------------------------------------


class Partition(Struct, array_like=True, frozen=True, gc=False):
    """One partition as it stands. `end` is the first offset not yet committed."""

    partition: int
    endpoint: str
    log_id: bytes
    term: int
    first: int
    end: int
    size_bytes: int
    segments: int
    directory: str
    row: int  # row on the board, -1 without one
    state: str = "ok"  # ok | poisoned | damaged


class Topic(Struct, array_like=True, frozen=True, gc=False):
    """One topic: identity, settings by name, partitions in order."""

    name: str
    topic: bytes
    settings: dict[str, Any]
    partitions: list[Partition]


class CreateTopic(Message, tag=10):
    """Answered by Topics with one entry."""

    request: int
    name: str
    partitions: int
    settings: dict[str, Any]


class AlterTopic(Message, tag=11):
    """Change settings, or grow to `partitions` (0: leave). Answered by Topics with one entry."""

    request: int
    topic: bytes
    settings: dict[str, Any]
    partitions: int = 0


class DeleteTopic(Message, tag=12):
    """Answered by Done."""

    request: int
    topic: bytes


class ListTopics(Message, tag=13):
    """All topics, or those named. Answered by Topics; an unknown name is a Failure."""

    request: int
    names: list[str]


class Topics(Message, tag=14):
    request: int
    topics: list[Topic]


class FindOffsets(Message, tag=15):
    """Per partition, the first offset whose append time is >= `time_us`; EARLIEST or LATEST for the ends."""

    request: int
    topic: bytes
    time_us: int


class Offsets(Message, tag=16):
    """[offset, term] by partition, in order. The term is that of the batch before the offset (0: none)."""

    request: int
    offsets: list[tuple[int, int]]


EARLIEST = -1
LATEST = -2


# -- producing ------------------------------------------------------------------------------------


class OpenProducer(Message, tag=20):
    """Claim a named producer on one partition: fences the one before. Answered by ProducerOpened."""

    request: int
    topic: bytes
    partition: int
    name: str


class ProducerOpened(Message, tag=21):
    request: int
    producer_id: int
    epoch: int
    next_sequence: int


class Produce(Message, tag=22):
    """One batch in the second frame, with producer id, epoch and first sequence in its header.

    Answered by Produced once the batch stands at the topic's commit level.
    """

    request: int
    topic: bytes
    partition: int


class Produced(Message, tag=23):
    request: int
    offset: int  # of the first record
    term: int
    time_us: int


# -- reading --------------------------------------------------------------------------------------


class Fetch(Message, tag=30):
    """Batches from `offset` on, at most `max_bytes` (but at least one batch), waiting up to `wait_ms`.

    `term` is that of the record before `offset`, -1 when unknown; another one is answered `diverged`.
    """

    request: int
    topic: bytes
    partition: int
    offset: int
    term: int
    max_bytes: int
    wait_ms: int


class Fetched(Message, tag=31):
    """Second frame: whole batches. The first may start before, the kinds other than records are skipped."""

    request: int
    next_offset: int  # where to go on
    first: int
    end: int


class Assignment(Struct, array_like=True, frozen=True, gc=False):
    """A partition a session may read, from `offset` on, under `epoch` (new at each hand-over and seek)."""

    partition: int
    epoch: int
    offset: int
    term: int


class Join(Message, tag=32):
    """Open a session on one topic: as member of `group`, or alone over all partitions when it is "".

    `delivery`: "push" (own endpoint), "control" (over this socket) or "mapped" (the member reads by itself).
    `start`: EARLIEST, LATEST or a time, for partitions without a cursor; `positions` overrides it without a group.
    Answered by Joined.
    """

    request: int
    topic: bytes
    group: str
    member: str  # unique within the group; joining again under it ends the older session
    delivery: str
    start: int
    positions: list[tuple[int, int]]
    session_timeout_ms: int
    credit_bytes: int
    credit_records: int


class Joined(Message, tag=33):
    request: int
    session: int
    endpoint: str  # connect a PULL here; "" when batches come over this socket or not at all
    semaphore: str  # mapped: posted when the end moves while `slot` on the board says waiting
    slot: int
    assignments: list[Assignment]


class Assigned(Message, tag=34):
    """Unasked: partitions given to a session, and partitions it should release soon."""

    session: int
    assignments: list[Assignment]
    revoked: list[int]


class Release(Message, tag=35):
    """The session is done with these partitions. No answer."""

    session: int
    partitions: list[int]


class Credit(Message, tag=36):
    """What may be sent to the session since it began, in total. No answer; counts as a sign of life."""

    session: int
    total_bytes: int
    total_records: int


class Deliver(Message, tag=37):
    """Second frame: whole batches of one partition, sent once per number, in order, under credit."""

    session: int
    number: int  # 1, 2, 3 ... within the session
    partition: int
    epoch: int
    offset: int  # first record meant for the reader
    next_offset: int
    end: int  # committed end when sent, for lag
    records: int  # charged to the credit


class SeekTo(Message, tag=38):
    """Move a session's partition; answered by Assigned with the new epoch, then Done."""

    request: int
    session: int
    partition: int
    offset: int


class Leave(Message, tag=39):
    """End a session. Answered by Done."""

    request: int
    session: int


class Evicted(Message, tag=40):
    """Unasked: the session is over (expired, replaced, topic deleted). Join again."""

    session: int
    code: str
    message: str


# -- groups ---------------------------------------------------------------------------------------


class Position(Struct, array_like=True, frozen=True, gc=False):
    """A cursor: the next offset to read, and the assignment epoch it was read under (0 outside a session)."""

    partition: int
    offset: int
    epoch: int


class Commit(Message, tag=50):
    """Move cursors. Answered by Done when durable; by `fenced` when a partition has a new owner."""

    request: int
    session: int  # 0: by an administrator, refused while the group has members
    topic: bytes
    group: str
    positions: list[Position]


class ListGroups(Message, tag=51):
    """Groups of one topic, or of all when the id is empty. Answered by Groups."""

    request: int
    topic: bytes = b""


class GroupPartition(Struct, array_like=True, frozen=True, gc=False):
    """`cursor` is -1 before the first commit; `lag` is then counted from the first offset."""

    partition: int
    cursor: int
    end: int
    lag: int
    member: str
    epoch: int


class Group(Struct, array_like=True, frozen=True, gc=False):
    topic: bytes
    topic_name: str
    group: str
    members: list[tuple[str, int]]  # member, milliseconds since last seen
    partitions: list[GroupPartition]


class Groups(Message, tag=52):
    request: int
    groups: list[Group]


class ResetGroup(Message, tag=53):
    """Move all cursors of a group without members: to EARLIEST, LATEST, a time, or `positions` if any."""

    request: int
    topic: bytes
    group: str
    time_us: int
    positions: list[tuple[int, int]]


class DeleteGroup(Message, tag=54):
    """Forget a group without members. Answered by Done."""

    request: int
    topic: bytes
    group: str


# -- numbers --------------------------------------------------------------------------------------


class Stats(Message, tag=60):
    """Answered by StatsReply."""

    request: int


class StatsReply(Message, tag=61):
    request: int
    values: dict[str, Any]


Request = (
    Hello | Ping | CreateTopic | AlterTopic | DeleteTopic | ListTopics | FindOffsets | OpenProducer | Produce
    | Fetch | Join | Release | Credit | SeekTo | Leave | Commit | ListGroups | ResetGroup | DeleteGroup | Stats
)  # fmt: skip
"""What a client sends."""

Answer = (
    Failure | Done | Welcome | Topics | Offsets | ProducerOpened | Produced | Fetched | Joined | Assigned
    | Deliver | Evicted | Groups | StatsReply
)  # fmt: skip
"""What a broker sends."""
