"""`penstock spark` where Spark is not started: what is wrong is said before, in one sentence."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from penstock.cli import exits
from penstock.cli.spark import FORMATS
from penstock.cli.spark_runs import Running, RunOptions, aside, sentence
from penstock.errors import MissingJava
from penstock.spark import java
from penstock.spark.pipelines import Progress
from penstock.spark.pipelines.running import follow

NO_JAVA = "Spark needs Java 17 or newer: install it"


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here gets as far as Spark."""

    def check() -> None:
        raise MissingJava(NO_JAVA)

    monkeypatch.setattr(java, "check", check)


COMMANDS = [
    ["archive", "{topic}", "--to", "{place}"],
    ["archive", "{topic}", "--to", "{place}", "--format", "delta", "--cursor", "archive", "--every", "1m"],
    ["archive", "{topic}", "--to", "{place}", "--skip-lost"],
    ["replay", "{topic}", "--archive", "{there}", "--checkpoint", "{place}"],
    ["replay", "{topic}", "--topic", "{topic}", "--checkpoint", "{place}", "--start", "2013-01-01T00:00Z"],
    ["rollup", "{topic}", "{topic}-counts", "--checkpoint", "{place}", "--by", "length(value)"],
    ["dead-letters", "{topic}", "--window", "1 day"],
    ["dead-letters", "{topic}", "--into", "{topic}-counts", "--checkpoint", "{place}"],
    ["compact", "{topic}", "--to", "{place}", "--deletes", "length(value) = 0"],
    ["compact", "{topic}", "--into", "{topic}-counts", "--checkpoint", "{place}", "--max-records", "1000"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_topic_that_is_not_there_is_named_before_java_is(on, topic, tmp_path, command):
    words = [word.format(topic=topic, place=tmp_path / "new", there=tmp_path) for word in command]
    found = on("spark", *words)
    assert found.code == exits.NOT_FOUND
    assert topic in found.err
    assert found.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_java_is_one_sentence_and_leaves_nothing(on, topic, tmp_path, command):
    for name in (topic, f"{topic}-counts"):
        on("topic", "create", name)
    words = [word.format(topic=topic, place=tmp_path / "new", there=tmp_path) for word in command]
    found = on("spark", *words)
    assert (found.code, found.err) == (exits.NOT_FOUND, f"penstock: {NO_JAVA}\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["replay", "flights", "--checkpoint", "{c}", "--archive", "{c}"], "Directory '{c}' does not exist"),
        (["replay", "flights", "--checkpoint", "{c}", "--topic", "flights", "--start", "2026-01-02", "--end",
          "2026-01-01"], "--start has to be before --end"),
        (["rollup", "flights", "flights", "--checkpoint", "{c}"], "TARGET has to be another topic than TOPIC"),
        (["compact", "flights", "--into", "flights", "--checkpoint", "{c}"], "--into has to be another topic"),
        (["dead-letters", "flights", "--into", "flights", "--checkpoint", "{c}"], "--into has to be another topic"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_starts(cli, tmp_path, words, complaint):
    place = str(tmp_path / "c")
    found = cli("spark", *(word.format(c=place) for word in words))
    assert found.code == exits.USAGE
    assert complaint.format(c=place) in found.err


def test_what_spark_went_on_without_is_said_once_and_nothing_else_of_what_it_wrote():
    notes = list[str]()
    with aside(SimpleNamespace(output=SimpleNamespace(note=notes.append))):  # type: ignore[arg-type]
        for _ in range(2):
            os.write(2, b"INFO a batch begins\nrecords 0 to 4 of t-0 are gone; going on without them\n")
    assert notes == ["records 0 to 4 of t-0 are gone; going on without them"]


@pytest.mark.parametrize("skip", [False, True])
def test_lost_records_end_a_pipeline_unless_it_is_told_to_skip_them(skip):
    given = dict[str, str]()

    class Reader:
        def option(self, name: str, value: str) -> Reader:
            given[name] = value
            return self

        format = options = lambda self, *args, **more: self

        def load(self) -> None:
            pass

    how = RunOptions("local", {}, skip_lost=skip)
    running = Running(SimpleNamespace(url=""), None, how, lambda progress: None, None)  # type: ignore[arg-type]
    follow(SimpleNamespace(readStream=Reader()), "", ["t"], running.pace)  # type: ignore[arg-type]
    assert given.get("failOnDataLoss") == ("false" if skip else None)


def test_no_broker_is_said(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", f"unix://{tmp_path}/none.sock")
    found = cli("spark", "archive", "flights", "--to", str(tmp_path / "a"))
    assert found.code == exits.UNAVAILABLE
    assert "no broker listens on" in found.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["archive", "--to", "x"], "Missing argument 'TOPIC...'"),
        (["archive", "t"], "Missing option '--to'"),
        (["archive", "t", "--to", "x", "--format", "orc"], "'orc' is not one of 'parquet', 'delta', 'iceberg'"),
        (["archive", "t", "--to", "x", "--every", "soon"], "'soon' is not a time"),
        (["archive", "t", "--to", "x", "--max-records", "0"], "0 is not in the range"),
        (["archive", "t", "--to", "x", "--conf", "a"], "'a' is not NAME=VALUE"),
        (["replay", "t", "--checkpoint", "x"], "say what to replay: --archive DIRECTORY or --topic NAME"),
        (["replay", "t", "--topic", "t"], "Missing option '--checkpoint'"),
        (["replay", "t", "--topic", "t", "--checkpoint", "x", "--start", "noon"], "'noon' is no time"),
        (["rollup", "t", "u"], "Missing option '--checkpoint'"),
        (["dead-letters", "t", "--into", "u"], "--into goes with --checkpoint"),
        (["dead-letters", "t", "--into", "u", "--checkpoint", "x", "--group", "g"], "in place of --group"),
        (["dead-letters", "t", "--every", "1m"], "--every and --max-records go with --into"),
        (["dead-letters", "t", "--group", "g", "--max-records", "5"], "--every and --max-records go with --into"),
        (["compact", "t", "--into", "u", "--checkpoint", "x", "--deletes", "true"], "--deletes goes with --to"),
        (["compact", "t"], "say where to: --to DIRECTORY, or --into TOPIC"),
        (["compact", "t", "--to", "x", "--into", "u"], "say where to: --to DIRECTORY, or --into TOPIC"),
        (["compact", "t", "--into", "u"], "with --checkpoint DIRECTORY"),
    ],
)
def test_a_wrong_command_line_is_refused(cli, words, says):
    found = cli("spark", *words)
    assert found.code == exits.USAGE
    assert says in found.err
    assert found.err.count("\n") == 1


def test_formats_are_those_of_archives():
    from penstock.spark.pipelines.tables import FORMATS as known

    assert known == FORMATS


@pytest.mark.parametrize(
    ("progress", "says"),
    [
        (Progress(), "0 records replayed"),
        (Progress(records=1, rate=0.04, lag=0), "1 record replayed, 0 records behind"),
        (Progress(records=7000, rate=1952.4, lag=1), "7,000 records replayed at 1,952 records/s, 1 record behind"),
    ],
)
def test_progress_is_a_sentence_and_a_rate_that_says_nothing_is_left_out(progress, says):
    assert sentence("replayed", progress) == says
