"""The bytes of every layout stay the same, so that files written before stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.storage import finals, layout, runs, snapshots
from penstock.storage.batch import Batch, Kind, parse
from penstock.storage.board import Level, Row
from penstock.storage.record import records
from support import golden
from xxhash import xxh3_64_intdigest

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize("name", golden.SAMPLES)
def test_the_code_makes_the_golden_bytes(name: str) -> None:
    assert golden.dump(golden.SAMPLES[name]()) == (GOLDEN / f"{name}.hex").read_text()


def test_every_golden_file_has_its_sample() -> None:
    assert {path.stem for path in GOLDEN.glob("*.hex")} == set(golden.SAMPLES)


def kept(name: str) -> bytes:
    return golden.undump((GOLDEN / f"{name}.hex").read_text())


def kept_batch(name: str) -> Batch:
    batch = parse(kept(name))
    batch.check()
    return batch


def test_the_golden_batches_are_read_as_they_were_meant() -> None:
    example = kept_batch("batch_v1_example")
    assert (example.seq, example.base_offset, example.term, example.end_offset) == (7, 40, 2, 42)
    assert (example.producer_id, example.producer_epoch, example.first_sequence) == (10, 1, 20)
    assert (example.values(), example.keys()) == ([b"one", b"three"], [b"k", None])
    full = kept_batch("batch_v1_everything")
    assert full.values() == [b"", b"value", b"x" * 70]
    assert full.keys() == [None, b"", b"key"]
    assert full.headers() == [{}, {}, {"a": b"1", "b": b""}]
    assert full.event_times().tolist() == [0, -1, golden.TIME]
    assert full.effects() == b"\x93\x01\x02\x03"
    assert kept_batch("batch_v1_lz4").values() == [b"again " * 20] * 2
    assert (kept_batch("batch_v1_state").kind, kept_batch("batch_v1_state").effects()) == (Kind.STATE, b"\x91\xc0")
    assert (kept_batch("batch_v1_raft").kind, kept_batch("batch_v1_raft").record_count) == (Kind.RAFT, 0)


def test_the_golden_batches_of_queues_are_read_as_they_were_meant() -> None:
    nulls = kept_batch("batch_v1_nulls")
    assert (nulls.values(), nulls.keys()) == ([None, b"", b"x"], [b"k", b"k", None])
    lists = records(kept_batch("batch_v1_header_lists"))
    assert [dict(record.headers) for record in lists] == [{"a": b"1"}, {}, {"a": b"2"}, {}]
    assert [record.header_list for record in lists] == [
        [("a", b"1")], [], [("a", b"1"), ("b", None), ("a", b"2")], [("b", None)],
    ]  # fmt: skip
    queued = kept_batch("batch_v1_queued")
    assert queued.values() == [b"a", b"bb"]
    assert queued.priorities().tolist() == [0, 255]
    assert queued.not_before().tolist() == [golden.TIME, 0]
    assert queued.dedup() == [b"", b"order-17"]
    batch = kept_batch("batch_v1_kept")
    assert (batch.kind, batch.seq, batch.base_offset) == (Kind.KEPT, 8, 90)
    found = [(each.offset, each.value, each.key, each.timestamp) for each in records(batch)]
    assert found == [(40, b"a", b"k", golden.TIME), (42, b"c", b"l", golden.TIME)]
    assert batch.priorities().tolist() == [1, 3]


def test_the_golden_pages_are_read_as_they_were_meant() -> None:
    header = layout.decode_segment_header(kept("segment_header_v1"))
    assert header is not None
    assert (header.generation, header.base_seq, header.void_from, header.base_offset) == (3, 8, 8, 42)
    page = bytes(layout.MARK_POSITIONS[0]) + kept("mark_v1")
    mark = layout.decode_mark(page, 0)
    assert mark is not None
    assert (mark.generation, mark.seq, mark.end_position, mark.end_offset, mark.clean) == (3, 9, 4608, 44, True)
    assert layout.decode_index_header(kept("index_header_v1")) == (golden.LOG_ID, 3, 8)
    row = layout.IndexRow(*layout.INDEX_ROW_STRUCT.unpack(kept("index_row_v1")))
    assert (row.base_offset, row.end_offset, row.position, row.end_position) == (42, 44, 4096, 4416)
    run = kept("run_v1")
    assert runs.decode(run, 5, xxh3_64_intdigest(b"part"), golden.LOG_ID) == b"part"
    assert snapshots.decode(kept("snapshot_v1")) == snapshots.Snapshot(9, 2, b"state", golden.LOG_ID)
    assert finals.decode_header(kept("finals_v1")) == finals.Header(golden.LOG_ID, bytes(range(16, 32)), 9)
    words = memoryview(kept("final_words_v1")).cast("q")
    assert [finals.final_of(each) for each in words] == golden.FINALS
    assert layout.decode_promise(kept("promise_v1")) == layout.Promise(golden.LOG_ID, 3, bytes(range(16, 32)))


def test_the_golden_board_is_read_as_it_was_meant() -> None:
    words = memoryview(kept("board_v1")).cast("Q")
    row = Row(words[512:544])
    assert (row.committed(), layout.split(row.written), row.first) == ((3, 8), (3, 9), 40)
    assert (row.level, row.log_id) == (Level.DURABLE, int.from_bytes(golden.LOG_ID, "little"))
