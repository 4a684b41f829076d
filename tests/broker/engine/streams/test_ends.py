"""Where topics end: at once, when anything changes, and never at the cost of those who do something meanwhile."""

from __future__ import annotations

import pytest
from penstock.broker.engine.turns.parked import SLACK
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig


def ask(rig: Rig, *known: m.Known, wait_ms: int = 0, peer: str = "c") -> int:
    """Send the question and return its number."""
    request = rig.next_request()
    rig.send(m.AskEnds(request, list(known), wait_ms), peer=peer)
    rig.turn()
    return request


def ends(rig: Rig, request: int) -> list[list[tuple[int, int, int]]] | None:
    """The answer by topic; None when there is none yet."""
    answers = rig.answers(request)
    assert len(answers) <= 1
    if not answers:
        return None
    assert isinstance(answers[0], m.Ends), answers
    return [[(end.first, end.end, end.term) for end in topic] for topic in answers[0].topics]


def filled(*counts: int, **config: float) -> tuple[Rig, bytes]:
    rig = Rig(**config)
    topic = rig.topic(partitions=len(counts))
    for partition, count in enumerate(counts):
        for _ in range(count):
            rig.produce(topic, [b"x"], partition)
    return rig, topic


def test_all_partitions_of_all_topics_are_told_at_once():
    rig, topic = filled(2, 0, 1)
    other = rig.topic("u")
    assert ends(rig, ask(rig, m.Known(topic), m.Known(other))) == [[(0, 2, 1), (0, 0, 0), (0, 1, 1)], [(0, 0, 0)]]
    (refused,) = rig.answers(ask(rig, m.Known(other), m.Known(topic), m.Known(other)))
    assert refused.code == "invalid_request"
    assert ends(rig, ask(rig)) == []


def test_a_topic_that_is_not_there_has_none():
    rig, topic = filled(1)
    gone = bytes(16)
    assert ends(rig, ask(rig, m.Known(gone, [5]), m.Known(topic, [1]), wait_ms=5000)) == [[], [(0, 1, 1)]]


def test_topics_of_penstocks_own_are_not_told_of():
    rig, topic = filled(1)
    rig.ask(m.CommitTransaction, "etl", 1, [])
    own = rig.ask(m.ListTopics, ["__txn"]).topics[0].topic
    (answer,) = rig.answers(ask(rig, m.Known(topic), m.Known(own)))
    assert isinstance(answer, m.Failure)
    assert (answer.code, "__txn is penstock's own" in answer.message) == ("invalid_topic", True)


@pytest.mark.parametrize("known", [[], [3], [2, 1], [1, 1], [2, 0, 0]])
def test_what_differs_from_what_is_known_is_told_at_once(known: list[int]):
    rig, topic = filled(2, 0)
    assert ends(rig, ask(rig, m.Known(topic, known), wait_ms=5000)) == [[(0, 2, 1), (0, 0, 0)]]


def test_a_question_that_waits_is_answered_when_an_end_moves_and_not_before_it_is_committed():
    rig, topic = filled(2, 0)
    request = ask(rig, m.Known(topic, [2, 0]), wait_ms=5000)
    rig.store.hold = True
    rig.produce(topic, [b"new"], 1)
    assert ends(rig, request) is None
    rig.sync()
    assert ends(rig, request) == [[(0, 2, 1), (0, 1, 1)]]
    assert rig.node.stats()["ends.waiting"] == 0


def test_what_moves_in_one_turn_is_told_in_one_answer():
    rig, topic = filled(1, 1)
    request = ask(rig, m.Known(topic, [1, 1]), wait_ms=5000)
    for partition in (0, 1):
        rig.send(m.Produce(rig.next_request(), topic, partition), bytes(encode([b"x"])))
    rig.turn()
    assert ends(rig, request) == [[(0, 2, 1), (0, 2, 1)]]


def test_nothing_but_records_ends_a_wait():
    rig, topic = filled(2)
    request = ask(rig, m.Known(topic, [2]), wait_ms=5000)
    rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])
    rig.produce(rig.topic("u"), [b"another topic's"])
    assert ends(rig, request) is None


def test_a_wait_is_over_when_its_time_is_up_and_has_a_limit():
    rig, topic = filled(2, wait_max_s=2.0)
    request = ask(rig, m.Known(topic, [2]), wait_ms=1000)
    assert rig.node.tick(rig.now) <= 1.0
    rig.pass_time(0.9)
    assert ends(rig, request) is None
    rig.pass_time(0.2)
    assert ends(rig, request) == [[(0, 2, 1)]]
    request = ask(rig, m.Known(topic, [2]), wait_ms=10**9)
    rig.pass_time(2.5)
    assert ends(rig, request) == [[(0, 2, 1)]]


