"""Messages of lending: a producer on the broker's machine appends to a log by itself (docs/decisions/091-*.md).

Normative text: PROTOCOL.md, section 8.12. Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from .message import Count, Int64, Message, TopicId, Unsigned


class Lend(Message, tag=140, frozen=True):
    """Asks for a partition to append to as one producer, none of whose batches is on its way. Answered by Lent.

    A grant that this producer had over the same connection ends.
    """

    request: Count
    topic: TopicId
    partition: Count
    producer_id: Unsigned
    epoch: Count
    next_sequence: Count
    process: Count = 0  # number of the producer's process, for people


class Lent(Message, tag=141, frozen=True):
    """The grant: what storage/FORMAT.md says an appender needs, and the end of the log that it goes on from."""

    request: Count
    number: Unsigned  # of the grant
    incarnation: Unsigned  # in DATA/lock
    row: Count
    log_id: bytes
    directory: str  # of the log
    base_seq: Count  # and generation, of the segment
    generation: Count
    seq: Count  # of the last batch, and so the others to `term`
    position: Count
    offset: Count
    checksum: Unsigned
    last_us: Int64
    term: Int64
    segment_bytes: Count
    max_batch_bytes: Count
    max_record_bytes: Count  # of the topic
    time_us: Int64  # at `monotonic_s` of the machine's monotonic clock
    monotonic_s: float
    files: list[tuple[Count, Count]]  # (device, inode) of segment, index and DATA/lock


class Moved(Message, tag=142, frozen=True):
    """One-way: something was appended to a lent log while the broker slept under this number of its board."""

    asleep: Unsigned


class GiveBack(Message, tag=143, frozen=True):
    """One-way: a grant of this connection is not needed any more."""

    topic: TopicId
    partition: Count
    number: Unsigned
