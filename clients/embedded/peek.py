"""Reads a data directory without its lock: its topics, and readers of their logs.

Idea: the metadata log is replayed read-only. Every log is read up to its committed word on the board while a broker
lives, or up to its verified end when none does. This blocks no writer and writes nothing, so it works beside a running
broker, and on a copy without one.

Contract: answers are current; the catalogue is read again for every question. Damage of one log is reported for that
partition and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...broker.engine.logs.catalogue import CatalogueState, TopicEntry
from ...broker.engine.tables.entry import entry_of
from ...broker.engine.tables.names import check_not_reserved, is_reserved
from ...broker.errors import UnknownTopic
from ...storage import layout, snapshots
from ...storage.board import Board, Row, boot_id, is_alive
from ...storage.data_directory import metadata_path, partition_path, previous_board
from ...storage.errors import Error
from ...storage.files import Files
from ...storage.layout import log_number, word
from ...storage.opening import check_readable, find_end
from ...storage.reader import LogReader
from ...transport.messages import EARLIEST, LATEST, Partition, Topic
from .peeked_first import PeekedFirst


class Peek:
    """See the module."""

    def __init__(self, data: str, files: Files) -> None:
        self.data = data
        self.files = files
        self._board: Board | None = None
        self._epoch = 0
        self._readers: dict[str, LogReader] = {}
        self._whole: dict[str, LogReader] = {}  # from the first segment on, which tell of the catalogue and of firsts
        self._firsts: dict[str, PeekedFirst] = {}

    # -- topics -----------------------------------------------------------------------------------------

    def topics(self, names: list[str]) -> list[Topic]:
        """All topics but penstock's own, or those named. Raises UnknownTopic."""
        entries = {entry.name: entry for entry in self._catalogue().topics.values()}
        for name in names:
            if name not in entries:
                raise UnknownTopic(
                    f"topic {name!r} does not exist in {self.data}: create it first, or list what there is"
                )
        chosen = names or sorted(name for name in entries if not is_reserved(name))
        return [self._describe(entries[name]) for name in chosen]

    def topic(self, id_: bytes) -> Topic:
        """A topic by id. Raises UnknownTopic, InvalidTopic."""
        entry = self._catalogue().topics.get(id_)
        if entry is None:
            raise UnknownTopic(f"topic id {id_.hex()} does not exist in {self.data}: it was deleted")
        check_not_reserved(entry.name)
        return self._describe(entry)

    def partitions(self) -> dict[str, str]:
        """The directory of every partition, with its topic, penstock's own too. Raises what reading the log raises."""
        return {
            partition_path(self.data, entry.topic, number): entry.name
            for entry in self._catalogue().topics.values()
            for number in range(entry.partitions)
        }

    def _catalogue(self) -> CatalogueState:
        path = metadata_path(self.files, self.data)
        if path is None:
            return CatalogueState()
        check_readable(path, find_end(self.files, path))
        reader = self._whole_reader(path)
        first_seq = reader.names[0].base_seq
        snapshot = snapshots.load_newest(self.files, path, first_seq=first_seq, last_seq=reader.limit())
        state = CatalogueState() if snapshot is None else CatalogueState.decode(snapshot.body)
        cursor = reader.cursor_after(state.seq)
        while (chunk := cursor.next()) is not None:
            for batch in chunk.batches:
                entry = entry_of(batch)
                state.apply(entry, entry.place.time_us)
                state.batch_applied(entry.place)
        return state

    def _describe(self, entry: TopicEntry) -> Topic:
        partitions = [self._describe_partition(entry, number) for number in range(entry.partitions)]
        return Topic(entry.name, entry.topic, dict(entry.settings), partitions)

    def _describe_partition(self, entry: TopicEntry, number: int) -> Partition:
        directory = partition_path(self.data, entry.topic, number)
        try:
            reader = self.reader(directory)
            first, end = reader.first_offset, reader.end_offset
            size = sum(reader.segment(name).size for name in reader.names)
            state = "poisoned" if self.files.exists(f"{directory}/{layout.POISON}") else "ok"
            return Partition(
                number, "", self._log_id(directory), 0, first, end, size, len(reader.names), directory, -1, state
            )
        except (Error, OSError) as error:
            why = f"partition {number} of topic {entry.name} cannot be opened: {error}"
            return Partition(number, "", b"", 0, 0, 0, 0, 0, directory, -1, "damaged", why)

    # -- logs -------------------------------------------------------------------------------------------

    def reader(self, directory: str, *, mapped: bool = False) -> LogReader:
        """A reader of one log, up to what is committed. Shared unless `mapped`; those belong to the caller."""
        reader = None if mapped else self._readers.get(directory)
        if reader is None:
            limit, first = self._limit_of(directory), self._first_of(directory)
            reader = LogReader(directory, self.files, mapped=mapped, limit=limit, first=first)
            if not mapped:
                self._readers[directory] = reader
        return reader

    def _first_of(self, directory: str) -> PeekedFirst:
        """Where a log begins: where its first segment does, or later."""
        found = self._firsts.get(directory)
        if found is None:
            found = self._firsts[directory] = PeekedFirst(self._whole_reader(directory), self.files)
        return found

    def _whole_reader(self, directory: str) -> LogReader:
        found = self._whole.get(directory)
        if found is None:
            found = self._whole[directory] = LogReader(directory, self.files, limit=self._limit_of(directory))
        return found

    def find(self, reader: LogReader, time_us: int) -> int:
        """The first offset whose append time is >= `time_us`, or an end."""
        if time_us == EARLIEST:
            return reader.first_offset
        return reader.end_offset if time_us == LATEST else reader.offset_at(time_us)

    def term_before(self, reader: LogReader, offset: int) -> int:
        """The term of the record before `offset`; 0 when there is none."""
        return reader.term_at(offset - 1) if offset > reader.first_offset else 0

    def _log_id(self, directory: str) -> bytes:
        return find_end(self.files, directory).log_id

    def _limit_of(self, directory: str) -> Callable[[], int | None]:
        """The committed word of a log, None without a running broker."""
        number = log_number(self._log_id(directory))
        known: list[Row] = []

        def limit() -> int | None:
            board = self._live_board()
            if board is None:
                known.clear()
                return None
            found = known[0].committed_of(number) if known else None
            if found is None:
                known[:] = _rows_of(board, number)
                found = known[0].committed_of(number) if known else None
            return None if found is None else word(*found)

        return limit

    def _live_board(self) -> Board | None:
        board = self._board
        if board is not None and board.epoch == self._epoch and is_alive(board.owner_pid):
            return board
        self._drop_board()
        board = previous_board(self.files, self.data)
        if board is None:
            return None  # the log is read as far as it verifies
        self._board, self._epoch = board, board.epoch
        if board.boot_id != boot_id() or not is_alive(board.owner_pid):
            self._drop_board()
        return self._board

    def _drop_board(self) -> None:
        board, self._board = self._board, None
        if board is not None:
            board.close()

    def close(self) -> None:
        """Close all logs."""
        for known in (self._readers, self._whole):
            for reader in known.values():
                reader.close()
            known.clear()
        self._firsts.clear()
        self._drop_board()


def _rows_of(board: Board, number: int) -> list[Row]:
    low, high = board.words("log_low"), board.words("log_high")
    at = np.flatnonzero((low == np.uint64(number & 0xFFFFFFFFFFFFFFFF)) & (high == np.uint64(number >> 64)))
    return [board.row(int(index)) for index in at[:1]]
