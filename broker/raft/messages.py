"""What nodes tell each other, and what a node keeps: entries, messages, promises, configurations. Pure.

Idea: plain structs that msgspec can send as arrays. New fields go to the end and have defaults. The data of an entry
is any bytes-like object; the core hands it on, counts its length, and never reads or copies it.

It must not know sockets, files or the content of entries.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

# msgspec decodes to a view of the received frame; what is encoded may be either.
if TYPE_CHECKING:
    Data = bytes | memoryview
else:
    Data = memoryview

NONE = 0  # the id that no node has
ENTRY_OVERHEAD = 32  # bytes an entry counts beside its data, wherever bytes are limited


class EntryKind(IntEnum):
    """What an entry is for."""

    NORMAL = 0
    CHANGE = 1  # of the configuration


class Entry(msgspec.Struct, array_like=True):
    """One place of the log. An entry the core made itself (a leader's first, or the end of a joint configuration) has
    empty data until the surroundings give it some; messages of the same Ready share the object."""

    index: int
    term: int
    data: Data = b""
    kind: EntryKind = EntryKind.NORMAL


class Promise(msgspec.Struct, array_like=True, frozen=True):
    """What a node must not forget: its term, its vote in that term, and the commit it knows."""

    term: int = 0
    vote: int = NONE
    commit: int = 0


class ConfState(msgspec.Struct, array_like=True, frozen=True):
    """A configuration as it is stored. While it is joint, `outgoing` has the voters of the configuration before."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()  # voters that become learners when the joint configuration ends
    auto_leave: bool = False


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """A state at an entry. The bytes of the state travel elsewhere."""

    index: int
    term: int
    configuration: ConfState


class Operation(IntEnum):
    """What one step of a change does to a node."""

    VOTER = 0
    LEARNER = 1
    REMOVE = 2


class Transition(IntEnum):
    """How a change is made. AUTO is joint, and left by itself, when the change has several steps."""

    AUTO = 0
    IMPLICIT = 1  # joint, left by itself
    EXPLICIT = 2  # joint, left by an empty change


class ChangeStep(msgspec.Struct, array_like=True, frozen=True):
    """One node's part of a change."""

    operation: Operation
    node: int


class Change(msgspec.Struct, array_like=True, frozen=True):
    """A change of the configuration. Without steps it ends a joint configuration. `context` is of the surroundings."""

    steps: tuple[ChangeStep, ...] = ()
    transition: Transition = Transition.AUTO
    context: bytes = b""


class Kind(IntEnum):
    """What a message is. STORED and APPLIED never leave the node: its surroundings hand them back to it. SHIP and PIECE
    are of the surroundings alone: the core never sees them."""

    APPEND = 1
    APPEND_ACK = 2
    HEARTBEAT = 3
    HEARTBEAT_ACK = 4
    PRE_VOTE = 5
    PRE_VOTE_ACK = 6
    VOTE = 7
    VOTE_ACK = 8
    SNAPSHOT = 9
    CAMPAIGN_NOW = 10  # a leader hands over
    READ = 11
    READ_ACK = 12
    STORED = 13
    APPLIED = 14
    SHIP = 15  # what a member asks for that catches up
    PIECE = 16  # and what it gets


class Message(msgspec.Struct, array_like=True):
    """One message. Which fields count depends on the kind:

    APPEND           index and log_term of the entry before `entries`, commit
    APPEND_ACK       index up to which the log agrees; with reject: index as asked, hint and log_term of where to try
    HEARTBEAT, _ACK  commit; round of reads that it confirms
    VOTE, PRE_VOTE   index and log_term of the candidate's last entry; force when a leader handed over
    SNAPSHOT         snapshot
    READ, READ_ACK   context of the reader; index that it must have applied
    STORED           index and log_term of the last entry of a write, and its snapshot
    APPLIED          entries that are applied
    SHIP, PIECE      context: a message of a catch-up
    HEARTBEAT, _ACK  context: digests; force: damage to close for; both of the surroundings alone
    HEARTBEAT_ACK    room: free bytes of the sender's disk, of the surroundings alone; -1 where that is unknown
    *_ACK to leaders  clock_us: the sender's wall clock, of the surroundings alone; 0 where that is unknown
    """

    kind: Kind
    to: int
    sender: int = NONE
    term: int = 0
    index: int = 0
    log_term: int = 0
    commit: int = 0
    entries: list[Entry] = []
    reject: bool = False
    hint: int = 0
    round: int = 0
    force: bool = False
    snapshot: Snapshot | None = None
    context: bytes = b""
    room: int = -1
    clock_us: int = 0


def total_bytes(entries: list[Entry]) -> int:
    """What entries count against limits, in bytes."""
    return sum([len(entry.data) for entry in entries]) + ENTRY_OVERHEAD * len(entries)