def test_a_topic_that_grows_is_news():
    rig, topic = filled(2)
    request = ask(rig, m.Known(topic, [2]), wait_ms=5000)
    rig.ask(m.AlterTopic, topic, {}, 2)
    rig.turn()  # those who wait are answered by portions, after the one who asked
    assert ends(rig, request) == [[(0, 2, 1), (0, 0, 0)]]


def test_a_topic_that_is_deleted_is_news_to_all_who_asked_about_it():
    rig, topic = filled(2)
    other = rig.topic("u")
    both = ask(rig, m.Known(topic, [2]), m.Known(other, [0]), wait_ms=5000)
    unconcerned = ask(rig, m.Known(other, [0]), wait_ms=5000)
    rig.ask(m.DeleteTopic, topic)
    assert ends(rig, both) == [[], [(0, 0, 0)]]
    again = rig.topic("t")
    rig.produce(again, [b"x"])
    assert ends(rig, unconcerned) is None


def test_who_goes_away_is_forgotten():
    rig, topic = filled(2)
    gone, stays = ask(rig, m.Known(topic, [2]), wait_ms=5000, peer="a"), ask(rig, m.Known(topic, [2]), wait_ms=5000)
    rig.node.disconnect("a")
    rig.produce(topic, [b"x"])
    assert (ends(rig, gone), ends(rig, stays)) == (None, [[(0, 3, 1)]])


def test_a_partition_that_cannot_be_opened_is_said_to_be_so():
    rig, topic = filled(2, 1)
    rig.node.close(rig.now)
    rig.store.files.remove_tree(rig.store.directory(topic, 1))
    rig.restart(clean=False)
    request = ask(rig, m.Known(topic), wait_ms=5000)
    assert rig.answers(request)[0].code == "unavailable"


def test_the_term_is_that_of_the_last_record_also_after_a_restart():
    rig, topic = filled(3, 0)
    for _ in range(2):
        rig.restart()
        rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])  # a batch of a later term, without records
        assert ends(rig, ask(rig, m.Known(topic))) == [[(0, 3, 1), (0, 0, 0)]]
        assert isinstance(rig.fetch(topic, 3, term=1), m.Fetched)
    rig.produce(topic, [b"x"])
    ((first, _),) = ends(rig, ask(rig, m.Known(topic)))
    assert first[2] > 1
    assert isinstance(rig.fetch(topic, 4, term=first[2]), m.Fetched)


def test_where_retention_took_all_records_there_is_no_term():
    rig = Rig()
    topic = rig.topic(retention_bytes=1 << 16, segment_bytes=1 << 16)
    for _ in range(30):
        rig.produce(topic, [b"x" * 10_000])
    rig.pass_time(20)
    ((end,),) = ends(rig, ask(rig, m.Known(topic)))
    assert 0 < end[0] <= end[1] == 30
    assert end[2] == (1 if end[0] < end[1] else 0)


# -- what it costs ------------------------------------------------------------------------------------


def test_those_who_wait_cost_nothing_while_nothing_of_theirs_moves(monkeypatch):
    rig, topic = filled(1)
    busy = rig.topic("busy")
    for number in range(500):
        ask(rig, m.Known(topic, [1]), wait_ms=30_000, peer=f"p{number}")
    watched = rig.node._desk.ends
    calls: list[str] = []
    for name in ("_found", "_answer", "_stand", "_leave"):
        monkeypatch.setattr(watched, name, lambda *_, name=name: calls.append(name))
    for _ in range(50):
        rig.produce(busy, [b"x"])
    rig.pass_time(10)
    assert calls == []


def test_deadlines_of_answered_questions_do_not_pile_up():
    rig, topic = filled(1)
    ask(rig, m.Known(rig.topic("u"), [0]), wait_ms=50_000, peer="patient")
    for number in range(5 * SLACK):
        request = ask(rig, m.Known(topic, [number + 1]), wait_ms=60_000)
        rig.produce(topic, [b"x"])
        assert ends(rig, request) is not None
    assert len(rig.node._desk.ends._parked._due) <= SLACK + 4
    assert rig.node._desk.ends.waiting == 1
    assert list(rig.node._desk.ends.by_topic) == ["u"]
