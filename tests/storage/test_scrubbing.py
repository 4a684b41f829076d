"""Scrubbing reads every byte of closed segments, tells what does not verify, and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.storage import accepted, scrubbing
from penstock.storage.batch import parse
from penstock.storage.data_directory import SCRUBBED
from penstock.storage.errors import StorageFull
from penstock.storage.files import Files
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.scrubbing import Rot, ScrubbedPiece, closed_bytes, log_paths, scrub
from support.logs import Built, build, content, put

DATA = "/data"
SHAPE = ((2, 2), (3, 3), (1,))


def directory() -> tuple[MemoryFiles, list[Built]]:
    """A data directory with three logs of three segments each."""
    files = MemoryFiles()
    paths = [f"{DATA}/metadata", f"{DATA}/topics/aa/0", f"{DATA}/topics/aa/1"]
    logs = [
        build(files, path, shape=SHAPE, log_id=bytes([number]) * 16, value_bytes=50)
        for number, path in enumerate(paths, 1)
    ]
    files.mkdir(f"{DATA}/order")
    return files, logs


def flip(built: Built, segment: int, position: int) -> None:
    path = built.segment_path(segment)
    data = bytearray(content(built.files, path))
    data[position] ^= 1
    put(built.files, path, bytes(data))


def found(files: MemoryFiles) -> list[Rot]:
    return [each for each in scrub(files, DATA) if isinstance(each, Rot)]


def batch_bytes(built: Built, *segments: int) -> int:
    names = [built.names[each] for each in segments]
    return sum(len(built.batches[seq]) for seq, (name, _) in built.places.items() if name in names)


def test_all_closed_segments_of_all_logs_are_read():
    files, logs = directory()
    assert log_paths(files, DATA) == sorted([*(log.directory for log in logs), f"{DATA}/order"])
    read = list(scrub(files, DATA))
    assert sum(each.size for each in read if isinstance(each, ScrubbedPiece)) == sum(
        batch_bytes(log, 0, 1) for log in logs
    )
    assert len(read) == 6, "one piece a segment"
    size = sum(len(content(files, logs[0].segment_path(each))) for each in (0, 1))
    assert closed_bytes(files, logs[0].directory) == size
    assert closed_bytes(files, f"{DATA}/order") == 0


def test_a_piece_is_bounded(monkeypatch: pytest.MonkeyPatch):
    files, logs = directory()
    monkeypatch.setattr(scrubbing, "PIECE_BYTES", len(logs[0].batches[1]))
    sizes = [each.size for each in scrub(files, DATA) if isinstance(each, ScrubbedPiece) and each.size]
    assert sizes == [len(log.batches[seq]) for log in logs for seq in (1, 2, 3, 4)]


@pytest.mark.parametrize("segment", [0, 1])
def test_every_byte_counts_and_the_log_is_named(segment: int):
    files, logs = directory()
    path = logs[1].segment_path(segment)
    whole = content(files, path)
    for seq, (name, start) in logs[1].places.items():
        if name != logs[1].names[segment]:
            continue
        data = logs[1].batches[seq]
        value = data.index(logs[1].values[2 * seq - 2 if seq < 3 else 3 * seq - 5])
        for position in (*range(start, start + parse(data).header_bytes, 7), *range(start + value, start + value + 50)):
            flip(logs[1], segment, position)
            rots = found(files)
            assert [(rot.path, rot.bad.file) for rot in rots] == [(logs[1].directory, path)], position
            put(files, path, whole)
    assert found(files) == []


def test_the_segment_that_is_written_to_is_left_to_its_writer():
    files, logs = directory()
    flip(logs[0], 2, DATA_START + 5)
    assert found(files) == []


def test_a_segment_that_is_gone_meanwhile_is_nothing_to_tell():
    files, logs = directory()
    flip(logs[0], 0, DATA_START + 5)
    steps = scrub(files, DATA)
    files.unlink(logs[0].segment_path(0))
    assert [each for each in steps if isinstance(each, Rot) and each.path == logs[0].directory] == []


def test_damage_that_retention_takes_while_it_is_found_is_not_told(monkeypatch: pytest.MonkeyPatch):
    files, logs = directory()
    flip(logs[0], 0, DATA_START + 5)
    looks = iter([None, logs[0].segment_path(0)])
    look = scrubbing.look

    def looking(*given):
        if given[1] == logs[0].directory and (gone := next(looks)) is not None:
            files.unlink(gone)
        return look(*given)

    monkeypatch.setattr(scrubbing, "look", looking)
    assert found(files) == []


def test_a_loss_that_was_accepted_is_not_told_again():
    files, logs = directory()
    flip(logs[0], 0, DATA_START + 5)
    (rot,) = found(files)
    bad = rot.bad
    loss = accepted.Accepted(bad.file, bad.position, bad.first_seq, bad.next_seq, bad.offset, bad.next_offset, "", 0)
    accepted.write_accepted(files, logs[0].directory, [loss])
    assert found(files) == []


def test_a_pass_goes_on_behind_the_last_segment_that_was_read():
    files, logs = directory()
    steps = scrub(files, DATA)
    for _ in range(4):
        next(steps)
    steps.close()
    rest = list(scrub(files, DATA))
    assert sum(each.size for each in rest) == batch_bytes(logs[1], 1) + sum(batch_bytes(logs[2], 0, 1) for _ in "x")
    assert len(list(scrub(files, DATA))) == 6, "and the next one begins anew"


def test_what_does_not_verify_is_found_again_by_a_pass_that_goes_on():
    files, logs = directory()
    flip(logs[1], 0, DATA_START + 5)
    steps = scrub(files, DATA)
    for _ in range(4):
        next(steps)
    steps.close()
    assert len(found(files)) == 1


def test_a_note_that_cannot_be_read_begins_a_pass_anew():
    files, _ = directory()
    for note in (b"", b"{", b"[]", b'{"log": 3}'):
        put(files, f"{DATA}/{SCRUBBED}", note)
        assert len(list(scrub(files, DATA))) == 6


def test_a_log_that_cannot_be_read_does_not_end_the_pass(monkeypatch: pytest.MonkeyPatch):
    files, logs = directory()
    look = scrubbing.look

    def looking(*given):
        if given[1] == logs[0].directory:
            raise OSError("gone")
        return look(*given)

    monkeypatch.setattr(scrubbing, "look", looking)
    assert len(list(scrub(files, DATA))) == 4


def test_a_full_disk_does_not_end_a_pass_and_the_next_one_begins_anew(monkeypatch: pytest.MonkeyPatch):
    files, _ = directory()
    rewritten, is_full = files.rewrite, False

    def rewrite(path: str, content: bytes) -> None:
        if is_full:
            raise StorageFull(f"cannot write to {path}.new: the disk is full")
        rewritten(path, content)

    monkeypatch.setattr(files, "rewrite", rewrite)
    steps = scrub(files, DATA)
    next(steps), next(steps)
    is_full = True
    assert len(list(steps)) == 4, "all that follows"
    assert len(list(scrub(files, DATA))) == 6, "not from the place that was noted before the disk was full"


def test_what_stands_between_the_topics_and_is_none_has_no_logs(tmp_path: Path):
    """Files with other names are left alone (FORMAT.md, section 2), and no other node stumbles over them."""
    (tmp_path / "topics" / "aa" / "0").mkdir(parents=True)
    (tmp_path / "topics" / "notes.txt").write_bytes(b"mine")
    names = ("metadata", "order", "topics/aa/0")
    assert log_paths(Files(), str(tmp_path)) == [f"{tmp_path}/{name}" for name in names]


@pytest.mark.parametrize(("call", "path", "error", "read"), [
    ("listdir", f"{DATA}/topics", PermissionError("not allowed"), 2),
    ("listdir", f"{DATA}/topics/aa", StorageFull("too many open files"), 2),
    ("read", f"{DATA}/{SCRUBBED}", StorageFull("too many open files"), 6),
    ("unlink", f"{DATA}/{SCRUBBED}", PermissionError("not allowed"), 6),
])  # fmt: skip
def test_what_cannot_be_done_now_does_not_end_the_pass(
    monkeypatch: pytest.MonkeyPatch, call: str, path: str, error: Exception, read: int
):
    files, _ = directory()
    put(files, f"{DATA}/{SCRUBBED}", b"{}")
    done = getattr(files, call)

    def refuse(at: str) -> object:
        if at == path:
            raise error
        return done(at)

    monkeypatch.setattr(files, call, refuse)
    assert len(list(scrub(files, DATA))) == read
