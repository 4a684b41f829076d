"""The data directory as a whole: its identity, its layout, and its board.

    DATA/node.json   format, node id, cluster id: written once
    DATA/lock        held while a broker (or its keeper) lives; names the holder
    DATA/board       the name of the board
    DATA/promises    the journal of promises
    DATA/doubts      logs whose last sync a killed keeper never answered
    DATA/metadata/   the log of the catalogue
    DATA/order/      of a member of a cluster: the order log
    DATA/topics/     <topic id>/<partition>/, one log each
    DATA/staged/     of a member of a cluster: what it has fetched of a state that it lacks
    DATA/aside/      of a member of a cluster: logs that no entry of the order names, or that were damaged
    DATA/damaged     of a member of a cluster: what it has lost, until that is fetched
    DATA/scrubbed    up to where closed segments were read last
    DATA/trash/      deleted topics until they are removed

Idea: opening is a fixed order: look at the format and the identity, lock, and only then change anything. Brokers and
clients that open a directory themselves ask here, so they agree on which directories are penstock's.

Contract: a directory that is not penstock's, is newer, or is another node's is refused and left as it was.
Must not know: what topics and logs hold.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from . import layout, shared_block
from .board import Board, is_alive
from .errors import BoardUnavailable, Corrupt, ForeignDirectory, NewerFormat, StorageFull, is_damage

if TYPE_CHECKING:
    from .files import Files

FORMAT = 1
MEMBER_FORMAT = 2
"""Of a directory of a cluster's member: versions that know of no clusters refuse it."""

METADATA = "metadata"
TOPICS = "topics"
TRASH = "trash"
ORDER = "order"
ASIDE = "aside"
DAMAGED = "damaged"
STAGED = "staged"
DOUBTS = "doubts"
SCRUBBED = "scrubbed"
BOARD_FILE = "board.shared"
_TOPIC, _NUMBER = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9]+")
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_BEGUN = frozenset({layout.LOCK, f"{layout.NODE}.new"})
_OURS = frozenset(
    {
        layout.BOARD,
        BOARD_FILE,
        layout.PROMISES,
        METADATA,
        ORDER,
        STAGED,
        ASIDE,
        TOPICS,
        TRASH,
        DOUBTS,
        DAMAGED,
        SCRUBBED,
    }
)
WAY_OUT = (
    "restore it from a copy; for a node of a cluster, start it with an empty directory and run penstock cluster replace"
)


class Identity(Struct, frozen=True, omit_defaults=True):
    """The content of DATA/node.json. The fields from `shard` on are those of a member of a cluster."""

    format: int
    node: str
    cluster: str
    shard: str = ""  # the name of the cluster
    number: int = 0  # of this node in it
    members: list[int] = []  # the numbers of all nodes that the cluster began with
    begun: bool = False  # the logs of the shard were there once: where they are not, they are lost
    peers: dict[str, str] = {}  # by number: the node id of each peer's directory, since it was first heard of


def identify(files: Files, data: str, *, node: str = "") -> Identity | None:
    """The identity of a data directory; None when it is new, or not there. Changes nothing.

    Args:
        node: the node id it must have; "" takes any.

    Raises:
        ForeignDirectory: something else's directory, or another node's. NewerFormat: a newer penstock's.
    """
    path = f"{data}/{layout.NODE}"
    if not files.exists(path):
        _refuse_strangers(files, data)
        if node:
            raise ForeignDirectory(f"{data} is empty and should belong to node {node}: is its disk mounted there?")
        return None
    try:
        text = files.read(path)
    except OSError as error:
        raise ForeignDirectory(
            f"{path} says whose directory this is and cannot be read: {error.strerror}; {WAY_OUT}"
        ) from error
    found = _decode(text, path)
    if node and found.node != node:
        raise ForeignDirectory(f"{data} belongs to node {found.node}, not {node}: give each node its own directory")
    return found


def check_alone(found: Identity | None, data: str) -> None:
    """Raise ForeignDirectory for the directory of a member: only its cluster may write there."""
    if found is not None and found.shard:
        raise ForeignDirectory(
            f"{data} is of node {found.number} of cluster {found.shard}, and only that may open it: start it with "
            f"penstock serve --cluster {found.shard} --node {found.number} and its --peer options"
        )


def of_its_own(identity: Identity) -> Identity:
    """The identity of a node that is in no cluster any more, with the ids that its logs know."""
    return Identity(FORMAT, identity.node, identity.cluster)


def claim(files: Files, data: str) -> Identity:
    """Make a new directory, which the caller has locked, a node's of its own, durably."""
    made = Identity(FORMAT, files.new_id().hex(), files.new_id().hex())
    note_identity(files, data, made)
    return made


def note_identity(files: Files, data: str, identity: Identity) -> None:
    """Write DATA/node.json, durably."""
    files.rewrite(f"{data}/{layout.NODE}", msgspec.json.encode(identity))


def _decode(text: bytes, path: str) -> Identity:
    """Check the version first: only then are the other fields known."""
    try:
        found = msgspec.json.decode(text, type=dict)
        check_format(path, int(found["format"]), MEMBER_FORMAT)
        return msgspec.convert(found, Identity)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = "it has no format" if isinstance(error, KeyError) else error
        raise ForeignDirectory(f"{path} cannot be read as a penstock node file: {reason}; {WAY_OUT}") from error


def check_format(path: str, found: int, known: int) -> None:
    """Raise NewerFormat for a file of a later format than the newest that is known."""
    if found > known:
        raise NewerFormat(f"{path} has format {found}, this penstock reads up to {known}: upgrade penstock")


