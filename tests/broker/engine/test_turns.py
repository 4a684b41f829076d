"""What one request costs a turn, whatever it is: little enough that others are answered in the turn they ask in.

Work is counted in lines of Python, which any machine counts alike: some ten thousand are a millisecond.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig

from perf.load import requests
from perf.load.requests import KINDS, PATIENT, WHOLE, Subjects

PARTITIONS = 300
WAITING = 1000
LINES_MAX = 10_000
LARGER = {m.AskEnds: 20_000, m.BeginGroup: 12_000, m.Join: 22_000, m.Lease: 29_000, m.SetQueue: 14_000}
"""Of types that look at 300 partitions, or at 16,384 entries, in one step."""
CROWD_LINES_MAX = 45_000
"""Of a turn in which a thousand requests that wait for the same are begun to be answered."""
BYTES_MAX = 8 << 20
SMALL = bytes(encode([b"v"] * 10))


class Count:
    lines = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Count the lines of ours that are run."""
    found = Count()

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if event == "line":
            found.lines += 1
        module = frame.f_globals.get("__name__", "")
        return trace if module.startswith("penstock") and not module.endswith("memory_files") else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


class Place:
    """A node with a topic of many partitions, and what may be asked about."""

    def __init__(self) -> None:
        self.rig = rig = Rig(wait_max_s=300.0)
        self.wide, self.narrow = rig.topic("wide", PARTITIONS), rig.topic("narrow")
        self.work, self.own = rig.topic("work"), rig.topic("own")
        for topic in (self.narrow, self.work):
            rig.produce(topic, [b"x" * 100] * 3000)
        for topic in (self.wide, self.work):
            rig.ask(m.SetQueue, topic, "q", {"max_attempts": 1, "backoff_s": 0})
        rig.ask(m.Commit, 0, self.wide, "c", [m.Position(number, 0, 0) for number in range(PARTITIONS)])
        lease = rig.lease(self.work, "q", 2000)
        rig.settle(self.work, m.Settle(0, lease.token, 2, []), group="q")  # dead
        self.lease = rig.lease(self.work, "q", 500)
        self.session = rig.join(self.wide, credit=(0, 0), timeout_ms=300_000).session

    def requests(self) -> dict[type, list[m.Request]]:
        """By type, as much as one may ask for."""
        return requests.most(self.subjects)

    @property
    def subjects(self) -> Subjects:
        return Subjects(self.wide, self.narrow, self.work, PARTITIONS, self.session, self.lease.token)

    def turn(self, request: m.Request, payload: bytes = b"", most: int = LINES_MAX) -> None:
        """A turn of the broker's loop with this request and those of another connection, which are answered in it."""
        rig = self.rig
        ping, produce, sent = rig.next_request(), rig.next_request(), len(rig.port.sent)
        with counted() as count:
            rig.send(request, payload, peer="hostile")
            rig.send(m.Ping(ping), peer="victim")
            rig.send(m.Produce(produce, self.own, 0), SMALL, peer="victim")
            for _ in range(2):
                for log in rig.node.flush(rig.now):
                    log.sync()
                rig.node.advance(rig.now)
                rig.node.tick(rig.now)
        assert [type(rig.answers(number)[0]) for number in (ping, produce)] == [m.Done, m.Produced]
        assert count.lines <= most
        assert sum(len(payload) for _, _, payload in rig.port.sent[sent:]) <= BYTES_MAX


@pytest.fixture(scope="module")
def place() -> Place:
    return Place()


def test_every_request_is_asked():
    subjects = Place().subjects
    assert set(requests.most(subjects)) == set(requests.usual(subjects)) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_others_are_answered_in_the_turn_they_ask_in_and_no_turn_is_long(place: Place, kind: type):
    rig = place.rig
    for request in place.requests()[kind]:
        asked = request
        for _ in range(4):
            if "request" in request.__struct_fields__:
                asked = replace(request, request=rig.next_request())
            place.turn(asked, WHOLE if kind is m.Produce else b"", LARGER.get(kind, LINES_MAX))
        rig.node.disconnect("hostile")
        while rig.node.tick(rig.now) == 0.0:
            rig.turn()


@pytest.mark.parametrize("named", [False, True])
def test_no_turn_describes_many_topics_however_few_partitions_they_have(named: bool):
    place = Place()
    names = [f"t{number}" for number in range(500)]
    for name in names:
        place.rig.topic(name)
    request = m.ListTopics(place.rig.next_request(), names if named else [])
    place.turn(request)
    assert not place.rig.answers(request.request)
    while not place.rig.answers(request.request):
        place.turn(m.Ping(place.rig.next_request()))


def parked(place: Place) -> dict[type, list[m.Request]]:
    """By type, what waits for one record each, and for the same partition."""
    narrow, work = place.narrow, place.work
    known = [m.Known(narrow, [3000])]
    return {
        m.Fetch: [m.Fetch(1, narrow, 0, 3000, -1, 1 << 20, PATIENT) for _ in range(WAITING)],
        m.FetchMany: [
            m.FetchMany(1, [m.FetchFrom(narrow, 0, 3000, 1 << 20)], 1 << 20, 1, PATIENT) for _ in range(WAITING)
        ],
        m.AskTask: [m.AskTask(1, work, "q", 0, 2000 + number % 1000, PATIENT) for number in range(WAITING)],
        m.AskEnds: [m.AskEnds(1, known, PATIENT) for _ in range(WAITING)],
        m.Lease: [m.Lease(1, narrow, "lines", "w", 1, wait_ms=PATIENT, start=-2) for _ in range(WAITING)],
    }


@pytest.mark.parametrize("kind", [m.Fetch, m.FetchMany, m.AskTask, m.AskEnds, m.Lease], ids=lambda kind: kind.__name__)
def test_what_waits_in_great_numbers_is_answered_in_portions_and_all_of_it(kind: type):
    place = Place()
    rig = place.rig
    asked = [replace(each, request=rig.next_request()) for each in parked(place)[kind]]
    for request in asked:
        rig.send(request, peer="hostile")
    rig.turn()
    assert not any(rig.answers(request.request) for request in asked[:3])
    mine = rig.next_request()
    rig.send(replace(asked[0], request=mine), peer="victim")
    if kind is m.AskTask:
        settle = m.Settle(0, place.lease.token, 0, [])
        place.turn(m.SettleTasks(rig.next_request(), place.work, "q", [settle]), most=CROWD_LINES_MAX)
    else:
        records = bytes(encode([b"v"] * (WAITING + 1)))
        place.turn(m.Produce(rig.next_request(), place.narrow, 0), records, CROWD_LINES_MAX)
    if kind is not m.Lease:
        assert len(rig.answers(mine)) == 1, "it does not stand behind all that others wait for"
    for _ in range(WAITING):
        place.turn(m.Ping(rig.next_request()), most=CROWD_LINES_MAX)
        if rig.node.tick(rig.now) > 0.0:
            break
    ended = [kind is not m.AskTask or number % 1000 < 500 for number in range(WAITING)]
    assert [len(rig.answers(request.request)) for request in asked] == ended
