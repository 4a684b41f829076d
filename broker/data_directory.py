"""The data directory as a whole: whose it is, who has it open, and the board that belongs to it.

    DATA/node.json   format, node id, cluster id: written once
    DATA/lock        held while a broker (or its keeper) lives; says who and where
    DATA/board       the name of the board
    DATA/doubts      logs whose syncs failed or never answered, until they are open again (doubts.py)

Idea: opening is a fixed order: look at the format and the identity, lock, and only then change anything. The
keeper inherits the lock's open file, so the directory stays locked until both processes are gone.

Contract: a directory that is not penstock's, is newer, or is another node's is refused and left as it was.
Must not know: topics, logs.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ..storage import layout
from ..storage.board import Board, is_alive
from ..storage.errors import BoardUnavailable, ForeignDirectory, NewerFormat, StorageFull

if TYPE_CHECKING:
    from ..storage.files import Files

FORMAT = 1
METADATA = "metadata"
TOPICS = "topics"
TRASH = "trash"
DOUBTS = "doubts"
_KNOWN = frozenset(
    {
        layout.NODE,
        f"{layout.NODE}.new",
        "board.shared",
        layout.LOCK,
        layout.BOARD,
        layout.PROMISES,
        METADATA,
        TOPICS,
        TRASH,
        DOUBTS,
    }
)


class Identity(Struct, frozen=True):
    """What DATA/node.json says."""

    format: int
    node: str
    cluster: str


def identify(files: Files, data: str, *, fresh_ids: tuple[str, str], node: str = "") -> Identity:
    """The identity of a data directory, made when it is new.

    Args:
        fresh_ids: node and cluster id (hex) for a new directory.
        node: the node id it must have; "" takes any.

    Raises:
        ForeignDirectory: something else's directory, or another node's. NewerFormat: a newer penstock's.
    """
    path = f"{data}/{layout.NODE}"
    if not files.exists(path):
        _refuse_strangers(files, data)
        files.rewrite(f"{data}/{layout.NODE}", msgspec.json.encode(Identity(FORMAT, *fresh_ids)))
    found = _decode(files.read(path), path)
    if node and found.node != node:
        raise ForeignDirectory(f"{data} belongs to node {found.node}, not {node}: give each node its own directory")
    return found


def _decode(text: bytes, path: str) -> Identity:
    try:
        found = msgspec.json.decode(text, type=dict)
        version = int(found["format"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise ForeignDirectory(f"{path} cannot be read as a penstock node file: {error}") from error
    if version > FORMAT:
        raise NewerFormat(f"{path} has format {version}, this penstock reads up to {FORMAT}: upgrade penstock")
    try:
        return msgspec.convert(found, Identity)
    except msgspec.ValidationError as error:
        raise ForeignDirectory(f"{path} cannot be read as a penstock node file: {error}") from error


def _refuse_strangers(files: Files, data: str) -> None:
    """A directory without identity may hold what a first start left half-way, and nothing else."""
    strange = [name for name in files.listdir(data) if name not in _KNOWN and not name.startswith("broker.sock")]
    logs = [name for name in (METADATA, TOPICS) if files.listdir(f"{data}/{name}")]
    if strange:
        raise ForeignDirectory(f"{data} is no penstock data directory (it holds {min(strange)}): choose an empty one")
    if logs:
        raise ForeignDirectory(f"{data} has logs but no {layout.NODE}: restore it, it says which node they belong to")


def open_board(files: Files, data: str, *, rows: int, slots: int) -> Board:
    """The board for a broker that has locked the directory: the one before, set up anew, if it is nobody's now.

    A copied directory names the board of the original: a board whose owner lives is left alone.

    Raises:
        StorageFull: no space for it; the message says how much is needed.
    """
    previous = previous_board(files, data)
    name = None
    if previous is not None:
        owner = previous.owner_pid
        name = None if owner != os.getpid() and is_alive(owner) else previous.name
        previous.close()
    if name is not None and name.startswith(data):
        board = Board.create(rows, slots=slots, file=name)
    else:
        fresh = name or f"/penstock-{uuid.uuid4().hex[:16]}"
        board = Board.create(rows, slots=slots, name=fresh, file=f"{data}/board.shared")
    _note_board(files, f"{data}/{layout.BOARD}", board.name.encode())
    return board


def _note_board(files: Files, path: str, name: bytes) -> None:
    """Write down where the board is. A disk that is full has room for that where the last one stands."""
    before = files.read(path) if files.exists(path) else b""
    if before == name:
        return
    try:
        files.rewrite(path, name)
    except StorageFull:
        if len(before) != len(name):
            raise
        file = files.open(path, write=True)
        try:
            file.pwritev([name], 0)
            file.sync()
        finally:
            file.close()


def previous_board(files: Files, data: str) -> Board | None:
    """The board that the last broker of this directory left; None when there is none to learn from."""
    path = f"{data}/{layout.BOARD}"
    if not files.exists(path):
        return None
    try:
        return Board.attach(files.read(path).decode())
    except (BoardUnavailable, NewerFormat, UnicodeDecodeError):
        # Gone with a boot, retired, or not ours: there is nothing to learn from it.
        return None