def _refuse_strangers(files: Files, data: str) -> None:
    """A directory without identity may hold what a first start makes before it has one, and nothing else."""
    try:
        listed = files.listdir(data)
    except OSError as error:
        raise ForeignDirectory(f"{data} cannot be a data directory: {error.strerror}") from error
    found = sorted(name for name in listed if name not in _BEGUN and not name.startswith("broker.sock"))
    if not found:
        return
    if _OURS.issuperset(found):
        raise ForeignDirectory(
            f"{data} has no {layout.NODE}, which says whose {', '.join(found)} are: restore it from a copy, "
            "or choose an empty directory"
        )
    strange = min(name for name in found if name not in _OURS)
    raise ForeignDirectory(f"{data} is no penstock data directory (it holds {strange}): choose an empty one")


def check_kinds(files: Files, data: str) -> None:
    """Raise Corrupt where a node needs a file and something else stands there, or a directory and a file does."""
    kinds = [(name, files.is_file, "file", " if it was there") for name in (layout.LOCK, layout.PROMISES, DOUBTS)]
    kinds += [(name, files.is_directory, "directory", "") for name in (METADATA, TOPICS)]
    for name, is_kind, kind, condition in kinds:
        path = f"{data}/{name}"
        if files.exists(path) and not is_kind(path):
            raise Corrupt(
                f"{path} is no {kind}: move it away, and restore the {kind} from a copy{condition}", path=path
            )


def metadata_path(files: Files, data: str) -> str | None:
    """The path of the catalogue's log; None if there is none yet.

    Raises Corrupt when it is gone though there are topics, which must not be lost.
    """
    path = f"{data}/{METADATA}"
    if layout.live_segments(files.listdir(path))[0]:
        return path
    if topics_of(files, data):
        raise Corrupt(f"{path} is gone though {data}/{TOPICS} has topics: restore it from a copy", path=path)
    return None


def partition_path(data: str, topic: bytes, partition: int) -> str:
    """The path of a partition's log."""
    return f"{data}/{TOPICS}/{topic.hex()}/{partition}"


def topics_of(files: Files, data: str) -> list[bytes]:
    """The topics that have a directory. What has another name beside those is not penstock's, and left alone."""
    return [bytes.fromhex(name) for name in files.listdir(f"{data}/{TOPICS}") if _TOPIC.fullmatch(name)]


def partition_paths(files: Files, data: str, topic: bytes) -> list[str]:
    """The paths of the logs in the directory of a topic. What has another name beside those is left alone, too."""
    above = f"{data}/{TOPICS}/{topic.hex()}"
    return [f"{above}/{name}" for name in files.listdir(above) if _NUMBER.fullmatch(name)]


def stored_logs(files: Files, data: str) -> Iterator[str]:
    """The paths of the catalogue's log and of those in the directories of topics."""
    yield f"{data}/{METADATA}"
    for topic in topics_of(files, data):
        yield from partition_paths(files, data, topic)


def log_path(data: str, topic: bytes, partition: int) -> str:
    """The path of a partition's log, or of the catalogue's, which is of no topic."""
    return partition_path(data, topic, partition) if topic else f"{data}/{METADATA}"


def open_board(files: Files, data: str, *, rows: int, slots: int, is_owned: Callable[[int], bool] = is_alive) -> Board:
    """The board for a node that has locked the directory: the one before, set up anew, if its owner is gone.

    Args:
        is_owned: whether the process of that id may still use a board. A copied directory names the board of the
            original: a board that is owned is left alone.

    Raises:
        StorageFull: no space for it; the message says how much is needed.
    """
    previous = previous_board(files, data)
    name = None
    if previous is not None:
        name = None if is_owned(previous.owner_pid) else previous.name
        previous.close()
    if name is not None and name.startswith(data):
        board = Board.create(rows, slots=slots, file=name)
    else:
        fresh = name or f"/penstock-{files.new_id().hex()[:16]}"
        board = Board.create(rows, slots=slots, name=fresh, file=f"{data}/{BOARD_FILE}")
    try:
        _note_board(files, f"{data}/{layout.BOARD}", board.name.encode())
    except BaseException:
        board.retire()
        board.close()
        raise
    return board


def _note_board(files: Files, path: str, name: bytes) -> None:
    """Write down where the board is. A disk that is full has room for that where the last one stands."""
    before = _noted(files, path)
    if before == name:
        return
    try:
        files.rewrite(path, name)
    except StorageFull:
        if len(before) != len(name):
            raise
        with files.open(path, write=True) as file:
            file.pwritev([name], 0)
            file.sync()


def previous_board(files: Files, data: str) -> Board | None:
    """The board that the last node of this directory uses or left; None when there is none to learn from.

    Raises BoardUnavailable, OSError where this process is short of what it takes to look.
    """
    path = f"{data}/{layout.BOARD}"
    name = _noted(files, path)
    if not name:
        return None
    try:
        found = Board.attach(name.decode())
        # Any user may take the name once it is free: after a boot, or while no node runs.
        return found if shared_block.owner_of(found.name) in (os.geteuid(), _owner_of_file(path)) else None
    except (BoardUnavailable, NewerFormat, UnicodeDecodeError) as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _SHORT:
            raise  # it is there, and may say which syncs never answered
        # Gone with a boot, retired, not ours, or being set up: there is nothing to learn from it.
        return None


def is_board_unread(files: Files, data: str) -> bool:
    """Whether it was written down where the board is, and that cannot be read any more. Raises OSError."""
    path = f"{data}/{layout.BOARD}"
    return files.exists(path) and not _noted(files, path)


def _owner_of_file(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def _noted(files: Files, path: str) -> bytes:
    """The name of a board that was written down; empty when it is not to be had, for a fresh one does as well."""
    try:
        return files.read(path)
    except OSError as error:
        if not is_damage(error):
            raise
        return b""
