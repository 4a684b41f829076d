"""Adopts the directory of a `penstock.Log` as a topic of a data directory: its files move there, and none is copied.

    1. lock the log, and check it         DIRECTORY/lock
    2. make the topic, which is empty     DATA/topics/<id>/0
    3. promise the terms of the log       DATA/promises
    4. say where the log begins           DIRECTORY/snapshot-...     if it does not begin with its first record
    5. say where the log stood            DIRECTORY/adopted
    6. rename the empty log               DATA/topics/<id>/0.aside
    7. rename DIRECTORY                   DATA/topics/<id>/0
    8. drop the empty log                 DATA/trash/...
    9. remove what only a log alone has   board, first, promises
    10. open it as a broker does          DATA/topics/<id>/0/snapshot-...     the second one
    11. unlock it                         DATA/topics/<id>/0/lock

Idea: a log's id of a partition follows from its place, and one that is random belongs wherever it is found (decision
56). So a log is a partition as soon as it stands in the place of one.

Contract: the log is whole in its directory up to the seventh step, and in the partition's from then on. Whatever ends
this before the last step, the same call goes on with it, and after the last step it changes nothing; one with another
directory is refused. A topic that is there is taken for the one that it left if nothing was ever written to it. What
is refused is left as it was. The lock moves with the log, so of two calls one goes on and the other is refused. Must
not know brokers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Unpack

from ..broker.engine.tables.state import PartitionState
from ..broker.errors import TopicExists
from ..storage import layout, lock, snapshots
from ..storage.data_directory import TRASH, partition_path
from ..storage.errors import Corrupt, Error, ForeignDirectory, InvalidArgument, InvalidTopic, StorageError
from ..storage.files import Files
from ..storage.first import read_first
from ..storage.log import LogOptions, LogWriter
from ..storage.log_ids import own_id
from ..storage.opening import find_end
from ..storage.order import Sole
from ..storage.promises import Promises
from ..storage.verify import Report, verify
from .arguments.settings import TopicOptions
from .client import Client, connect
from .descriptions import Topic

_APART = (
    "{} and {} are on different file systems, or reached by different mounts of one, between which files are copied: "
    "move the log to that of the data directory first (mv), or read it and send its records"
)

_NO_LOG = "there is no log in {}: give the directory of a penstock.Log"

ALONE = (layout.BOARD, layout.FIRST, layout.PROMISES)
"""What a log has in its directory that stands alone, beside its lock, which says that there may be others."""


def adopt(
    data: str, name: str, directory: str, *, files: Files | None = None, **settings: Unpack[TopicOptions]
) -> Topic:
    """Make the log in `directory` the only partition of a new topic `name` of the data directory `data`.

    Args:
        settings: of the topic, as of `create_topic`.

    Raises:
        AlreadyOpen: a process has the log or the data directory open, a broker for example.
        InvalidTopic: there is no log, and the topic did not take it over. ForeignDirectory: it is a broker's already,
        or one of the two is not penstock's.
        InvalidArgument: they are on different file systems, or `directory` is a symbolic link. Corrupt: the log is
        damaged. NewerFormat.
        TopicExists: a topic of this name is there, and something was written to it, or it cannot be read.
        InvalidSettings: it is there with other settings. StorageError: the directory cannot be moved.
    """
    files, data, source = files or Files(), os.path.realpath(data), os.path.realpath(directory)
    if os.path.islink(directory.rstrip("/")):
        raise InvalidArgument(f"{directory} is a symbolic link, which would lead nowhere then: give {source}")
    with ExitStack() as stack:
        found = _checked(files, data, source, stack)
        if found is None:
            place, topic = _moved_already(files, data, source, name, stack)
        else:
            place, topic = _moved(files, data, source, name, found, settings)
        if place is not None:
            _drop_aside(files, data, place, topic.id)
            _remove(files, place, ALONE)
        with connect(f"file://{data}") as client:
            topic = client.create_topic(name, if_missing=True)
        if place is not None:
            _remove(files, place, [layout.LOCK])
    return topic


def _checked(files: Files, data: str, source: str, stack: ExitStack) -> Report | None:
    """What the log has, which is locked from here on; None where it has moved already."""
    if not layout.live_segments(files.listdir(source))[0]:
        if files.exists(source):
            raise InvalidTopic(_NO_LOG.format(source))
        return None  # by an earlier call
    guard = lock.lock_path(source, files)
    if guard != f"{source}/{layout.LOCK}":
        raise ForeignDirectory(f"{source} is of the data directory {os.path.dirname(guard)}, and a topic there already")
    try:
        stack.callback(lock.take(guard, files).release)
    except FileNotFoundError:
        return None  # by another call, right now
    if os.path.commonpath((data, source)) in (data, source):
        raise InvalidArgument(f"{source} and {data} are one inside of the other: move one of them away first")
    if os.stat(source).st_dev != _device(data):
        raise InvalidArgument(_APART.format(source, data))
    first, end = _recovered(files, source)
    report = verify(files, source)
    if not report.ok:
        raise Corrupt(f"the log in {source} is damaged: see penstock log verify, and repair it first", path=source)
    report.first_offset, report.end_offset = first, end
    return report


def _device(path: str) -> int:
    """The file system of a directory, also of one that is yet to be made."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev


def _recovered(files: Files, source: str) -> tuple[int, int]:
    """The offsets of a log, also of one without a batch; what it has is durable then, and what was not ended is cut."""
    promises = Promises(f"{source}/{layout.PROMISES}", files)
    try:
        writer = LogWriter.open(source, files=files, order=Sole(promises), options=LogOptions())
        first, end = writer.first_offset, writer.end_offset
        writer.close()
    finally:
        promises.close()
    return first, end


