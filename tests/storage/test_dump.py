"""Dump shows every batch, every record, every damaged range and the end, as JSON lines."""

from __future__ import annotations

import json

import pytest
from penstock.storage.batch import Kind, encode, of_kind
from penstock.storage.dump import dump
from penstock.storage.files import Files
from penstock.storage.header_list import HeaderList
from penstock.storage.log import LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from support.logs import build, content, put


def types(lines: list[dict]) -> list[str]:
    return [line["type"] for line in lines]


def test_batches_stand_under_their_segment_and_the_end_is_a_line() -> None:
    built = build(shape=[(2, 0), (1,)])
    lines = list(dump(built.files, "/log"))
    assert types(lines) == ["segment", "batch", "batch", "segment", "batch", "end"]
    assert [line["kind"] for line in lines if line["type"] == "batch"] == ["records", "state", "records"]
    assert [line["base_offset"] for line in lines if line["type"] == "batch"] == [0, 2, 2]
    assert [column["id"] for column in lines[1]["columns"]] == ["value", "key"]
    assert lines[3]["durable_seq"] == 3
    assert lines[-1]["reason"] == ""


def test_records_follow_their_batch_and_start_leaves_earlier_ones_out() -> None:
    built = build(shape=[(2, 3)])
    lines = [line for line in dump(built.files, "/log", with_records=True) if line["type"] == "record"]
    assert [(line["offset"], line["value"].split()[1], line["key"]) for line in lines] == [
        (0, "0", "k0"),
        (1, "1", "k1"),
        (2, "2", "k0"),
        (3, "3", "k1"),
        (4, "4", "k2"),
    ]
    later = list(dump(built.files, "/log", with_records=True, start=3))
    assert types(later) == ["segment", "batch", "record", "record", "end"]
    assert later[2]["offset"] == 3


def other(files: Files) -> LogWriter:
    order = Sole(Promises("/other/promises", files))
    return LogWriter.create("/other", files=files, log_id=bytes(range(16)), order=order)


def test_bytes_that_are_not_text_are_base64() -> None:
    files = build(shape=[]).files
    log = LogWriter.create(
        "/other", files=files, log_id=bytes(range(16)), order=Sole(Promises("/other/promises", files))
    )
    log.append([encode([b"\xff\0", "größe".encode()], keys=[None, b"\x80"], headers=[{"h": b"\xfe"}, {"t": b"x"}])], 1)
    first, second = (line for line in dump(files, "/other", with_records=True) if line["type"] == "record")
    assert first == {
        "type": "record",
        "offset": 0,
        "timestamp": 1,
        "value_base64": "/wA=",
        "headers": {"h_base64": "/g=="},
    }
    assert second["value"] == "größe"
    assert (second["key_base64"], second["headers"]) == ("gA==", {"t": "x"})


def test_a_null_is_null_and_an_empty_value_is_not() -> None:
    files = build(shape=[]).files
    log = LogWriter.create(
        "/nulls", files=files, log_id=bytes(range(16)), order=Sole(Promises("/nulls/promises", files))
    )
    headers = [None, HeaderList([("h", b"1"), ("h", b"\xff"), ("n", None)])]
    log.append([encode([None, b""], keys=[b"k", None], headers=headers)], 1)
    found = [line for line in dump(files, "/nulls", with_records=True) if line["type"] == "record"]
    assert "header_list" not in found[0]
    assert found[1]["headers"] == {"h_base64": "/w=="}
    assert found[1]["header_list"] == [
        {"name": "h", "value": "1"}, {"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None},
    ]  # fmt: skip
    assert [(line["value"], line.get("key")) for line in found] == [(None, "k"), ("", None)]
    log.close()


def test_damage_is_a_line_between_the_good_ones() -> None:
    built = build(shape=[(2, 2, 2)])
    data = bytearray(content(built.files, built.segment_path()))
    data[built.places[2][1] + 4] ^= 1
    put(built.files, built.segment_path(), bytes(data))
    lines = list(dump(built.files, "/log"))
    assert types(lines) == ["segment", "batch", "damage", "batch", "end"]
    assert (lines[2]["offset"], lines[2]["next_offset"], lines[2]["position"]) == (2, 4, built.places[2][1])


def test_every_line_is_plain_values(tmp_path) -> None:
    built = build(Files(), str(tmp_path / "log"), shape=[(2, 0), (1,)])
    lines = list(dump(built.files, built.directory, with_records=True))
    assert json.loads(json.dumps(lines)) == lines
    assert types(lines).count("record") == 3


def test_dumping_beside_a_writer_shows_what_is_written_and_disturbs_nothing() -> None:
    files = build(shape=[]).files
    log = LogWriter.create(
        "/other", files=files, log_id=bytes(range(16)), order=Sole(Promises("/other/promises", files))
    )
    for round_ in range(5):
        log.append([encode([b"value %d" % round_])], round_)
        assert types(list(dump(files, "/other"))).count("batch") == round_ + 1
    log.sync()
    log.close()


def test_a_missing_directory_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no log in /nowhere"):
        list(dump(build().files, "/nowhere"))


def test_staged_records_are_shown_by_their_numbers_and_without_offsets() -> None:
    files = build(shape=[]).files
    log = LogWriter.create(
        "/other", files=files, log_id=bytes(range(16)), order=Sole(Promises("/other/promises", files))
    )
    log.append([encode([b"before"])], 1)
    log.append([of_kind(encode([b"a", b"b"], producer_id=7, first_sequence=5), Kind.STAGED)], 2)
    log.append([encode([b"after"])], 3)
    lines = [line for line in dump(files, "/other", with_records=True) if line["type"] in ("batch", "record", "staged")]
    assert [line.get("kind") for line in lines if line["type"] == "batch"] == ["records", "staged", "records"]
    assert [line for line in lines if line["type"] == "staged"] == [
        {"type": "staged", "sequence": 5, "timestamp": 2, "value": "a"},
        {"type": "staged", "sequence": 6, "timestamp": 2, "value": "b"},
    ]
    assert [(line["offset"], line["value"]) for line in lines if line["type"] == "record"] == [
        (0, "before"), (1, "after"),
    ]  # fmt: skip
