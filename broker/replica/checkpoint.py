"""The checkpoint: the place in every log at one entry of the order, from which opening walks.

Idea: a checkpoint is the order log's own snapshot (storage/snapshots.py), so two are kept, and one is whole or not
there. It holds the end of each log, the configuration, and how far the replica knew the order to be committed and
had acknowledged it.

Contract: the entry is committed and durable here, and every log is synced to its place, before a checkpoint is saved.
A log that ends before its place afterwards is damaged, not torn. The layout is ORDER.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ...storage import snapshots
from ...storage.errors import Corrupt, InvalidBatch, NewerFormat
from ..raft.messages import ConfState
from .directories import DirectoryTable, Members

if TYPE_CHECKING:
    from ...storage.files import Files

VERSION = 1


class LogPlace(Struct, array_like=True, frozen=True):
    """The last batch of one log; seq and checksum are 0 for one without batches."""

    log_id: bytes
    seq: int
    checksum: int


class Checkpoint(Struct, array_like=True, frozen=True, kw_only=True):
    """The body of a checkpoint, as a msgpack array of these fields in this order."""

    version: int = VERSION
    cluster: bytes = b""
    entry: int
    term: int
    checksum: int = 0  # of the entry's header
    commit: int  # the highest entry known to be committed when this was written
    acked: int  # the durable prefix when this was written
    configuration: bytes = b""  # the membership at `entry`, as the Raft core encodes it
    logs: list[LogPlace]
    directories: DirectoryTable = DirectoryTable()

    def members(self) -> Members:
        """The members at the entry."""
        return Members(msgspec.msgpack.decode(self.configuration, type=ConfState), self.directories)

    def places(self) -> dict[bytes, tuple[int, int]]:
        """Seq and checksum of each log's last batch, by log id."""
        return {each.log_id: (each.seq, each.checksum) for each in self.logs}


def save(files: Files, directory: str, log_id: bytes, checkpoint: Checkpoint) -> int:
    """Write a checkpoint durably beside the order log.

    Returns:
        The entry of the older one that is kept, 0 without one: what is below it is not needed any more to open.

    Raises StorageFull, OSError.
    """
    body = msgspec.msgpack.encode(checkpoint)
    return snapshots.save(files, directory, checkpoint.entry, checkpoint.term, body, log_id)


def load(files: Files, directory: str, log_id: bytes, *, first: int, last: int) -> Checkpoint | None:
    """The newest whole checkpoint; None when the walk must start at the first entry.

    `first` and `last` are the entries that the order log has. Raises Corrupt when no checkpoint reaches `first`, or the
    newest is beyond `last`: the log has lost what was durable. Raises NewerFormat.
    """
    found = snapshots.load_newest(files, directory, log_id, first_seq=first)
    if found is None:
        return None
    if found.seq > last:
        raise Corrupt(f"{directory} ends at entry {last}, before its checkpoint of entry {found.seq}", path=directory)
    return decode(found.body, directory)


def decode(body: bytes, path: str) -> Checkpoint:
    """The checkpoint of a snapshot's body. Raises Corrupt, NewerFormat."""
    try:
        version = msgspec.msgpack.decode(body, type=list)[0]
        if version > VERSION:
            raise NewerFormat(f"the checkpoint in {path} has version {version}, this penstock reads {VERSION}; upgrade")
        return msgspec.msgpack.decode(body, type=Checkpoint)
    except (msgspec.DecodeError, IndexError, TypeError) as error:
        raise Corrupt(f"the checkpoint in {path} cannot be read: {error}", path=path) from error


def received(body: bytes) -> Checkpoint:
    """The checkpoint of a manifest, which another member sent: none is no damage here. Raises InvalidBatch."""
    try:
        return decode(body, "a manifest")
    except (Corrupt, NewerFormat) as error:
        raise InvalidBatch(error.message) from error
