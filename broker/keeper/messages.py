"""Messages between broker and keeper over their socket pair, one class each.

Idea: the socket carries jobs and registrations, which are rare; the watermarks are words on the board, and the two
eventfds only say "look". A packet is a msgpack list of messages, so that a thousand partitions are registered with a
few packets.

Contract: both ends are the same build of penstock (the supervisor starts both), so there are no versions. `row` names
a partition by its row on the board. Must not know: how anything is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

PACKET_BYTES = 64 << 10
"""Most that is put into one packet, one message aside."""

NAMED_MOST = 64
"""Ids that the keeper hears of, for one round."""


class LinkMessage(Struct, array_like=True, frozen=True, gc=False):
    """Base of all messages."""


class Attach(LinkMessage, tag=1, frozen=True):
    """First of all: the board to watch and the directory whose file system `syncfs` is for."""

    board: str
    data: str


class Register(LinkMessage, tag=2, frozen=True):
    """A segment that will be written to. Oldest first for each row; the keeper opens it at once."""

    row: int
    log_id: bytes
    directory: str
    base_seq: int
    generation: int


class Forget(LinkMessage, tag=3, frozen=True):
    """The row's log is closed. Answered by Forgotten; the row may be given away only then."""

    row: int


class PrepareSpare(LinkMessage, tag=4, frozen=True):
    """Make a file of `size_bytes`, allocated and synced, for the row's next segment. Answered by Spared."""

    row: int
    directory: str
    size_bytes: int


class Unlink(LinkMessage, tag=5, frozen=True):
    """Remove retired files of one directory. Answered by Unlinked with the same number."""

    job: int
    directory: str
    names: list[str]


class RemoveTree(LinkMessage, tag=6, frozen=True):
    """Remove a directory that was renamed to the trash. No answer."""

    path: str


class FinishSnapshot(LinkMessage, tag=7, frozen=True):
    """Sync these runs and a prepared snapshot, and give it its name. Answered by SnapshotSaved."""

    job: int
    directory: str
    seq: int
    log_id: bytes
    runs: list[int] = []


class Stop(LinkMessage, tag=8, frozen=True):
    """Sync everything written, then end."""


class Named(LinkMessage, tag=9, frozen=True):
    """Requests wait for the round that the next ring begins, by ids for the log. No answer."""

    ids: list[str]


class Started(LinkMessage, tag=20, frozen=True):
    """The keeper watches the board."""

    pid: int


class Forgotten(LinkMessage, tag=21, frozen=True):
    row: int


class Spared(LinkMessage, tag=22, frozen=True):
    row: int
    path: str


class Unlinked(LinkMessage, tag=23, frozen=True):
    job: int


class SnapshotSaved(LinkMessage, tag=24, frozen=True):
    """`covered` is the seq of the second-newest whole snapshot."""

    job: int
    covered: int


class Refused(LinkMessage, tag=25, frozen=True):
    """A registration (of `row`) or a job (`row` -1; `job` 0 when it has no number) that failed, and why."""

    row: int
    job: int
    message: str


class Rotten(LinkMessage, tag=26, frozen=True):
    """A closed segment of the log in `directory` does not verify. Records are good again from `next_offset` on."""

    directory: str
    message: str
    next_offset: int | None


Command = Attach | Register | Forget | PrepareSpare | Unlink | RemoveTree | FinishSnapshot | Stop | Named
Report = Started | Forgotten | Spared | Unlinked | SnapshotSaved | Refused | Rotten

_ENCODER = msgspec.msgpack.Encoder()
_COMMANDS = msgspec.msgpack.Decoder(list[Command])
_REPORTS = msgspec.msgpack.Decoder(list[Report])


def packets(messages: Iterable[LinkMessage]) -> list[bytes]:
    """The messages in order, in as few packets as fit."""
    found: list[bytes] = []
    group: list[bytes] = []
    size = 0
    for message in messages:
        encoded = _ENCODER.encode(message)
        if group and size + len(encoded) > PACKET_BYTES:
            found.append(_packet(group))
            group, size = [], 0
        group.append(encoded)
        size += len(encoded)
    return [*found, _packet(group)] if group else found


def _packet(group: Sequence[bytes]) -> bytes:
    return _ENCODER.encode([msgspec.Raw(encoded) for encoded in group])


def decode_commands(packet: bytes) -> list[Command]:
    """The broker's messages of one packet."""
    return _COMMANDS.decode(packet)


def decode_reports(packet: bytes) -> list[Report]:
    """The keeper's messages of one packet."""
    return _REPORTS.decode(packet)
