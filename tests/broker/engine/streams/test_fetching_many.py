"""Fetching from many partitions: at once or later, what is enough, what is left out, and those that wait."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.broker.engine.ports import COLD
from penstock.broker.engine.streams import fetching_many
from penstock.broker.engine.turns import parked
from penstock.storage.batch import batches
from penstock.storage.errors import Corrupt
from penstock.transport import messages as m
from support.dedup import failure
from support.engine import Rig

WAIT = 1000


def filled(*counts: int, **config: float) -> tuple[Rig, bytes]:
    """A topic whose partitions have so many batches of one record each, all of one size."""
    rig = Rig(**config)
    topic = rig.topic(partitions=len(counts))
    for partition, count in enumerate(counts):
        for number in range(count):
            rig.produce(topic, [b"%d-%d" % (partition, number)], partition)
    return rig, topic


def ask(
    rig: Rig, topic: bytes, *offsets: int, most: int = 1 << 20, least: int = 1, wait_ms: int = 0, each: int = 1 << 20
) -> Any:
    """The answer to a fetch from partitions 0, 1 ... on; None when it waits."""
    places = [m.FetchFrom(topic, partition, offset, each) for partition, offset in enumerate(offsets)]
    return rig.ask(m.FetchMany, places, most, least, wait_ms)


def came(rig: Rig, request: int) -> list[list[bytes]]:
    """The values of each partition in an answer."""
    ((message, payload),) = [(each, data) for _, each, data in rig.port.sent if getattr(each, "request", 0) == request]
    found, position = [], 0
    for part in message.partitions:
        end = position + part.size_bytes
        found.append([value for batch in batches(payload[position:end]) for value in batch.values()])
        position = end
    assert position == len(payload)
    return found


def size_of_one(rig: Rig, topic: bytes) -> int:
    return ask(rig, topic, 0, each=1).partitions[0].size_bytes


def test_each_partition_comes_with_where_to_go_on_and_its_bounds():
    rig, topic = filled(2, 0, 3)
    answer = ask(rig, topic, 1, 0, 1)
    assert came(rig, answer.request) == [[b"0-1"], [], [b"2-1", b"2-2"]]
    assert [(each.next_offset, each.first, each.end, each.code) for each in answer.partitions] == [
        (2, 0, 2, ""), (0, 0, 0, ""), (3, 0, 3, ""),
    ]  # fmt: skip


def test_an_answer_is_as_full_as_it_may_be_and_not_fuller():
    rig, topic = filled(3, 3)
    one = size_of_one(rig, topic)
    for most, expected in [
        (0, (1, 0)), (1, (1, 0)), (one, (1, 0)), (2 * one - 1, (1, 0)), (2 * one, (2, 0)), (3 * one, (3, 0)),
        (4 * one - 1, (3, 0)), (4 * one, (3, 1)), (6 * one, (3, 3)),
    ]:  # fmt: skip
        answer = ask(rig, topic, 0, 0, most=most)
        assert tuple(map(len, came(rig, answer.request))) == expected, most
        assert tuple(each.next_offset for each in answer.partitions) == expected
    answer = ask(rig, topic, 0, 0, each=2 * one)
    assert tuple(map(len, came(rig, answer.request))) == (2, 2)


def test_a_batch_that_is_longer_than_what_is_left_waits_for_the_next_answer():
    rig, topic = filled(1, 0, 1)
    rig.produce(topic, [b"x" * 10_000], 1)
    one = size_of_one(rig, topic)
    answer = ask(rig, topic, 0, 0, 0, most=3 * one)
    assert came(rig, answer.request) == [[b"0-0"], [], []]
    assert came(rig, ask(rig, topic, 1, 0, 0, most=3 * one).request) == [[], [b"x" * 10_000], []]


def test_the_broker_has_a_limit_of_its_own():
    rig, topic = filled(2, max_frame_bytes=300)
    assert came(rig, ask(rig, topic, 0).request) == [[b"0-0"]]


# -- waiting ------------------------------------------------------------------------------------------


def test_a_fetch_at_the_ends_waits_for_the_next_committed_record_of_any():
    rig, topic = filled(1, 1)
    assert ask(rig, topic, 1, 1, wait_ms=WAIT) is None
    request = rig._request
    assert rig.node.stats()["fetch.waiting"] == 1
    rig.store.hold = True
    rig.produce(topic, [b"new"], 1)
    assert rig.answers(request) == [], "it is not committed"
    rig.sync()
    assert came(rig, request) == [[], [b"new"]]
    assert rig.node.stats()["fetch.waiting"] == 0
    rig.produce(topic, [b"more"], 1)
    assert len(rig.answers(request)) == 1


def test_a_fetch_waits_for_as_much_as_it_asks_and_gets_all_of_it():
    rig, topic = filled(1, 0)
    one = size_of_one(rig, topic)
    assert ask(rig, topic, 0, 0, least=3 * one, wait_ms=WAIT) is None
    request = rig._request
    rig.produce(topic, [b"0-1"])
    assert rig.answers(request) == []
    rig.produce(topic, [b"1-0"], 1)
    assert came(rig, request) == [[b"0-0", b"0-1"], [b"1-0"]]


def test_no_more_is_waited_for_than_fits():
    rig, topic = filled(1, 0)
    assert came(rig, ask(rig, topic, 0, most=1, least=1 << 30, wait_ms=WAIT).request) == [[b"0-0"]]


def test_a_fetch_whose_time_is_up_is_answered_once_with_what_there_is():
    rig, topic = filled(1, 0)
    assert ask(rig, topic, 0, 0, least=1 << 19, wait_ms=WAIT) is None
    assert ask(rig, topic, 1, 0, wait_ms=WAIT) is None
    rig.pass_time(0.9)
    requests = [rig._request - 1, rig._request]
    assert [rig.answers(request) for request in requests] == [[], []]
    rig.pass_time(0.2)
    assert [came(rig, request) for request in requests] == [[[b"0-0"], []], [[], []]]
    rig.produce(topic, [b"new"])
    assert [len(rig.answers(request)) for request in requests] == [1, 1]


def test_a_wait_has_a_limit():
    rig, topic = filled(0, wait_max_s=2.0)
    assert ask(rig, topic, 0, wait_ms=10**9) is None
    rig.pass_time(2.5)
    assert len(rig.answers(rig._request)) == 1


@pytest.mark.parametrize("waits", [True, False])
def test_cold_pages_are_left_out_while_there_is_something_else_and_else_waited_for(waits: bool):
    rig, topic = filled(1, 1)
    read, tokens, warm = rig.port.read, list[Any](), list[bool]()

    def cold_first(cursor: Any, max_bytes: int, limit_seq: int, token: Any) -> Any:
        if cursor.path.endswith("/0") and not warm:
            tokens.append(token)
            return COLD
        return read(cursor, max_bytes, limit_seq, token)

    rig.port.read = cold_first  # pyright: ignore[reportAttributeAccessIssue]
    if waits:
        assert ask(rig, topic, 0, 1) is None
        request = rig._request
        rig.pass_time(2)
        assert rig.answers(request) == [], "the records exist: an empty answer would be wrong"
        warm.append(True)
        rig.node.warmed(tokens[0])
        rig.turn()
        assert came(rig, request) == [[b"0-0"], []]
    else:
        assert came(rig, ask(rig, topic, 0, 0).request) == [[], [b"1-0"]]
        warm.append(True)
        rig.node.warmed(tokens[0])
        assert came(rig, ask(rig, topic, 0, 0).request) == [[b"0-0"], [b"1-0"]]
    assert len(tokens) == 1


def test_a_fetch_whose_pages_came_and_are_too_little_is_answered_when_its_time_is_up():
    rig, topic = filled(1, 0)
    rig.port.cold = []
    assert ask(rig, topic, 0, 0, least=1 << 19, wait_ms=WAIT) is None
    request, (token,), rig.port.cold = rig._request, rig.port.cold, None
    rig.node.warmed(token)
    rig.turn()
    assert rig.answers(request) == [], "it asked for more"
    rig.pass_time(1.1)
    assert came(rig, request) == [[b"0-0"], []]


def test_a_peer_that_went_away_is_not_waited_for():
    rig, topic = filled(0, 0)
    for _ in range(3):
        assert ask(rig, topic, 0, 0, wait_ms=WAIT) is None
    many = rig.node._desk.fetching_many
    rig.node.disconnect("c")
    rig.produce(topic, [b"new"])
    assert (rig.answers(rig._request - 1), rig.node.stats()["fetch.waiting"]) == ([], 0)
    assert (many.standing, many._places) == ({}, {})


def test_a_wait_goes_on_though_the_lead_is_lost():
    rig, topic = filled(0, 0)
    assert ask(rig, topic, 0, 0, wait_ms=WAIT) is None
    rig.node.resign()
    rig.node.advance(rig.now)
    rig.produce(topic, [b"new"], 1)
    assert came(rig, rig._request - 1) == [[], [b"new"]]


# -- errors -------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_said_beside_what_can_and_ends_the_wait():
    rig, topic = filled(1, 1)
    places = [
        m.FetchFrom(topic, 1, 0, 1 << 20), m.FetchFrom(topic, 2, 5, 1), m.FetchFrom(bytes(16), 0, 7, 1),
        m.FetchFrom(topic, 0, 9, 1),
    ]  # fmt: skip
    answer = rig.ask(m.FetchMany, places, 1 << 20, 1 << 20, WAIT)
    assert [(each.code, each.next_offset, each.offset) for each in answer.partitions] == [
        ("", 1, -1), ("unknown_partition", 5, -1), ("unknown_topic", 7, -1), ("out_of_bounds", 9, 1),
    ]  # fmt: skip
    assert came(rig, answer.request)[0] == [b"1-0"]
    assert answer.partitions[3].message.startswith("offset 9 of partition 0")
    rig.restart()
    rig.produce(topic, [b"second term"])
    diverged = rig.ask(m.FetchMany, [m.FetchFrom(topic, 0, 3, 1, 1)], 1, 1, WAIT)
    assert (diverged.partitions[0].code, diverged.partitions[0].offset) == ("diverged", 1)
    assert rig.ask(m.FetchMany, [m.FetchFrom(topic, 0, 1, 1, 1)], 1, 1, 0).partitions[0].next_offset == 2


def test_a_topic_that_is_deleted_ends_the_wait():
    rig, topic = filled(0)
    other = rig.topic("other")
    places = [m.FetchFrom(topic, 0, 0, 1), m.FetchFrom(other, 0, 0, 1)]
    assert rig.ask(m.FetchMany, places, 1, 1, WAIT) is None
    request = rig._request
    rig.ask(m.DeleteTopic, topic)
    (answer,) = rig.answers(request)
    assert [each.code for each in answer.partitions] == ["unknown_topic", ""]


@pytest.mark.parametrize(
    ("error", "told", "state"),
    [(OSError(5, "Input/output error"), ("read_failed", True), "ok"), (Corrupt("torn"), ("corrupt", False), "damaged")],
)
def test_what_the_disk_does_not_give_fails_its_partition_alone(error: Exception, told: tuple[str, bool], state: str):
    rig, topic = filled(1, 1)
    read = rig.port.read

    def fails_on_first(cursor: Any, *how: Any) -> Any:
        if cursor.path.endswith("/0"):
            raise error
        return read(cursor, *how)

    rig.port.read = fails_on_first  # pyright: ignore[reportAttributeAccessIssue]
    answer = ask(rig, topic, 0, 0)
    assert [(each.code, each.retry) for each in answer.partitions] == [told, ("", False)]
    assert came(rig, answer.request) == [[], [b"1-0"]]
    assert [rig.partition(topic, number).state for number in (0, 1)] == [state, "ok"]


def test_a_partition_is_named_once():
    rig, topic = filled(1)
    places = [m.FetchFrom(topic, 0, 0, 1), m.FetchFrom(topic, 0, 1, 1)]
    assert failure(rig.ask(m.FetchMany, places, 1, 1, WAIT)) == "invalid_request"
    assert not rig.node._desk.fetching_many.standing


def test_one_connection_has_so_many_places_under_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetching_many, "PLACES_MAX", 3)
    rig, topic = filled(0, 0)
    assert ask(rig, topic, 0, 0, wait_ms=WAIT) is None
    refused = ask(rig, topic, 0, 0, wait_ms=WAIT)
    assert (failure(refused), "2 partitions, and 3 is" in refused.message) == ("limit_reached", True)
    assert ask(rig, topic, 0, wait_ms=WAIT) is None
    rig.pass_time(2)
    assert ask(rig, topic, 0, 0, wait_ms=WAIT) is None


def test_so_many_fetches_of_one_connection_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parked, "EACH_MAX", 2)
    rig, topic = filled(0)
    assert [ask(rig, topic, 0, wait_ms=WAIT) for _ in range(2)] == [None, None]
    refused = ask(rig, topic, 0, wait_ms=WAIT)
    assert (failure(refused), "2 fetches" in refused.message) == ("limit_reached", True)
    assert rig.node._desk.fetching_many._places["c"] == 2, "the refused one holds no place"


# -- beside a model -----------------------------------------------------------------------------------


def expected(logs: list[list[bytes]], offsets: list[int], sizes: int, most: int) -> list[list[bytes]]:
    """What an answer has, of logs whose batches have one record and one size."""
    room, found = max(most // sizes, 1), []
    for log, offset in zip(logs, offsets, strict=True):
        found.append(log[offset : offset + room])
        room -= len(found[-1])
    return found


@pytest.mark.parametrize("seed", range(40))
def test_random_fetches_find_what_a_list_of_lists_has(seed: int):
    luck = random.Random(seed)
    count = luck.randint(1, 5)
    rig, topic = filled(*[0] * count)
    logs: list[list[bytes]] = [[] for _ in range(count)]
    waiting: dict[int, tuple[list[int], int, int]] = {}
    rig.produce(rig.topic("sized"), [b"v" * 8])
    size = rig.ask(m.FetchMany, [m.FetchFrom(rig.ask(m.ListTopics, ["sized"]).topics[0].topic, 0, 0, 1)], 1, 1, 0)
    one = size.partitions[0].size_bytes
    for _ in range(60):
        what = luck.random()
        if what < 0.5:
            partition = luck.randrange(count)
            value = b"%d-%06d" % (partition, len(logs[partition]))
            logs[partition].append(value)
            rig.produce(topic, [value], partition)
        elif what < 0.95:
            offsets = [luck.randint(0, len(log)) for log in logs]
            most, least = luck.randint(0, 8 * one), luck.randint(0, 6 * one)
            answer = ask(rig, topic, *offsets, most=most, least=least, wait_ms=luck.choice([0, 10**6]))
            waiting[rig._request] = (offsets, most, least)
            assert answer is None or isinstance(answer, m.FetchedMany)
        else:
            rig.resign()
            waiting.clear()  # their connection is gone
        for request, (offsets, most, least) in list(waiting.items()):
            there = sum(len(log) - offset for log, offset in zip(logs, offsets, strict=True))
            if rig.answers(request):
                assert came(rig, request) == expected(logs, offsets, one, most)
                del waiting[request]
            else:
                assert there * one < min(least, most), "it waits for what is there"
                assert expected(logs, offsets, one, most) == [
                    log[offset:] for log, offset in zip(logs, offsets, strict=True)
                ], "it leaves out what is there"
