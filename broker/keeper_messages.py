"""What broker and keeper tell each other over their socket pair, one class each.

Idea: the socket carries errands and registrations, which are rare; the watermarks themselves are words on
the board, and the two eventfds only say "look". A packet is a msgpack list of messages, so that a
thousand partitions are registered with a few packets.

Contract: both ends are the same build of penstock (the supervisor starts both), so there are no versions.
`row` names a partition by its row on the board. Must not know: how anything is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

PACKET_BYTES = 64 << 10
"""Most that is put into one packet, one message aside."""


class LinkMessage(Struct, array_like=True, frozen=True, gc=False):
    """Base of all messages."""


class Attach(LinkMessage, tag=1):
    """First of all: the board to watch and the directory whose file system `syncfs` is for."""

    board: str
    data: str


class Register(LinkMessage, tag=2):
    """A segment that will be written to. Oldest first for each row; the keeper opens it at once."""

    row: int
    log_id: bytes
    directory: str
    base_seq: int
    generation: int


class Forget(LinkMessage, tag=3):
    """The row's log is closed. Answered by Forgotten; the row may be given away only then."""

    row: int


class PrepareSpare(LinkMessage, tag=4):
    """Make a file of `size_bytes`, allocated and synced, for the row's next segment. Answered by Spared."""

    row: int
    directory: str
    size_bytes: int


class Unlink(LinkMessage, tag=5):
    """Remove retired files of one directory. Answered by Unlinked with the same number."""

    errand: int
    directory: str
    names: list[str]


class RemoveTree(LinkMessage, tag=6):
    """Remove a directory that was renamed to the trash. No answer."""

    path: str


class FinishSnapshot(LinkMessage, tag=7):
    """Sync a prepared snapshot and give it its name. Answered by SnapshotSaved."""

    errand: int
    directory: str
    seq: int
    log_id: bytes


class Stop(LinkMessage, tag=8):
    """Sync what is written, then end."""


class Started(LinkMessage, tag=20):
    """The keeper watches the board."""

    pid: int


class Forgotten(LinkMessage, tag=21):
    row: int


class Spared(LinkMessage, tag=22):
    row: int
    path: str


class Unlinked(LinkMessage, tag=23):
    errand: int


class SnapshotSaved(LinkMessage, tag=24):
    """`covered` is the seq of the second-newest whole snapshot."""

    errand: int
    covered: int


class Refused(LinkMessage, tag=25):
    """A registration (`errand` 0) or an errand that failed; the message says why."""

    row: int
    errand: int
    message: str


Command = Attach | Register | Forget | PrepareSpare | Unlink | RemoveTree | FinishSnapshot | Stop
Report = Started | Forgotten | Spared | Unlinked | SnapshotSaved | Refused

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
    """What the broker said in one packet."""
    return _COMMANDS.decode(packet)


def decode_reports(packet: bytes) -> list[Report]:
    """What the keeper said in one packet."""
    return _REPORTS.decode(packet)
