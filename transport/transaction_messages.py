"""Messages of transactions: decide about staged batches, drop them, ask what was decided.

A *stage* is what one producer has put into one partition under one producer id with batches of kind STAGED, which
readers skip: Produce takes them as it takes records. A *transaction* is a name and a rising epoch; to commit an epoch
is to publish all of its stages, or none. Normative text: PROTOCOL.md, section 8.9.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .message import Count, Int64, Message, TopicId, Unsigned

STAGES_MAX = 24_000
"""Stages of one request: so many always fit into its frame."""


class Stage(Struct, array_like=True, frozen=True, gc=False):
    """All that producer id `stage` has staged in `partition` of `topic`: `records` of them, numbered from 0."""

    topic: TopicId
    partition: Count
    stage: Unsigned  # the producer id of its batches
    records: Count


class CommitTransaction(Message, tag=100, frozen=True):
    """Publish these stages, all or none, unless this epoch of the transaction or a later one is decided already."""

    request: Count
    transaction: str
    epoch: Count
    stages: Annotated[list[Stage], Meta(max_length=STAGES_MAX)]


class TransactionCommitted(Message, tag=101, frozen=True):
    """Every record of the epoch can be read. `repeated`: others decided; stages of this one are not used."""

    request: Count
    epoch: Count  # the last one decided
    repeated: bool


class DropStages(Message, tag=102, frozen=True):
    """Forget staged batches that will not be committed. Answered by Done; what is not there is no error."""

    request: Count
    stages: Annotated[list[Stage], Meta(max_length=STAGES_MAX)]


class AskTransaction(Message, tag=103, frozen=True):
    """Asks which epoch of a transaction was decided last."""

    request: Count
    transaction: str


class TransactionState(Message, tag=104, frozen=True):
    """`epoch` is -1 when none is known. `finished`: all of its records can be read."""

    request: Count
    epoch: Int64
    finished: bool
    time_us: Int64  # when it was decided
