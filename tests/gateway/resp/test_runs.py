"""Commands that append run together, and each is answered as if it had run alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.gateway.resp.refusals import sentence_of
from penstock.gateway.resp.tickets import EntryTicket, OffsetTicket
from penstock.storage.errors import InvalidBatch
from penstock.transport.producer_session import TARGET_BYTES

LIVES = 40


def outcomes(pipeline: Any) -> list[Any]:
    return pipeline.execute(raise_on_error=False)


class Life:
    """Pipelines of random commands for two keys, and what has to come of them."""

    def __init__(self, randomly: random.Random, keys: tuple[str, str]) -> None:
        self.randomly, self.keys = randomly, keys
        self.entries: dict[str, list[dict[bytes, bytes]]] = {key: [] for key in keys}
        self.wanted: list[tuple[str, int] | str] = []  # key and offset, or what an error says

    def command(self, pipeline: Any, key: str) -> None:
        entries, value = self.entries[key], b"%d" % self.randomly.randrange(1 << 60)
        kind = self.randomly.choice(
            ["plain", "plain", "enqueue", "headers", "key", "repeated", "odd", "bad id", "large"]
        )
        if kind == "enqueue":
            pipeline.execute_command("ENQUEUE", key, value)
            fields = {b"value": value}
        else:
            fields = {
                "headers": {b"value": value, b"h": b"1", b"i": b""}, "key": {b"value": value, b"key": b"k"},
                "large": {b"value": value * 100},
            }.get(kind, {b"value": value})  # fmt: skip
            words = [word for pair in fields.items() for word in pair]
            words += {"repeated": [b"a", b"1", b"a", b"2"], "odd": [b"a"]}.get(kind, [])
            pipeline.execute_command("XADD", key, "5-*" if kind == "bad id" else "*", *words)
        says = {"repeated": "there twice", "odd": "arguments", "bad id": "has to be *", "large": "[record_too_large]"}
        if kind in says:
            self.wanted.append(says[kind])
        else:
            self.wanted.append((key, len(entries)))
            entries.append(fields)

    def check(self, answered: list[Any]) -> None:
        for wanted, answer in zip(self.wanted, answered, strict=True):
            if isinstance(wanted, str):
                assert wanted in str(answer), (wanted, answer)
            else:
                assert (answer if isinstance(answer, int) else int(answer.split(b"-")[1])) == wanted[1]
        self.wanted.clear()


@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "transaction"])
def test_each_of_many_is_answered_as_if_it_had_run_alone(resp, key, seed, transaction):
    randomly, keys = random.Random(seed), (f"{key}a{int(transaction)}", f"{key}b{int(transaction)}")
    for each in keys:
        resp.execute_command("CREATE", each, "max_record_bytes", "1000")
    life = Life(randomly, keys)
    for _ in range(LIVES):
        pipeline = resp.pipeline(transaction=transaction)
        for _ in range(randomly.randrange(1, 8)):
            at = randomly.choice(keys)
            for _ in range(randomly.choice([1, 2, 30])):
                life.command(pipeline, at)
        life.check(outcomes(pipeline))
    for each in keys:
        assert [fields for _, fields in resp.xrange(each)] == life.entries[each]


@pytest.mark.parametrize("sizes", [[10] * 30, list(range(30))], ids=["even", "uneven"])
@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "transaction"])
@pytest.mark.parametrize("verb", ["ENQUEUE", "XADD", "unknown", "wrong arity", "bad id", "TYPE"])
def test_what_came_as_a_run_is_answered_command_by_command(resp, key, verb, transaction, sizes):
    resp.execute_command("CREATE", key)
    values = [f"{key}-".encode() + b"x" * size for size in sizes]  # for TYPE names of topics, which others may make
    words = {
        "ENQUEUE": ["ENQUEUE", key], "XADD": ["XADD", key, "*", "value"], "unknown": ["NONSENSE", key],
        "wrong arity": ["XADD", key, "*"], "bad id": ["XADD", key, "5-1", "value"], "TYPE": ["TYPE"],
    }[verb]  # fmt: skip
    pipeline = resp.pipeline(transaction=transaction)
    for value in values:
        pipeline.execute_command(*words, value)
    if transaction and verb in ("unknown", "wrong arity"):
        with pytest.raises(Exception, match=r"unknown command|wrong number"):
            pipeline.execute()
        return
    answered = outcomes(pipeline)
    if verb in ("unknown", "wrong arity", "bad id"):
        says = {"unknown": "unknown command", "wrong arity": "wrong number", "bad id": "has to be *"}[verb]
        assert [says in str(each) for each in answered] == [True] * 30
        assert resp.xlen(key) == 0
    elif verb == "TYPE":
        assert answered == [b"none"] * 30
    else:
        assert [int(str(each).strip("b'").split("-")[-1]) for each in answered] == list(range(30))
        assert [fields[b"value"] for _, fields in resp.xrange(key)] == values


def test_of_a_run_that_was_cut_out_only_those_to_blame_are_refused(resp, key):
    resp.execute_command("CREATE", key, "max_record_bytes", "1000")
    pipeline = resp.pipeline(transaction=False)
    for number in range(60):
        pipeline.xadd(key, {"value": b"x" * (2000 if number % 20 == 7 else number)})
    answered = outcomes(pipeline)
    for number in (47, 27, 7):
        assert "[record_too_large]" in str(answered.pop(number))
    assert [int(id_.split(b"-")[1]) for id_ in answered] == list(range(57))


def test_a_run_that_waits_for_its_topic_is_refused_one_by_one(resp, native, key):
    """The gateway learns of the topic's limit while the run waits."""
    native.create_topic(key, max_record_bytes=1000)
    pipeline = resp.pipeline(transaction=False)
    for number in range(20):
        pipeline.xadd(key, {"value": b"x" * (2000 if number == 7 else 10)})
    answered = outcomes(pipeline.xlen(key))
    assert "[record_too_large]" in str(answered.pop(7))
    assert answered.pop() == 19
    assert [int(id_.split(b"-")[1]) for id_ in answered] == list(range(19))