def _moved_already(files: Files, data: str, source: str, name: str, stack: ExitStack) -> tuple[str | None, Topic]:
    """The place of a log that an earlier call has moved, locked from here on; None if nothing is left to do."""
    with connect(f"file://{data}") as client:
        topic = next((topic for topic in client.topics() if topic.name == name), None)
    if topic is None:
        raise InvalidTopic(_NO_LOG.format(source))
    place = partition_path(data, bytes.fromhex(topic.id), 0)
    if (stood := _noted(files, place)) not in (None, source):
        raise InvalidTopic(f"{_NO_LOG.format(source)}; topic {name} took over {stood}")
    if files.exists(f"{place}/{layout.LOCK}"):
        stack.callback(lock.take(f"{place}/{layout.LOCK}", files).release)
        return place, topic
    if find_end(files, place).log_id == own_id(place):
        raise InvalidTopic(_NO_LOG.format(source))
    return None, topic


def _moved(files: Files, data: str, source: str, name: str, found: Report, settings: TopicOptions) -> tuple[str, Topic]:
    """Move the log, and say where it is now."""
    with connect(f"file://{data}") as client:
        topic, made = _empty_topic(client, name, settings)
    place = partition_path(data, bytes.fromhex(topic.id), 0)
    if not made:
        _need_untouched(files, topic, place)
    guard = lock.take(f"{data}/{layout.LOCK}", files)
    try:
        _promise(files, data, source, bytes.fromhex(found.log_id))
        _note_beginning(files, source, found)
        files.rewrite(f"{source}/{layout.ADOPTED}", os.fsencode(source))
        refused = _move(files, source, place)
    finally:
        guard.release()
    if refused is not None:
        _remove(files, source, [layout.ADOPTED])
        if made:
            with connect(f"file://{data}") as client:
                client.delete_topic(name)
        raise _immovable(source, data, refused) from refused
    return place, topic


def _noted(files: Files, place: str) -> str | None:
    """Where the log of a partition stood alone; None if it did not."""
    try:
        return os.fsdecode(files.read(f"{place}/{layout.ADOPTED}"))
    except FileNotFoundError:
        return None


def _empty_topic(client: Client, name: str, settings: TopicOptions) -> tuple[Topic, bool]:
    """The topic, and whether it was made now. Raises InvalidSettings where it is there with others."""
    try:
        return client.create_topic(name, **settings), True
    except TopicExists:
        return client.create_topic(name, if_missing=True, **settings), False


def _need_untouched(files: Files, topic: Topic, place: str) -> None:
    """Raise TopicExists unless nothing was ever written to a topic: no record, cursor, queue group or schedule."""
    if files.exists(place):
        found = verify(files, place)
        is_left = found.ok and not found.batches and not found.end_offset and found.first_seq <= 1
    else:
        is_left = files.exists(_aside(place))  # by an earlier call
    if not is_left:
        raise TopicExists(
            f"topic {topic.name} exists, and something was written to it, or it cannot be read: choose another name, "
            "or delete it"
        )


def _aside(place: str) -> str:
    """Where the empty log stands until the other has its place."""
    return f"{place}.aside"


def _immovable(source: str, data: str, error: OSError) -> Error:
    if error.errno == errno.EXDEV:
        return InvalidArgument(_APART.format(source, data))
    return StorageError(f"{source} cannot be moved into {data}: {error.strerror}; nothing was changed")


def _promise(files: Files, data: str, source: str, log_id: bytes) -> None:
    """A term that the log was written in is not used again."""
    alone, ours = Promises(f"{source}/{layout.PROMISES}", files), Promises(f"{data}/{layout.PROMISES}", files)
    try:
        if alone.term(log_id) > ours.term(log_id):
            ours.promise(log_id, alone.term(log_id))
    finally:
        alone.close()
        ours.close()


def _note_beginning(files: Files, source: str, found: Report) -> None:
    """A partition says in its log where it begins, and in a snapshot from there on. A log alone says it in a file."""
    log_id = bytes.fromhex(found.log_id)
    first = min(max(found.first_offset, read_first(files, source, log_id)), found.end_offset)
    if first > 0 or found.first_seq > 1:
        state = PartitionState()
        state.seq, state.end, state.first = found.first_seq - 1, found.first_offset, first
        snapshots.save(files, source, state.seq, state.term, state.encode(), log_id)


def _move(files: Files, source: str, place: str) -> OSError | None:
    """Put the log in the place of the empty one; why that is impossible, and then all stands as it stood."""
    parent, aside = os.path.dirname(place), _aside(place)
    if files.exists(place):
        files.rename_dir(place, aside)
        files.sync_dir(parent)
    try:
        files.rename_dir(source, place)
    except OSError as error:
        files.rename_dir(aside, place)
        files.sync_dir(parent)
        return error
    files.sync_dir(parent)
    files.sync_dir(os.path.dirname(source))
    return None


def _remove(files: Files, place: str, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            files.unlink(f"{place}/{name}")
    files.sync_dir(place)


def _drop_aside(files: Files, data: str, place: str, topic: str) -> None:
    if files.exists(_aside(place)):
        files.mkdir(f"{data}/{TRASH}")
        files.rename_dir(_aside(place), f"{data}/{TRASH}/{topic}-{files.new_id().hex()[:8]}")
        files.sync_dir(os.path.dirname(place))
