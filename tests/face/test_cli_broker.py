"""Commands against a running broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock.cli import exits

from .conftest import Cli, Served

EVERY_BYTE = bytes(range(256))


def test_a_topic_is_created_listed_shown_altered_and_deleted(on: Cli, topic: str) -> None:
    assert on("topic", "create", topic, "--partitions", "3", "--retention", "7d").text == (
        f"topic {topic} created with 3 partitions\n"
    )
    assert topic in on("topic", "list").text
    (shown,) = on("topic", "show", topic, "--json").lines
    assert (len(shown["partitions"]), shown["records"], shown["settings"]["retention_s"]) == (3, 0, 604800.0)
    assert on("topic", "alter", topic, "--retention", "0", "--partitions", "4").code == exits.OK
    assert on("topic", "alter", topic, "--retention-records", "1000").code == exits.OK
    text = on("topic", "show", topic).text
    assert "retention_s         no limit" in text
    assert "retention_records   1000\n" in text
    assert f"directory           {Path(shown['partitions'][0]['directory']).parent}\n" in text
    assert [line.split()[0] for line in text.splitlines()[-4:]] == ["0", "1", "2", "3"]
    assert on("topic", "delete", topic, "--yes").text == f"topic {topic} deleted\n"
    assert topic not in on("topic", "list").text


def test_creating_twice_is_refused_unless_told_that_it_is_fine(on: Cli, topic: str) -> None:
    assert on("topic", "create", topic).code == exits.OK
    found = on("topic", "create", topic)
    assert found.code == exits.IN_USE
    assert found.err.startswith(f"penstock: topic {topic} exists already")
    assert on("topic", "create", topic, "--if-missing", "--json").lines[0]["event"] == "exists"
    found = on("topic", "create", topic, "--if-missing", "--partitions", "2")
    assert (found.code, f"topic {topic} exists with partitions=1, not 2" in found.err) == (exits.USAGE, True)


def test_deleting_asks_first_and_a_no_changes_nothing(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    for typed in (b"n\n", b"\n", b""):
        found = on("topic", "delete", topic, typed=typed)
        assert found.code == exits.INTERRUPTED
        assert f"delete topic {topic} with 0 records?" in found.err
        assert found.err.endswith("\n") == (not typed), "an end of input leaves the cursor behind the question"
    assert on("topic", "show", topic).code == exits.OK
    assert on("topic", "delete", topic, typed=b"y\n").text.endswith(f"topic {topic} deleted\n")


@pytest.mark.parametrize(
    "words",
    [
        *[("topic", "delete"), ("group", "delete", "g"), ("queue", "delete"), ("dead", "discard", "--all")],
        ("schedule", "delete", "n"),
    ],
    ids=str,
)
def test_what_destroys_needs_yes_where_nobody_can_be_asked(cli: Cli, words: tuple[str, ...]) -> None:
    """Nothing is tried: there is no broker, and the command line is refused before that is found."""
    command = [*words[:2], "orders", *words[2:]]
    for found in (cli(*command), cli(*command, stdin=b"y\n"), cli(*command, "--json", typed=b"y\n")):
        assert (found.code, found.out) == (exits.USAGE, b"")
        assert "give --yes" in found.err
        assert found.err.count("\n") == 1
    assert cli(*command, "--json", "--yes").code == cli(*command, "--yes").code == exits.UNAVAILABLE
    assert cli(*command, typed=b"y\n").code == exits.UNAVAILABLE


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["topic", "show", "nosuch"], exits.NOT_FOUND, "'nosuch' does not exist"),
        (["topic", "create", ".hidden"], exits.USAGE, "'.hidden' is not allowed"),
        (["topic", "create", "x" * 201], exits.USAGE, "is not allowed"),
        (["topic", "create", "sized", "--segment-bytes", "1KB"], exits.USAGE, "segment_bytes=1024 is not allowed"),
        (["produce", "nosuch"], exits.NOT_FOUND, "'nosuch' does not exist"),
        (["consume", "nosuch"], exits.NOT_FOUND, "'nosuch' does not exist"),
        (["group", "show", "nosuch", "g"], exits.NOT_FOUND, "'nosuch' does not exist"),
        (["stats", "--every", "0s"], exits.USAGE, "0s is no time: give one above 0"),
        (["consume", "nosuch", "--commit"], exits.USAGE, "--commit goes with --group"),
        (["stats", "nosuch"], exits.NOT_FOUND, "no counter's name starts with 'nosuch': they start with "),
    ],
)
def test_what_is_not_there_or_not_allowed_has_its_exit_code(
    on: Cli, arguments: list[str], code: int, says: str
) -> None:  # fmt: skip
    found = on(*arguments)
    assert (found.code, found.out) == (code, b"")
    assert says in found.err


def test_lines_go_in_and_come_out_as_they_were(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    content = b"first\n\n\xff\x00 third\r\nlast"
    assert on("produce", topic, stdin=content).text.startswith("4 records (18 B) to ")
    assert on("consume", topic, "--until-end").out == content + b"\n"
    assert on("consume", topic, "--until-end", "--from", "2").out == b"\xff\x00 third\r\nlast\n"
    assert on("consume", topic, "--count", "2").out == b"first\n\n"


def test_raw_inputs_are_one_record_each_whatever_they_hold(on: Cli, topic: str, tmp_path: Path) -> None:
    on("topic", "create", topic)
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(EVERY_BYTE * 5000)
    second.write_bytes(b"\n")
    (said,) = on("produce", topic, str(first), str(second), "--format", "raw", "--json").lines
    assert (said["event"], said["records"], said["bytes"]) == ("produced", 2, 256 * 5000 + 1)
    assert on("consume", topic, "--format", "raw", "--until-end").out == EVERY_BYTE * 5000 + b"\n"


def test_json_lines_carry_keys_headers_times_and_any_bytes_from_topic_to_topic(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("topic", "create", f"{topic}-copy")
    lines = (
        b'{"value": "plain"}\n'
        b'{"value_base64": "//4=", "key_base64": "/w==", "headers": {"a": "x"}, "headers_base64": {"b": "/w=="}}\n'
        b'{"value": "\xc3\xa9", "key": "k", "timestamp": 1600000000123456}\n'
    )
    assert on("produce", topic, "--format", "json", stdin=lines).code == exits.OK
    read = on("consume", topic, "--until-end", "--json")
    assert on("produce", f"{topic}-copy", "--format", "json", stdin=read.out).code == exits.OK
    copied = on("consume", f"{topic}-copy", "--until-end", "--json").lines
    assert [{**line, "topic": topic} for line in copied] == read.lines
    assert [line.get("value", line.get("value_base64")) for line in copied] == ["plain", "//4=", "é"]
    assert (copied[1]["headers"], copied[1]["headers_base64"], copied[1]["key_base64"]) == (
        {"a": "x"}, {"b": "/w=="}, "/w==",
    )  # fmt: skip
    assert (copied[2]["key"], copied[2]["timestamp"], copied[2]["offset"]) == ("k", 1600000000123456, 2)


def test_msgpack_carries_records_from_topic_to_topic(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("topic", "create", f"{topic}-copy")
    on("produce", topic, "--key", "k", "--header", "h=v", stdin=b"one\n\xff\n")
    read = on("consume", topic, "--until-end", "--format", "msgpack")
    assert on("produce", f"{topic}-copy", "--format", "msgpack", stdin=read.out).code == exits.OK
    copied = on("consume", f"{topic}-copy", "--until-end", "--json").lines
    assert [{**line, "topic": topic} for line in copied] == on("consume", topic, "--until-end", "--json").lines
    found = on("produce", topic, "--format", "msgpack", stdin=read.out[:-1])
    assert (found.code, found.out) == (exits.USAGE, b"")
    assert "standard input: record 2, which begins at byte " in found.err


def test_a_bad_line_is_named_and_what_came_before_it_in_other_inputs_is_kept(
    on: Cli, topic: str, tmp_path: Path
) -> None:  # fmt: skip
    on("topic", "create", topic)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(b'{"value": "good"}\n')
    bad.write_bytes(b'{"value": "x"}\n{"vale": "y"}\n')
    found = on("produce", topic, str(good), str(bad), "--format", "json")
    assert found.code == exits.USAGE
    assert found.err.startswith(f"penstock: {bad} line 2 is not a JSON record: ")
    assert on("consume", topic, "--until-end").out == b"good\n"


def test_keys_and_headers_of_the_command_line_go_with_every_record(on: Cli, topic: str) -> None:
    on("topic", "create", topic, "--partitions", "4")
    on("produce", topic, "--key-separator", ":", "--header", "from=test", stdin=b"a:1\nb:2\na:3\n")
    on("produce", topic, "--key", "c", "--partition", "3", stdin=b"4\n")
    read = on("consume", topic, "--until-end", "--json").lines
    assert sorted((line["key"], line["value"], line.get("headers")) for line in read) == [
        ("a", "1", {"from": "test"}), ("a", "3", {"from": "test"}), ("b", "2", {"from": "test"}), ("c", "4", None),
    ]  # fmt: skip
    assert len({line["partition"] for line in read if line["key"] == "a"}) == 1
    assert next(line["partition"] for line in read if line["key"] == "c") == 3
    assert on("consume", topic, "--until-end", "--partition", "3").out.endswith(b"4\n")
    found = on("consume", topic, "--partition", "4")
    assert (found.code, found.err) == (exits.NOT_FOUND, f"penstock: topic {topic} has no partition 4: 0 to 3\n")


def test_an_offset_out_of_range_names_the_range(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("produce", topic, stdin=b"a\nb\n")
    found = on("consume", topic, "--from", "7")
    assert found.code == exits.NOT_FOUND
    assert "0 to 2 are valid" in found.err


def test_a_topic_is_trimmed_and_says_what_groups_lost(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("produce", topic, stdin=b"a\nb\nc\nd\n")
    on("consume", topic, "--group", "g", "--count", "1")
    assert on("topic", "trim", topic, "--records", "2").code == exits.USAGE, "it cannot be undone"
    assert on("topic", "trim", topic, "--yes").code == exits.USAGE
    assert on("topic", "trim", topic, "--records", "1", "--before", "1", "--yes").code == exits.USAGE
    found = on("topic", "trim", topic, "--records", "2", "--yes")
    assert found.text == f"topic {topic} trimmed: 2 records removed; group g lost 1 record\n"
    (line,) = on("topic", "trim", topic, "--before", "3", "--yes", "--json").lines
    assert (line["event"], line["removed"], line["lost"], line["first"]) == ("trimmed", 1, {"g": 1}, {"0": 3})
    assert on("consume", topic, "--from", "earliest", "--until-end").out == b"d\n"


def test_a_group_goes_on_where_it_was_and_can_be_reset(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("produce", topic, stdin=b"1\n2\n3\n")
    assert on("consume", topic, "--group", "g", "--count", "2").out == b"1\n2\n"
    (shown,) = on("group", "show", topic, "g", "--json").lines
    assert (shown["lag"], shown["partitions"][0]["cursor"]) == (1, 2)
    assert on("consume", topic, "--group", "g", "--until-end", "--no-commit").out == b"3\n"
    assert on("consume", topic, "--group", "g", "--until-end").out == b"3\n"
    assert on("consume", topic, "--group", "g", "--until-end").out == b""
    assert on("group", "reset", topic, "g", "--to", "1").text == f"group g of {topic} reset: 2 records to read\n"
    assert on("consume", topic, "--group", "g", "--until-end").out == b"2\n3\n"
    assert on("group", "reset", topic, "g", "--to", "earliest", "--json").lines[0]["lag"] == 3
    assert "note" not in on("group", "show", topic, "g").text
    on("group", "reset", topic, "g", "--to", "1", "--note", "after the repair")
    assert on("group", "show", topic, "g", "--json").lines[0]["notes"] == {"0": "after the repair"}
    assert "after the repair" in on("group", "show", topic, "g").text
    assert on("group", "reset", topic, "g", "--to", "earliest").code == exits.OK
    assert on("group", "show", topic, "g", "--json").lines[0]["notes"] == {}
    assert [line["name"] for line in on("group", "list", "--topic", topic, "--json").lines] == ["g"]
    assert on("group", "delete", topic, "g", "--yes").code == exits.OK
    assert on("group", "show", topic, "g").code == exits.NOT_FOUND


def test_consuming_by_time_begins_at_the_first_record_from_then_on(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("produce", topic, stdin=b"old\n")
    (first,) = on("consume", topic, "--count", "1", "--json").lines
    assert on("consume", topic, "--from", "-15m", "--until-end").out == b"old\n"
    assert on("consume", topic, "--from", "2100-01-01", "--until-end").out == b""
    assert first["timestamp"] > 1_700_000_000_000_000


@pytest.mark.parametrize("delivery", ["push", "control", "mapped"])
def test_every_delivery_gives_the_same_records(on: Cli, topic: str, delivery: str) -> None:
    on("topic", "create", topic, "--partitions", "2")
    on("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(5000)))
    found = on("consume", topic, "--until-end", "--delivery", delivery)
    assert sorted(map(int, found.out.split())) == list(range(5000))


def test_the_same_commands_work_over_tcp(cli: Cli, broker: Served, topic: str) -> None:
    assert cli("topic", "create", topic, "--url", broker.tcp).code == exits.OK
    cli("produce", topic, "--url", broker.tcp, stdin=b"x\n")
    assert cli("consume", topic, "--url", broker.tcp, "--until-end").out == b"x\n"


def test_stats_are_numbers_by_name(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    before = on("stats", "--json").lines[0]
    on("produce", topic, stdin=b"x\ny\n")
    after = on("stats", "--json").lines[0]
    assert after["produce.records"] == before["produce.records"] + 2
    table = on("stats", "produce.").text.splitlines()
    assert table[0].split() == ["counter", "value"]
    assert {line.split()[0] for line in table[1:]} == {name for name in after if name.startswith("produce.")}


def test_a_bench_measures_and_leaves_no_topic(on: Cli) -> None:
    (said,) = on("bench", "produce", "--records", "5000", "--json").lines
    assert (said["records"], said["event"]) == (5000, "produce")
    assert said["records_per_s"] == pytest.approx(5000 / said["seconds"])
    for kind in ("records", "numpy"):
        (said,) = on("bench", "consume", "--records", "5000", "--as", kind, "--json").lines
        assert said["records"] == 5000
    (said,) = on("bench", "latency", "--records", "20", "--commit", "written", "--json").lines
    assert said["min"] <= said["p50"] <= said["p99.9"] <= said["max"]
    for how in ([], ["--strict", "--batch", "7"]):
        put_in, done = on("bench", "tasks", "--records", "500", *how, "--json").lines
        assert [said["event"] for said in (put_in, done)] == ["enqueue", "tasks"]
        assert done["records"] == 500
        assert done["records_per_s"] > 0
    assert "p99.9" in on("bench", "latency", "--records", "20", "--rate", "1000").text
    assert not [line for line in on("topic", "list", "--json").lines if line["name"].startswith("bench-")]


def test_logs_of_a_running_broker_can_be_verified_and_dumped_but_not_repaired(
    on: Cli, broker: Served, topic: str
) -> None:  # fmt: skip
    on("topic", "create", topic)
    on("produce", topic, stdin=b"one\ntwo\n")
    (shown,) = on("topic", "show", topic, "--json").lines
    directory = shown["partitions"][0]["directory"]
    (report,) = on("log", "verify", directory, "--json").lines
    assert (report["ok"], report["records"]) == (True, 2)
    assert (report["topic"], report["partition"]) == (topic, 0)
    dumped = on("log", "dump", directory, "--records").lines
    assert [line["value"] for line in dumped if line["type"] == "record"] == ["one", "two"]
    found = on("log", "repair", directory)
    assert found.code == exits.IN_USE
    assert str(os.path.basename(broker.unix)) in found.err or "pid" in found.err
    rows = [line.split() for line in on("log", "verify", broker.ready["data"]).text.splitlines()]
    (row,) = [row for row in rows if row[0] == f"{topic}/0"]
    assert row[-1] == directory.removeprefix(f"{broker.ready['data']}/")