def test_a_run_without_a_topic_that_is_to_be_made_is_answered_with_nulls(resp, key):
    pipeline = resp.pipeline(transaction=False)
    for _ in range(3):
        pipeline.xadd(key, {"a": "1"}, nomkstream=True)
    assert outcomes(pipeline.xlen(key)) == [None, None, None, 0]


def test_runs_of_several_batches_stay_in_order(resp, key):
    count, size = 300, TARGET_BYTES // 50
    pipeline = resp.pipeline(transaction=False)
    for number in range(count):
        pipeline.execute_command("ENQUEUE", key, b"%05d" % number + b"x" * size)
    assert outcomes(pipeline) == list(range(count))
    found = [fields[b"value"][:5] for _, fields in resp.xrange(key)]
    assert found == [b"%05d" % number for number in range(count)]


@pytest.mark.parametrize("mark", ["=", "~"])
def test_a_run_that_trims_leaves_what_its_last_entry_leaves(resp, key, mark):
    pipeline = resp.pipeline(transaction=False)
    for number in range(250):
        pipeline.xadd(key, {"a": str(number)}, maxlen=10, approximate=mark == "~")
    answered = outcomes(pipeline)
    assert [int(id_.split(b"-")[1]) for id_ in answered] == list(range(250))
    if mark == "=":
        assert [fields[b"a"] for _, fields in resp.xrange(key)] == [b"%d" % number for number in range(240, 250)]


# -- replies -----------------------------------------------------------------------------------------------


class Batch:
    """Some settled records, of which one may be refused."""

    def __init__(self, offset: int, refused: int | None) -> None:
        self.time_us, self.offset, self.error = 1_700_000_000_123_456, offset, None
        self.refused = refused

    def outcomes(self, first: int, count: int) -> list[tuple[Any, int, int]]:
        if self.refused is None:
            return [(self, first, count)]
        bad = Batch(0, None)
        bad.error = InvalidBatch("bad")  # pyright: ignore[reportAttributeAccessIssue]
        return [(bad if at == self.refused else self, at, 1) for at in range(first, first + count)]


@pytest.mark.parametrize("refused", [None, 3])
@pytest.mark.parametrize("offset", [0, 5, 95, 998, 10**17 - 4])
def test_replies_of_a_run_are_those_of_its_records(offset, refused):
    batch: Any = Batch(offset, refused)
    entries, offsets = b"", b""
    for at in range(2, 12):
        id_ = b"1700000000123-%d" % (offset + at)
        bad = b"-%b\r\n" % sentence_of(InvalidBatch("bad")).encode()
        entries += bad if at == refused else b"$%d\r\n%b\r\n" % (len(id_), id_)
        offsets += bad if at == refused else b":%d\r\n" % (offset + at)
    assert EntryTicket(batch, 2, 10).reply() == entries
    assert OffsetTicket(batch, 2, 10).reply() == offsets
