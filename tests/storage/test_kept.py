"""Kept records: what is taken out of batches is what was in them, and a log that holds them reads as before."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from penstock.storage import arrow
from penstock.storage.batch import Batch, Codec, ColumnId, Kind, assemble, batches, encode, parse, with_effects
from penstock.storage.dump import dump
from penstock.storage.embedded import Log
from penstock.storage.errors import BadChecksum, InvalidBatch
from penstock.storage.header import Stamp, stamp
from penstock.storage.header_list import HeaderList
from penstock.storage.kept import cut, keep, keep_all, runs_of
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.record import record_runs, records
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from support import golden

LISTS = HeaderList([("a", b"1"), ("a", None)]), HeaderList([("a", b"1"), ("b", b""), ("a", b"2")])
COLUMNS = ("keys", "headers", "event_times", "priorities", "not_before", "dedup")


def placed(batch: bytes | bytearray, base_offset: int = 40, seq: int = 7, time_us: int = 99) -> Batch:
    head = stamp(batch, Stamp(seq, base_offset, 2, b"L" * 16, time_us, 5))
    return parse(bytes(head) + bytes(batch[len(head) :]))


def made(rng: random.Random, count: int, base_offset: int, wanted: set[str], codec: Codec = Codec.NONE) -> Batch:
    """A batch of random records with the wanted columns beside the values."""
    beside = {
        "keys": [rng.choice([None, b"", b"k%d" % i]) for i in range(count)],
        "headers": [rng.choice([None, {}, {"h": bytes([i % 256])}, *LISTS]) for i in range(count)],
        "event_times": [rng.randrange(10**9) for _ in range(count)],
        "priorities": [rng.randrange(256) for _ in range(count)],
        "not_before": [rng.choice([0, rng.randrange(10**9)]) for _ in range(count)],
        "dedup": [rng.choice([b"", b"d%d" % i]) for i in range(count)],
    }
    values = [rng.choice([None, b"", rng.randbytes(1), rng.randbytes(30)]) for _ in range(count)]
    encoded = encode(values, codec=codec, **{name: beside[name] for name in wanted})
    return placed(encoded, base_offset, time_us=99 + base_offset)


def rows(batch: Batch) -> list[tuple]:
    """Everything a record has, one tuple each."""

    def column(found: object, default: object) -> list:
        return [default] * batch.record_count if found is None else list(found)  # type: ignore[call-overload]

    return list(
        zip(
            records(batch),
            [record.header_list for record in records(batch)],
            column(batch.priorities(), 0),
            column(batch.not_before(), 0),
            column(batch.dedup(), b""),
            batch.append_times().tolist(),
            strict=True,
        )
    )


def picked(rng: random.Random, count: int) -> list[int]:
    return sorted(rng.sample(range(count), rng.randint(1, count)))


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs, the naive way."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_kept_records_are_those_of_the_batches_whatever_columns_these_have(seed: int) -> None:
    rng = random.Random(seed)
    parts, expected, base = [], [], 10
    for _ in range(rng.randint(1, 3)):
        wanted = {name for name in COLUMNS if rng.random() < 0.5}
        batch = made(rng, rng.choice([1, 3, 200]), base, wanted, rng.choice(list(Codec)))
        numbers = picked(rng, batch.record_count)
        parts.append((batch, np.array(numbers) if rng.random() < 0.5 else runs(numbers)))
        expected += [rows(batch)[number] for number in numbers]
        base = batch.end_offset + rng.randint(0, 5)
    kept = parse(keep_all(parts))
    kept.check()
    assert kept.kind == Kind.KEPT
    assert rows(kept) == expected
    assert (kept.base_offset, kept.term, kept.append_time_us) == (expected[0][0].offset, 2, expected[0][-1])
    later = placed(kept.buffer.tobytes(), 900, time_us=10**9)
    again = parse(keep(later, [(0, kept.record_count)]))
    assert rows(again) == rows(later) == expected, "kept records can be taken out once more, later than they came"


def test_a_kept_batch_without_append_times_has_its_own_for_all() -> None:
    kept = placed(golden.kept_before(), time_us=500)
    kept.check()
    assert kept.append_times().tolist() == [500, 500]
    again = parse(keep(kept, [(1, 1)]))
    assert again.append_times().tolist() == [500]


def test_only_kept_batches_have_append_times_of_their_own() -> None:
    value = parse(encode([b"a"])).column(ColumnId.VALUE)
    assert value is not None
    times = (ColumnId.APPEND_TIME, Codec.NONE, (7).to_bytes(8, "little"))
    batch = placed(assemble(Kind.RECORDS, 1, [(ColumnId.VALUE, Codec.NONE, bytes(value)), times]))
    assert batch.append_times().tolist() == [99]


def test_records_can_be_asked_for_from_an_offset_on() -> None:
    kept = parse(keep(placed(encode([b"%d" % i for i in range(200)])), np.arange(0, 200, 2)))
    expected = list(range(52, 240, 2))
    assert [record.offset for record in records(kept, start=51)] == expected
    assert [record.offset for run in record_runs(kept, 51) for record in run] == expected
    assert records(kept, start=240) == []


def test_runs_are_found_by_offset_in_batches_of_both_kinds() -> None:
    batch = placed(encode([b"x"] * 10))
    assert runs_of(batch, [(0, 42), (45, 1), (48, 100)]) == [(0, 2), (5, 1), (8, 2)]
    assert runs_of(batch, [(0, 40), (50, 3)]) == []
    kept = parse(keep(batch, np.array([1, 2, 7])))  # offsets 41, 42, 47
    assert runs_of(kept, [(0, 42), (42, 5), (47, 1), (60, 1)]) == [(0, 1), (1, 1), (2, 1)]
    assert runs_of(kept, []) == []


def test_effects_and_producer_do_not_go_along() -> None:
    batch = parse(with_effects(encode([b"a", b"b"], producer_id=5, producer_epoch=1, first_sequence=9), b"\x90"))
    kept = parse(keep(batch, [(1, 1)]))
    assert (kept.effects(), kept.producer_id, kept.producer_epoch, kept.first_sequence) == (None, 0, 0, 0)


def test_damage_never_gets_a_fresh_checksum() -> None:
    for codec in (Codec.NONE, Codec.ZSTD):
        batch = placed(encode([b"payload" * 9] * 9, codec=codec))
        damaged = bytearray(batch.buffer)
        damaged[batch.directory()[0].position + 44] ^= 1
        with pytest.raises(BadChecksum):
            keep(parse(damaged), [(0, 1)])


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], "at least one"),
        ([(placed(encode([b"x"])), [])], "at least one"),
        ([(placed(encode([b"x"])), np.array([], int))], "at least one"),
        ([(placed(encode([b"x", b"y"])), [(1, 1), (0, 1)])], "ascend"),
        ([(placed(encode([b"x"])), [(0, 1)]), (placed(encode([b"y"])), [(0, 1)])], "ascend"),
    ],
)
def test_what_cannot_be_kept_is_refused(parts: list, says: str) -> None:
    with pytest.raises(InvalidBatch, match=says):
        keep_all(parts)


@pytest.mark.parametrize("offsets", [None, [3, 3], [4, 3], [-1, 3], [1]])
def test_a_kept_batch_with_bad_offsets_is_found_by_check(offsets: list[int] | None) -> None:
    value = parse(encode([b"a", b"b"])).column(ColumnId.VALUE)
    assert value is not None
    found = [(ColumnId.VALUE, Codec.NONE, bytes(value))]
    if offsets is not None:
        found.append((ColumnId.OFFSET, Codec.NONE, np.array(offsets, "<i8").tobytes()))
    with pytest.raises(InvalidBatch):
        parse(assemble(Kind.KEPT, 2, found)).check()


def test_arrow_sees_the_original_offsets() -> None:
    pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    kept = parse(keep(placed(encode([b"a", b"b", b"c"])), [(0, 1), (2, 1)]))
    assert arrow.record_batch(kept, ("offset", "value")).to_pydict() == {"offset": [40, 42], "value": [b"a", b"c"]}


# -- in a log -----------------------------------------------------------------------------------------


def log_with_kept(files: MemoryFiles) -> LogWriter:
    """Offsets 0 to 8 in five batches, and between them the records 1 and 2 carried forward."""
    options = LogOptions(commit="written", segment_bytes=4096 + 900)
    log = LogWriter.create("/log", files=files, log_id=b"L" * 16, order=Sole(Promises("/p", files)), options=options)
    log.append([encode([b"0", b"1", b"2"]), encode([b"3"])], 10)
    first = next(batches(log.reader().cursor(0).next().buffer))
    kept = keep(first, [(1, 2)])
    log.append([encode([b"4"]), kept, encode([b"5", b"6"])], 20)
    log.append([kept], 30)
    log.append([encode([b"7"])], 30)
    return log


def test_a_kept_batch_gives_no_offsets_and_hides_none() -> None:
    files = MemoryFiles()
    log = log_with_kept(files)
    reader = log.reader()
    assert log.end_offset == 8
    for offset in range(8):
        chunk = reader.cursor(offset).next(1)
        assert chunk is not None
        found = [record.value for record in records(chunk.batches[0], start=offset)]
        assert found[0] == b"%d" % offset
        assert reader.term_at(offset) == 1
    assert [log.end_offset_at(seq) for seq in range(1, 8)] == [3, 4, 5, 5, 7, 7, 8]
    assert [reader.offset_at(time) for time in (10, 20, 21, 31)] == [0, 4, 7, 8]


def test_a_log_with_kept_batches_is_opened_and_read_as_before() -> None:
    files = MemoryFiles()
    log_with_kept(files).close()
    with Log("/log", files=files, read_only=True) as log:
        assert [record.value for record in log] == [b"%d" % i for i in range(8)]
        assert [record.offset for record in log.read(0)] == list(range(8))
    assert LogWriter.open("/log", files=files, order=Sole(Promises("/p", files))).end_offset == 8


def test_kept_batches_are_known_to_verify_dump_and_repair() -> None:
    files = MemoryFiles()
    log_with_kept(files).close()
    report = verify(files, "/log")
    assert (report.damage, report.batches, report.records, report.end_offset) == ([], 7, 8, 8)
    lines = list(dump(files, "/log", with_records=True))
    kept = [line for line in lines if line["type"] == "kept"]
    found = [(line["offset"], line["value"], line["timestamp"], line["append_time_us"]) for line in kept]
    assert found == [(1, "1", 10, 10), (2, "2", 10, 10)] * 2
    assert [line["offset"] for line in lines if line["type"] == "record"] == list(range(8))
    for name in [name for name in files.listdir("/log") if name.endswith(".index")]:
        files.unlink(f"/log/{name}")
    repaired = repair(files, "/log", now_us=1)
    assert repaired.actions
    assert [each.index for each in repaired.after.segments] == ["ok"] * len(repaired.after.segments)
    reader = LogWriter.open("/log", files=files, order=Sole(Promises("/p", files))).reader()
    assert [reader.cursor(offset).next(1).batches[0].base_offset for offset in range(8)] == [0, 0, 0, 3, 4, 5, 5, 7]
    ends = [reader.end_offset_at(seq) for seq in range(1, 8)]
    assert all(one <= two for one, two in pairwise(ends))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_neighbours_cut_out_are_a_batch_of_records_with_all_they_had(codec: Codec):
    rng = random.Random(5)
    for _ in range(60):
        count = rng.randrange(1, 150)
        wanted = {name for name in COLUMNS if rng.random() < 0.4}
        batch = made(rng, count, rng.randrange(1000), wanted, codec)
        first = rng.randrange(count)
        many = rng.randrange(1, count - first + 1)
        found = parse(cut(batch, first, many))
        found.check()
        assert (found.kind, found.append_time_us, found.term) == (Kind.RECORDS, batch.append_time_us, 2)
        assert ColumnId.OFFSET not in {column.id for column in found.directory()}
        assert rows(found) == rows(batch)[first : first + many]


def test_neighbours_are_cut_out_of_nothing_damaged_and_without_effects():
    batch = placed(with_effects(encode([b"one", b"two"]), b"effects"))
    assert parse(cut(batch, 1, 1)).effects() is None
    with pytest.raises(BadChecksum):
        cut(parse(bytes(batch.buffer).replace(b"two", b"tow")), 0, 1)
