"""XTRIM, and XADD that trims, at the door of a real gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from penstock.clients.errors import TimedOut
from penstock.gateway.resp import streams, trims
from penstock.gateway.resp.tickets import Tickets


@pytest.fixture(scope="module")
def redis() -> Any:
    return pytest.importorskip("redis", reason="needs the client redis")


def filled(resp: Any, key: str, count: int) -> list[bytes]:
    """The ids of so many entries."""
    pipeline = resp.pipeline(transaction=False)
    for number in range(count):
        pipeline.xadd(key, {"n": number})
    return pipeline.execute()


def offsets(resp: Any, key: str) -> list[int]:
    return [int(id_.split(b"-")[1]) for id_, _ in resp.xrange(key)]


def test_exactly_what_is_to_stay_stays(resp, key):
    ids = filled(resp, key, 10)
    assert resp.xtrim(key, 20, approximate=False) == 0
    assert resp.xtrim(key, 7, approximate=False) == 3
    assert offsets(resp, key) == list(range(3, 10))
    assert resp.xtrim(key, minid=ids[5], approximate=False) == 2
    assert resp.xtrim(key, minid=ids[5], approximate=False) == 0
    assert resp.execute_command("XTRIM", key, "MAXLEN", 4) == 1
    assert offsets(resp, key) == [6, 7, 8, 9]
    assert resp.xtrim(key, minid="0", approximate=False) == 0
    assert resp.xtrim(key, minid=int(ids[9].split(b"-")[0]) + 1, approximate=False) == 4
    assert resp.xlen(key) == 0
    assert resp.xadd(key, {"n": 1}).endswith(b"-10")
    assert resp.xtrim(key + "none", 1) == 0


def test_about_so_many_stay(resp, key):
    ids = filled(resp, key, 350)
    assert resp.xtrim(key, 251) == 0
    assert resp.xtrim(key, 250) == 100
    assert resp.xtrim(key, 10, limit=150) == 100
    assert resp.xtrim(key, 10, limit=99) == 0
    assert resp.xtrim(key, minid=ids[299]) == 0
    assert resp.xtrim(key, minid=ids[300], limit=0) == 100
    assert resp.xtrim(key, 49) == 0
    assert resp.xtrim(key, 0) == 50


def test_an_entry_that_trims(resp, key):
    filled(resp, key, 5)
    assert resp.xadd(key, {"n": 5}, maxlen=3, approximate=False).endswith(b"-5")
    assert offsets(resp, key) == [3, 4, 5]
    pipeline = resp.pipeline(transaction=False)
    for number in range(6, 9):
        pipeline.xadd(key, {"n": number}, maxlen=2, approximate=False)
    last = pipeline.execute()[-1]
    assert offsets(resp, key) == [7, 8]
    resp.xadd(key, {"n": 9}, minid=last, approximate=False)
    assert offsets(resp, key) == [8, 9]
    assert resp.xadd(key + "none", {"n": 0}, maxlen=2, approximate=False, nomkstream=True) is None
    assert resp.xadd(key, {"n": 10}, maxlen=0, approximate=False)
    assert resp.xlen(key) == 0


@pytest.mark.parametrize("where", ["maxlen", "minid"])
def test_entries_trim_beside_the_connection(resp, key, where):
    terms = {where: 20 if where == "maxlen" else filled(resp, key, 150)[-1]}
    before = resp.xlen(key)
    pipeline = resp.pipeline(transaction=False)
    for number in range(250):
        pipeline.xadd(key, {"n": number}, **terms)
    assert len(set(pipeline.execute())) == 250
    while resp.xlen(key) >= before + 250:  # it is on its way
        resp.ping()
    assert offsets(resp, key)[-1] == before + 249
    assert resp.xlen(key) >= 20


def test_what_is_trimmed_stays_pending_until_it_is_acknowledged_or_read_again(resp, native, key):
    ids = filled(resp, key, 5)
    resp.xgroup_create(key, "g", 0)
    resp.xreadgroup("g", "a", {key: ">"}, count=3)
    assert resp.xtrim(key, minid=ids[2], approximate=False) == 2
    assert [each["message_id"] for each in resp.xpending_range(key, "g", "-", "+", 9)] == ids[:3]
    assert resp.xack(key, "g", ids[0]) == 1
    answer = resp.xreadgroup("g", "a", {key: "0"})
    again = answer[key.encode()][0] if isinstance(answer, dict) else answer[0][1]
    assert [(id_, bool(fields)) for id_, fields in again] == [(ids[1], False), (ids[2], True)]
    assert [each["message_id"] for each in resp.xpending_range(key, "g", "-", "+", 9)] == [ids[2]]
    assert resp.xack(key, "g", *ids) == 1
    assert native.queue(key, "g").ready == 2


def test_entries_that_are_gone_count_when_they_are_read_again(resp, key):
    ids = filled(resp, key, 5)
    resp.xgroup_create(key, "g", 0)
    resp.xreadgroup("g", "a", {key: ">"})
    resp.xtrim(key, 1, approximate=False)
    seen: list[bytes] = []
    for left in (3, 1, 1):
        answer = resp.xreadgroup("g", "a", {key: seen[-1] if seen else "0"}, count=2)
        seen += [id_ for id_, _ in (answer[key.encode()][0] if isinstance(answer, dict) else answer[0][1])]
        assert resp.xpending(key, "g")["pending"] == left
    assert seen == ids
    _, _, gone = resp.xautoclaim(key, "g", "b", 0)
    assert gone == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["XTRIM", "k", "MAXLEN", "5", "LIMIT", "3"], "without the special ~ option"),
        (["XTRIM", "k", "MAXLEN", "=", "5", "LIMIT", "3"], "without the special ~ option"),
        (["XTRIM", "k", "MAXLEN", "5", "FOO"], "syntax error"),
        (["XTRIM", "k", "MAXLEN", "~"], "syntax error"),
        (["XTRIM", "k", "LENGTH", "5"], "syntax error"),
        (["XTRIM", "k", "MAXLEN", "x"], "not an integer"),
        (["XTRIM", "k", "MAXLEN", "-1"], "MAXLEN is -1"),
        (["XTRIM", "k", "MINID", "x"], "Invalid stream ID"),
        (["XADD", "k", "MAXLEN", "5", "MINID", "5", "*", "a", "b"], "Invalid stream ID"),
        (["XADD", "k", "MAXLEN", "5", "LIMIT", "3", "*", "a", "b"], "without the special ~ option"),
        (["XADD", "k", "MAXLEN", "~", "5", "*", "a"], "wrong number of arguments"),
        (["XADD", "k", "MAXLEN", "~", "5"], "wrong number of arguments"),
    ],
)
def test_a_refusal_says_why(redis, resp, words, says):
    with pytest.raises(redis.ResponseError) as refused:
        resp.execute_command(*words)
    assert says in str(refused.value)


class Added:
    """Entries that are there, as tickets."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def settled(self) -> None: ...

    def reply(self) -> bytes:
        return b"".join(b"$3\r\n1-%d\r\n" % number for number in range(self.count))


def test_entries_whose_stream_cannot_be_trimmed_are_there_once(connected, monkeypatch, caplog):
    connection, transport = connected
    added: list[Any] = []

    def append(session: object, key: bytes, records: Any, *_: object, **__: object) -> Tickets:
        added.extend(records.values)
        return Tickets([Added(len(records.values))])  # type: ignore[list-item]

    async def find(*_: object) -> None:
        raise TimedOut("no answer")

    monkeypatch.setattr(streams, "append", append)
    for each in (streams, trims):
        monkeypatch.setattr(each, "find", find)

    async def run() -> None:
        connection.data_received(b"".join(b"XADD k MAXLEN 1 * value %d\r\n" % number for number in range(3)))
        while transport.out.count(b"\r\n") < 6:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert added == [b"0", b"1", b"2"]
    assert transport.out == Added(3).reply()
    assert [each.getMessage() for each in caplog.records] == ["a stream is not trimmed: no answer"]
