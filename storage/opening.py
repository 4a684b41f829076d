"""Opens a log: finds its end, and makes that end durable, so a later crash recovers to the same place.

Idea: `find_end` only reads (any reader may ask); `recover` does the same for the writer, then syncs the
batches it keeps and says so in a mark, so recovery after a crash at any point finds the same end.

Contract: the decisions are recovery.py's. Nothing is ever cut in place: cutting is left to the first append,
which starts a segment of a new generation. Raises Poisoned when what is kept cannot be synced.
Must not know: the holder of the lock, the meaning of batches.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from operator import itemgetter

import msgspec

from . import evidence, layout, log_ids, poison, segment
from .cutting import begin_generation, remove_void
from .errors import Corrupt, InvalidBatch, InvalidTopic, Poisoned
from .files import File, Files
from .index import row_of
from .layout import INDEX_ROW_STRUCT, SegmentName, live_segments, makes_void
from .recovery import Begin, Damage, LogEnd, RecoveryPlan, before, begin, follows, read_batch, walk
from .scan import look, owner, stated_log, survey
from .segment import Page, Segment, SegmentRef, read_page, reference
from .unreadable import read_up_to


def way_out(path: str) -> str:
    """What to do about a log that has lost something, in words that follow its name."""
    if log_ids.is_catalogue(path):
        return "restore it from a copy; penstock log repair --accept-loss goes on without the topics that only it knew"
    return "penstock log repair --accept-loss goes on without what is lost"


class FoundLog(msgspec.Struct):
    """A log as its files show it.

    `kept`: the segments that hold verified batches above the mark, with their packed rows. `in_place`: nothing
    lies behind the end, so the next batch may be written there. `unreadable`: segments that had a header, since they
    have a name, and cannot tell any more what they held. `missing`: what was durable and leaves no place to go on.
    `unmarked`: segments, from the newest mark on, that have lost theirs.
    """

    log_id: bytes
    names: list[SegmentName]
    void: list[SegmentName]
    begun: Begin
    end: LogEnd
    end_name: SegmentName
    kept: list[tuple[SegmentName, list[bytes]]]
    damage: list[Damage]
    next_generation: int
    in_place: bool = False
    unreadable: list[str] = []
    missing: str = ""
    unmarked: list[SegmentName] = []

    @property
    def generation(self) -> int:
        """The generation of the log as it stands."""
        return self.names[-1].generation

    @property
    def is_settled(self) -> bool:
        """Whether the log ends at its mark: what a mark names was durable before, and nothing is kept behind it."""
        return self.begun.is_marked and self.end == self.begun.end and not self.damage


def find_end(files: Files, path: str, *, suspect: bool = False) -> FoundLog:
    """Look, without touching anything. Raises InvalidTopic (no log there), Corrupt (nothing to identify it by)."""
    listed = files.listdir(path)
    names, void = live_segments(listed)
    if not names:
        advice = "" if log_ids.own_id(path) is None else f": {way_out(path)}"
        raise InvalidTopic(f"there is no log in {path}{advice}")
    pages = _Pages(files, path, names)
    poisoned = poison.text(files, path)
    acknowledged = poison.acknowledged(poisoned)
    log_id = pages.log_id()
    begun = begin(pages.get, names, poisoned=acknowledged is not None, suspect=suspect or poisoned == "")
    found = FoundLog(
        log_id, names, void, begun, begun.end, names[begun.segment], [], [],
        1 + max(name.generation for name in [*names, *void]),
    )  # fmt: skip
    pages.report(found)
    if begun.how in (RecoveryPlan.VERIFY, RecoveryPlan.COPY):
        _verify(files, path, pages, found)
    elif acknowledged is not None and acknowledged > found.end.seq:
        _verify(files, path, pages, found, acknowledged)
    durable = evidence.durable_seq(files, path, listed, names, log_id, max(found.end.seq, acknowledged or 0))
    behind = range(begun.segment, len(names))
    found.unmarked = [names[place] for place in behind if evidence.marks_lost(names, place, pages.get(place))]
    if found.end.seq < durable or found.unmarked:
        _look_further(files, path, found, durable)
    found.in_place = begun.how is RecoveryPlan.CONTINUE and not found.damage
    pages.get(0)  # it says at which offset the log begins
    found.unreadable = pages.unreadable([place for place, name in enumerate(names) if makes_void(name, void)])
    return found


def _look_further(files: Files, path: str, found: FoundLog, durable: int) -> None:
    """More was durable than what follows the mark, or marks are lost: go around what is damaged."""
    segments = look(files, path)
    seen = survey(files, path, msgspec.structs.replace(segments, durable=max(durable, segments.durable)))
    bad = [each for each in seen.bad if each.next_seq is None or each.next_seq > max(each.first_seq, found.end.seq + 1)]
    if not bad:
        return
    found.damage += (Damage(each.file, each.position, each.reason, each.offset, each.next_offset) for each in bad)
    if bad[-1].next_seq is None or found.begun.how is not RecoveryPlan.VERIFY:
        first, offset = bad[0].first_seq, bad[0].offset
        found.missing = (
            f"{path} held batches from {first} (offset {offset}) on that cannot be read any more: {bad[0].reason}"
        )
        return
    found.end, found.end_name = seen.end, seen.name
    found.kept = [(name, []) for name in found.names[found.begun.segment :]]


class _Pages:
    """First pages, read when asked for. A header that does not verify is made up from the first batch."""

    def __init__(self, files: Files, path: str, names: list[SegmentName]) -> None:
        self._files = files
        self._path = path
        self._names = names
        self._read: dict[int, Page] = {}
        self._bad: list[int] = []

    def get(self, place: int) -> Page:
        if place not in self._read:
            self._read[place] = self._open(place)
        return self._read[place]

    def _open(self, place: int) -> Page:
        with self._files.open(reference(self._path, self._names[place]).path) as file:
            page = read_page(file, name=self._names[place])
            if page.header is not None:
                return page
            self._bad.append(place)
            first = next(walk(file.pread, layout.DATA_START, page.size), None)
        if first is None or first[1].seq != self._names[place].base_seq:
            return page
        header = before(first[1]).header(first[1].log_id, self._names[place].generation)
        return msgspec.structs.replace(page, header=header)

    def log_id(self) -> bytes:
        """The log's id. Where the first segment and the newest differ, pages of other logs say nothing from here on.

        Raises Corrupt.
        """
        places = range(len(self._names))
        for place in reversed(places):
            ends = [self.get(0), self.get(place)]
            known = owner(self._path, map(stated_log, ends))
            if known is None:
                continue
            if log_ids.is_misplaced(self._path, known) or any(self._names_another(page, known) for page in ends):
                known = owner(self._path, (stated_log(self.get(each)) for each in places)) or known
                self._ignore_others(known)
            self._check_place(known)
            return known
        raise Corrupt(
            f"no segment in {self._path} has a readable first page; {way_out(self._path)}",
            path=self._path,
        )

    def _names_another(self, page: Page, log_id: bytes) -> bool:
        return stated_log(page) not in (None, log_id)

    def _check_place(self, log_id: bytes) -> None:
        if log_ids.is_misplaced(self._path, log_id):
            misplaced = log_ids.misplacement(self._files, self._path, log_id)
            raise Corrupt(
                f"{self._path} does not hold its own log: {misplaced}; put both back in their places, or set it aside "
                "with penstock log repair --accept-loss",
                path=self._path,
            )

    def _ignore_others(self, log_id: bytes) -> None:
        for place, page in self._read.items():
            if self._names_another(page, log_id):
                self._read[place] = Page(None, None, page.size)
                self._bad.append(place)

    def unreadable(self, cutting: list[int]) -> list[str]:
        """Segments, of those looked at, that neither header nor mark nor first batch says anything about.

        And of those at `cutting`, which make others void, each whose own header does not say so.
        """
        unproven = {place for place in cutting if self.get(place) and place in self._bad}
        lost = (
            place
            for place, page in sorted(self._read.items())
            if page.header is None or (page.mark is None and page.size < layout.DATA_START) or place in unproven
        )
        return [reference(self._path, self._names[place]).path for place in lost]

    def report(self, found: FoundLog) -> None:
        """Add what is wrong at or below the mark with the pages that were read."""
        for place in sorted(self._bad):
            path = reference(self._path, self._names[place]).path
            found.damage.append(Damage(path, 0, "the segment's header does not verify"))
        begun = found.begun
        size = self.get(begun.segment).size
        if size < begun.end.position:
            path = reference(self._path, self._names[begun.segment]).path
            reason = f"the file ends here, its mark is at {begun.end.position}"
            found.damage.append(Damage(path, size, reason, next_offset=begun.end.offset))


def _verify(files: Files, path: str, pages: _Pages, found: FoundLog, through: int = layout.SEQ_LIMIT) -> None:
    """Follow the chain from the mark on, through as many segments as it leads, up to seq `through`."""
    place, names = found.begun.segment, found.names
    while True:
        last = names[place + 1].base_seq - 1 if place + 1 < len(names) else layout.SEQ_LIMIT
        _verify_segment(files, reference(path, names[place]), found, min(last, through))
        found.end_name = names[place]
        if found.end.seq != last or found.end.seq >= through:
            return
        place += 1
        header = pages.get(place).header
        if header is not None and (header.previous, header.base_offset) != (found.end.checksum, found.end.offset):
            return
        found.end, found.end_name = found.end.at_start(), names[place]


def _verify_segment(files: Files, ref: SegmentRef, found: FoundLog, last: int) -> None:
    rows: list[bytes] = []
    # A batch of which a column does not match its checksum is torn like everything else above the mark.
    with files.open(ref.path) as file, suppress(InvalidBatch):
        for position, batch in walk(partial(read_up_to, file), found.end.position, file.size()):
            if batch.seq > last or follows(found.end, batch, found.log_id):
                break
            batch.check()
            rows.append(INDEX_ROW_STRUCT.pack(*row_of(batch, position)))
            found.end = found.end.after(batch, position)
        else:
            read_batch(file.pread, found.end.position, file.size())  # what cannot be read is not taken for the end
    if rows:
        found.kept.append((ref.name, rows))


def check_readable(path: str, found: FoundLog) -> None:
    """Raise Corrupt when a segment that begins or ends the log says nothing any more, or nothing says how it goes on.

    Going on would give out again, to others, what its batches had, and make its file void.
    """
    if found.unreadable:
        lost = ", ".join(found.unreadable)
        raise Corrupt(f"{lost} cannot be read any more; {way_out(path)}", path=found.unreadable[0])
    if found.missing:
        raise Corrupt(f"{found.missing}; {way_out(path)}", path=found.damage[-1].path)


def recover(files: Files, path: str, *, suspect: bool) -> FoundLog:
    """Find the end and make it durable. Raises Poisoned, StorageFull, InvalidTopic, Corrupt."""
    found = find_end(files, path, suspect=suspect)
    if suspect and found.missing:  # it goes on behind damage, and a copy would have to be of one piece
        found = find_end(files, path)
    check_readable(path, found)
    _sweep(files, path, found)
    if found.begun.how is RecoveryPlan.VERIFY:
        if not found.is_settled:
            _settle(files, path, found)
    elif found.begun.how is not RecoveryPlan.CONTINUE and found.kept:
        _copy(files, path, found)
    return found


def _settle(files: Files, path: str, found: FoundLog) -> None:
    """Index and sync what was kept, then say in a mark how far that is.

    The mark is not waited for: without it, the next opening verifies the same batches again.
    """
    dirty = [name for name, _ in found.kept]
    if found.end_name not in dirty:
        dirty.append(found.end_name)
    opened: list[File] = []
    try:
        for name in dirty:
            opened.append(files.open(reference(path, name).path, write=True))
        for name, rows in filter(itemgetter(1), found.kept):
            _write_rows(files, path, name, rows, found)
        for file in opened:
            file.sync()
        if found.end_name != found.names[found.begun.segment]:  # what follows the newest mark may have no durable name
            files.sync_dir(path)
        segment.write_mark(opened[-1], found.end.mark(found.log_id, found.end_name.generation))
    except OSError as error:
        # What was acknowledged before is among it: the next opening writes all of it to fresh blocks.
        poison.write(files, path, f"sync at opening: {error}", durable=found.end.seq)
        raise Poisoned(f"{path} cannot be opened: what was written before cannot be synced ({error})") from error
    finally:
        for file in opened:
            file.close()


def _write_rows(files: Files, path: str, name: SegmentName, rows: list[bytes], found: FoundLog) -> None:
    """Rows of the verified batches: the last `len(rows)` of those that this segment holds."""
    ref = reference(path, name)
    following = [each.base_seq for each in found.names if each.base_seq > name.base_seq]
    last = min([found.end.seq, *(base - 1 for base in following)])
    with segment.open_index(files, ref, found.log_id) as file:
        file.pwritev([b"".join(rows)], layout.index_position(name.base_seq, last - len(rows) + 1))


def _copy(files: Files, path: str, found: FoundLog) -> None:
    """Write the verified batches above the mark again, byte for byte, into a segment of a new generation."""
    begun = found.begun
    buffers: list[bytes] = []
    for name, rows in found.kept:
        first, last = (INDEX_ROW_STRUCT.unpack(row) for row in (rows[0], rows[-1]))
        with files.open(reference(path, name).path) as file:
            start, end = first[1], last[1] + last[7]
            buffers.append(file.pread(end - start, start))
    size = layout.DATA_START + sum(map(len, buffers))
    made = begin_generation(files, path, found.log_id, begun.end, found.next_generation, size=size, body=buffers)
    _finish_copy(files, path, found, made, size)


def _finish_copy(files: Files, path: str, found: FoundLog, made: Segment, size: int) -> None:
    name = made.ref.name
    made.close()
    shift, rows = layout.DATA_START, []
    for _, packed in found.kept:
        for row in packed:
            fields = list(INDEX_ROW_STRUCT.unpack(row))
            fields[1], shift = shift, shift + fields[7]
            rows.append(INDEX_ROW_STRUCT.pack(*fields))
    found.names = [*(each for each in found.names if each.base_seq < name.base_seq), name]
    found.end = msgspec.structs.replace(found.end, position=size)
    found.end_name = name
    found.kept = [(name, rows)]
    found.next_generation += 1
    found.in_place = True
    _settle(files, path, found)
    remove_void(files, path)  # what was copied: it would be the log again once retention takes the copy


def _sweep(files: Files, path: str, found: FoundLog) -> None:
    """Remove what no log needs any more: void segments of earlier cuts, spares, half-written temporaries."""
    stale = [file for name in found.void for file in (name.segment_file, name.index_file)]
    present = set(files.listdir(path))
    known = {name.index_file for name in found.names}
    spares = (name for name in present if name.startswith(layout.SPARE_PREFIX))
    stale += [name for name in spares if files.is_file(f"{path}/{name}")]
    stale += [name for name in present if layout.parse_index_name(name) is not None and name not in known]
    if found.void:
        files.sync_dir(path)  # the newer generation's name must not be lost after the older one's
    for name in sorted(set(stale) & present):
        files.unlink(f"{path}/{name}")
