"""What a turn takes: the more the more connections have something, and from one alone little."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest
from penstock.broker.engine import Now
from penstock.broker.intake import ALONE_S, CALM_S, READ_TURNS, TURN_BYTES, TURN_MESSAGES, TURN_S, Intake
from penstock.broker.latencies import Latencies
from penstock.broker.overdrafts import ACTIVE_S, MULTIPLE, SHARE_S
from penstock.broker.port import SocketPeer
from penstock.broker.quotas import Quota
from penstock.broker.request_names import RequestNames
from penstock.broker.rights import EVERYTHING, Principal
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.message import LIST_MAX

AT = Now(0, 0.0)
STEP_S = SHARE_S / 4
"""What each message takes."""


class Parts:
    """A server, a node, a port and a clock, all of which the intake asks."""

    has_news = True

    def __init__(self, *peers: int, access: Any = None) -> None:
        self.waiting = deque((peer, [codec.encode(m.Ping(1))]) for peer in peers)
        self.taken: list[SocketPeer] = []
        self.said: list[m.Answer] = []
        self.gone: list[int] = []
        self.left: list[SocketPeer] = []
        self.reading: list[int] = []
        self.told: list[SocketPeer] = []
        self.cut = self.asking = 0
        self.now_s = 0.0
        self.steps_s: dict[Any, float] = {}
        any_self = cast("Any", self)
        self.held: list[int] = []
        self.resting: list[SocketPeer] = []
        self.resumed: list[Any] = []
        self.idle_s = 0.0
        self.latencies = Latencies()
        self.names = RequestNames()
        self.sitting: set[int] = set()
        self.heard = 0
        self.meters: dict[Any, Any] = {}
        self.reads = 0
        self.intake = Intake(any_self, any_self, [any_self], lambda: self.now_s, self.processor, access)

    def processor(self) -> float:
        self.reads += 1
        return self.now_s - self.idle_s

    @property
    def readable(self) -> bool:
        return bool(self.waiting)

    def lost(self) -> list[int]:
        return self.gone

    def eased(self, peer: SocketPeer | None = None) -> list[int]:
        if peer is not None:
            self.told.append(peer)
        return self.reading

    def cut_off(self) -> str:
        self.cut += 1
        return "a test"

    def receive(self, *message: Any) -> Any:
        if message:
            self.now_s += self.steps_s.get(message[0].identity, STEP_S)
            self.taken.append(message[0])
            return None
        found = next((each for each in self.waiting if each[0] not in self.sitting), None)
        if found is not None:
            self.waiting.remove(found)
            self.heard = found[0]
        return found

    def hold(self, identity: int) -> None:
        self.held.append(identity)
        self.sitting.add(identity)

    def rest(self, peer: SocketPeer) -> None:
        self.resting.append(peer)

    def speaker(self) -> str:
        return f"uid:{self.heard}"

    def resume(self, which: Any) -> None:
        self.resumed.append(which)
        self.sitting.discard(which)

    def disconnect(self, peer: SocketPeer) -> None:
        self.left.append(peer)

    def reply(self, peer: SocketPeer, message: m.Answer) -> None:
        self.said.append(message)

    def turn(self) -> int:
        """How many messages one turn takes."""
        before = len(self.taken)
        self.intake.begin()
        self.intake.take(cast("Any", self), Now(0, self.now_s))
        return len(self.taken) - before


def test_one_connection_alone_gets_its_share_of_a_turn_and_the_rest_waits():
    parts = Parts(*[1] * 10)
    assert [parts.turn() for _ in range(3)] == [4, 4, 2]
    assert len(parts.taken) == 10


def test_one_that_has_been_alone_for_a_while_gets_a_longer_turn_until_another_one_comes():
    parts = Parts(*[1] * 40)
    assert parts.turn() == 4
    parts.now_s += CALM_S
    assert parts.turn() == round(ALONE_S / STEP_S)
    parts.waiting.appendleft((2, parts.waiting[0][1]))
    parts.waiting.extend(parts.waiting.copy())
    assert parts.turn() <= 8


def test_a_turn_is_the_longer_the_more_connections_have_something():
    parts = Parts(*[1, 2, 3] * 4)
    assert parts.turn() == 10
    assert parts.intake.exhausted
    assert parts.turn() == 2
    assert not parts.intake.exhausted


def test_of_several_connections_one_uses_no_share_but_its_own_and_all_are_heard_before():
    parts = Parts(*[1, 2, 1, 1, 1, 1, 1, 1])
    assert parts.turn() == 5
    assert [peer.identity for peer in parts.taken] == [1, 2, 1, 1, 1]
    parts = Parts(1, 2, 3, 1)
    parts.steps_s[2] = SHARE_S
    assert parts.turn() == 4


def test_a_turn_has_an_end_however_many_connections_there_are(monkeypatch: pytest.MonkeyPatch):
    assert Parts(*range(1000)).turn() == round(TURN_S / STEP_S)
    monkeypatch.setattr(f"{__name__}.STEP_S", 0.0)
    assert Parts(*range(1000)).turn() == TURN_MESSAGES


def test_a_turn_takes_so_many_bytes_and_one_message_of_each_socket_in_any_case(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.STEP_S", 0.0)
    parts, batch = Parts(), bytes(TURN_BYTES // 4)
    produce = codec.encode(m.Produce(1, bytes(16), 0))
    parts.waiting.extend((number % 2, [produce, batch]) for number in range(10))
    assert parts.turn() == 4
    assert parts.intake.exhausted
    parts.intake.take(cast("Any", parts), AT)
    assert len(parts.taken) == 5
    assert [parts.turn(), parts.turn()] == [4, 1]
    assert not parts.intake.exhausted


def test_what_asks_for_too_much_is_answered_and_nonsense_cut_off():
    parts = Parts()
    parts.waiting.append((1, [codec.encode(m.ListTopics(5, ["t"] * (LIST_MAX + 1)))]))
    parts.waiting.append((1, [b"nonsense"]))
    parts.gone, parts.reading = [7], [8]
    assert parts.turn() == 0
    (failure,) = parts.said
    assert isinstance(failure, m.Failure)
    assert (failure.request, failure.code) == (5, "too_much_asked")
    assert (parts.cut, parts.intake.hostile, parts.left) == (1, 1, [SocketPeer(0, 7)])
    assert parts.told == [SocketPeer(0, 8)]


def test_one_that_uses_more_than_its_share_sits_out_with_all_that_it_asked_for():
    parts = Parts(2, 1)
    parts.steps_s[1] = 4 * SHARE_S
    parts.turn()
    assert parts.intake.end() == pytest.approx(parts.now_s + MULTIPLE * 3 * SHARE_S)
    assert (parts.held, parts.resting, parts.resumed) == ([1], [SocketPeer(0, 1)], [])
    parts.now_s += ACTIVE_S + SHARE_S
    parts.intake.begin()
    assert parts.intake.end() == parts.now_s, "work that it asked for goes on in the next turn, which is at once"
    assert parts.resumed == [1, SocketPeer(0, 1)]
    parts.intake.begin()
    assert parts.intake.end() is None


def test_time_in_which_the_broker_did_not_run_is_no_overdraft():
    parts = Parts(2, 1)
    parts.steps_s[1], parts.idle_s = 4 * SHARE_S, 0.0
    receive = parts.receive

    def interrupted(*message: Any) -> Any:
        found = receive(*message)
        if message:
            parts.idle_s += 4 * SHARE_S - SHARE_S / 2 if message[0].identity == 1 else 0.0
        return found

    parts.receive = interrupted  # pyright: ignore[reportAttributeAccessIssue]
    parts.turn()
    assert parts.intake.end() is None
    assert parts.held == []


def test_the_clock_of_the_processor_is_read_after_a_long_turn_and_after_so_many_short_ones():
    parts, ping = Parts(), [codec.encode(m.Ping(1))]
    for _ in range(READ_TURNS):
        assert parts.reads == 1, "when it began"
        parts.waiting.append((1, ping))
        assert parts.turn() == 1
        parts.intake.end()
    assert parts.reads == 2
    parts.steps_s[1] = 2 * SHARE_S
    parts.waiting.append((1, ping))
    parts.turn()
    assert parts.reads == 3


def test_turns_before_a_long_one_are_not_taken_for_time_in_which_it_ran():
    parts, ping = Parts(), [codec.encode(m.Ping(1))]
    parts.steps_s |= {2: SHARE_S / 2, 1: 4 * SHARE_S}
    end_s = None
    for peer in (2, 2, 2, 1):
        parts.waiting.append((peer, ping))
        parts.idle_s += 2 * SHARE_S if peer == 1 else 0.0  # others had the processor for half of it
        parts.turn()
        end_s = parts.intake.end()
    assert end_s == pytest.approx(parts.now_s + MULTIPLE * (4 * SHARE_S / 2 - SHARE_S))
    assert parts.held == [1]
    parts.waiting.append((1, ping))  # all that was read stands for itself
    parts.sitting.clear()
    parts.idle_s += 4 * SHARE_S
    parts.turn()
    assert (parts.intake.end(), parts.held) == (parts.now_s, [1])


def test_of_a_turn_with_two_sockets_the_second_is_not_charged_for_the_first_and_each_long_turn_for_itself():
    parts, ping = Parts(), [codec.encode(m.Ping(1))]
    parts.steps_s |= {2: SHARE_S / 2, 1: 4 * SHARE_S, 3: 4 * SHARE_S, 4: 4 * SHARE_S}
    parts.intake.begin()
    for peer, idle in ((2, 0.0), (1, 3.2 * SHARE_S)):
        parts.waiting.append((peer, ping))
        parts.idle_s += idle
        parts.intake.take(cast("Any", parts), Now(0, parts.now_s))
    parts.intake.end()
    assert parts.held == [], "it ran for less than a share"
    for peer in (3, 4):
        parts.waiting.append((peer, ping))
        parts.turn()
        parts.intake.end()
    assert parts.held == [3, 4]


def test_long_work_counts_for_those_who_asked_for_it_by_its_steps():
    parts = Parts(1)
    parts.turn()
    parts.intake.worked({SocketPeer(0, 2): 3, SocketPeer(0, 3): 1}, 4 * SHARE_S)
    assert parts.intake.end() is not None
    assert parts.held == [2, 3]
    parts.now_s += 0.1
    parts.turn()
    parts.intake.end()
    assert parts.resumed == [2, SocketPeer(0, 2), 3, SocketPeer(0, 3)]


def test_one_that_is_lost_is_forgotten():
    parts = Parts(2, 1)
    parts.steps_s[1] = 4 * SHARE_S
    parts.turn()
    assert parts.intake.end() is not None
    parts.gone = [1]
    parts.turn()
    assert parts.intake.end() is None
    assert parts.resumed == []


def test_turns_and_what_came_in_them_are_counted():
    parts = Parts(1, 1, 1)
    parts.turn()
    parts.intake.end()
    stats = parts.intake.stats()
    assert (stats["received.bytes"], stats["received.hostile"]) == (0, 0)
    assert (stats["turns"], sum(stats["turns.us"][1:])) == (1, 1)
    assert parts.latencies.stats()["requests.by_kind"] == {"Ping": 3}


# -- quotas --------------------------------------------------------------------------------------------------


class Users:
    """The users of peers: of 1 and 2 ann, who has a quota, of others bob, who has none."""

    def __init__(self, **bounds: int) -> None:
        self.ann = Principal("ann", EVERYTHING, quota=Quota(**bounds))
        self.bob = Principal("bob", EVERYTHING)

    def refresh(self, now_s: float) -> bool:
        return False

    def of_peer(self, speaker: str) -> Principal:
        return self.ann if speaker in ("uid:1", "uid:2") else self.bob


def turns(parts: Parts, count: int, *asking: int) -> list[tuple[list[int], float]]:
    """Which peers each of so many turns heard while these ask, and how long it took."""
    found = []
    for _ in range(count):
        before, begun_s = len(parts.taken), parts.now_s
        parts.waiting.extend((peer, [codec.encode(m.Ping(1))]) for peer in asking)
        parts.turn()
        found.append(([peer.identity for peer in parts.taken[before:]], round(parts.now_s - begun_s, 9)))
        parts.intake.end()
        parts.now_s += STEP_S
    return found


def test_a_user_at_its_quota_sits_out_and_the_others_are_heard_as_without_it():
    flooded = Parts(access=Users(requests_s=1))
    flood, with_flood = [1] * 20, turns(flooded, 12, *[1] * 20, 3)
    alone = turns(Parts(access=Users(requests_s=1)), 12, 3)
    assert with_flood[0][0].count(1) == 2, "what it had saved up, and the one that put it into debt"
    assert with_flood[1:] == alone[1:]
    assert (flooded.held, flooded.resting) == ([1], [SocketPeer(0, 1)])
    flooded.now_s += 1.0
    assert flooded.intake.end() == flooded.now_s
    assert flooded.intake.end() is None
    assert flooded.resumed == [1, SocketPeer(0, 1)]
    assert turns(flooded, 1, 3)[0][0].count(1) == 1
    free = turns(Parts(access=Users(requests_s=1)), 12, *[4] * len(flood), 3)
    assert sum(heard.count(4) for heard, _ in free) > 10, "a user without a quota goes on"


def test_the_end_of_the_pause_is_when_to_look_next():
    parts = Parts(1, 1, 1, access=Users(requests_s=2))
    parts.steps_s[1] = 0.0
    parts.turn()
    assert parts.intake.end() == 0.5
    parts.now_s = 0.4
    parts.intake.end()
    assert parts.resumed == []


def test_what_cannot_sit_out_is_told_when_to_ask_again():
    parts = Parts(access=Users(in_flight=1))
    parts.waiting.extend((1, [codec.encode(m.Stats(number))]) for number in (1, 2))
    parts.turn()
    (refused,) = parts.said
    assert isinstance(refused, m.Failure)
    assert (refused.request, refused.code, refused.retry, refused.after_ms) == (2, "overloaded", True, 100)
    assert len(parts.taken) == 1
    stats = parts.intake.stats()
    assert (stats["quota.pauses"], stats["quota.refused"]) == (0, 1)


def test_connections_of_a_user_are_bounded_and_what_needs_no_answer_is_dropped_beyond():
    parts = Parts(1, 2, 3, access=Users(connections=1))
    parts.waiting.append((2, [codec.encode(m.Credit(1, 1, 1))]))
    parts.turn()
    assert [peer.identity for peer in parts.taken] == [1, 3]
    assert [cast("m.Failure", each).code for each in parts.said] == ["overloaded"]
    parts.gone, parts.waiting = [1], deque([(2, [codec.encode(m.Ping(1))])])
    parts.turn()
    assert parts.taken[-1].identity == 2


def test_answers_that_a_port_counts_end_what_is_in_flight():
    parts = Parts(access=Users(in_flight=1, bytes_s=10))
    parts.waiting.append((1, [codec.encode(m.Stats(1))]))
    parts.turn()
    parts.meters[SocketPeer(0, 1)].answered(SocketPeer(0, 1), 1, 15, 0.0)
    parts.waiting.append((1, [codec.encode(m.Stats(2))]))
    parts.turn()
    assert len(parts.taken) == 2
    assert (parts.said, parts.held) == ([], [1])
