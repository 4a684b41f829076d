"""What a node refuses a principal: its own sessions alone, lists of what it may see, and revocation."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.rights import DECIDED_MOST, Grant, Principal
from penstock.transport import messages as m
from support.engine import Rig


def user(name: str, *grants: str) -> Principal:
    """A principal by lines like "read,write topic:a", with a ! in front of what is denied."""
    found = [each.removeprefix("!").partition(" ") for each in grants]
    denies = [each.startswith("!") for each in grants]
    return Principal(
        name, [Grant(no, frozenset(ops.split(",")), what) for no, (ops, _, what) in zip(denies, found, strict=True)]
    )


ALL = "see,read,write,manage *"


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.principal = user("root", ALL)
    return made


def code(answer: Any) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def as_(rig: Rig, principal: Principal) -> None:
    rig.principal = principal


ASK_WITH_SESSION = {
    "ping": lambda rig, joined, topic: rig.ask(m.Ping, joined.session),
    "seek": lambda rig, joined, topic: rig.ask(m.SeekTo, joined.session, 0, 0),
    "commit": lambda rig, joined, topic: rig.ask(
        m.Commit, joined.session, topic, "g", [m.Position(0, 1, joined.assignments[0].epoch)]
    ),
}


@pytest.mark.parametrize("verb", ASK_WITH_SESSION)
def test_a_session_of_another_principal_is_unknown(rig: Rig, verb: str):
    topic = rig.topic()
    rig.produce(topic, [b"x"])
    as_(rig, user("ann", "read *"))
    joined = rig.join(topic, "g", "m")
    as_(rig, user("bob", ALL))
    stranger = ASK_WITH_SESSION[verb](rig, joined, topic)
    missing = ASK_WITH_SESSION[verb](rig, m.Joined(0, 5, "", -1, joined.assignments), topic)
    assert code(stranger) == code(missing) == "unknown_session"
    as_(rig, user("ann", "read *"))
    assert isinstance(ASK_WITH_SESSION[verb](rig, joined, topic), m.Done)


def test_a_session_of_another_principal_gets_no_credit_and_goes_on(rig: Rig):
    topic = rig.topic()
    as_(rig, user("ann", "read *"))
    joined = rig.join(topic, delivery="control", credit=(0, 0), peer="a")
    as_(rig, user("bob", ALL))
    rig.produce(topic, [b"secret"])
    rig.send(m.Credit(joined.session, 1 << 20, 100), peer="b")
    rig.send(m.Release(joined.session, [0]), peer="b")
    assert isinstance(rig.ask(m.Leave, joined.session, peer="b"), m.Done)
    assert [each.code for each in rig.told(joined.session) if isinstance(each, m.Evicted)] == ["unknown_session"] * 2
    assert not [each for _, each, _ in rig.port.sent if isinstance(each, m.Deliver)]
    as_(rig, user("ann", "read *"))
    rig.send(m.Credit(joined.session, 1 << 20, 100), peer="a")
    rig.turn()
    assert [peer for peer, each, _ in rig.port.sent if isinstance(each, m.Deliver)] == ["a"]


def test_ids_of_sessions_cannot_be_counted(rig: Rig):
    topic = rig.topic()
    ids = [rig.join(topic).session for _ in range(50)]
    assert len(set(ids)) == 50
    assert max(ids) < 2**63
    assert min(abs(one - other) for one in ids for other in ids if one != other) > 2**40


def test_lists_show_what_may_be_seen(rig: Rig):
    for name in ("open", "secret"):
        topic = rig.topic(name)
        for group in ("mine", "theirs"):
            rig.ask(m.SetQueue, topic, group, {})
            rig.ask(m.SetSchedule, topic, group, "every 1h", "UTC", b"x")
            rig.join(topic, f"{group}-s", "m")
    as_(rig, user("ann", "read topic:open", "read group:open/mine*", "write schedule:open/mine"))
    assert [each.name for each in rig.ask(m.ListTopics, []).topics] == ["open"]
    assert [(each.topic_name, each.group) for each in rig.ask(m.ListQueues).queues] == [("open", "mine")]
    assert [(each.topic_name, each.name) for each in rig.ask(m.ListSchedules).schedules] == [("open", "mine")]
    assert [(each.topic_name, each.group) for each in rig.ask(m.ListGroups, b"").groups] == [("open", "mine-s")]
    assert code(rig.ask(m.ListTopics, ["secret"])) == code(rig.ask(m.ListTopics, ["none"])) == "forbidden"
    assert code(rig.ask(m.Stats)) == "forbidden"
    as_(rig, user("ann", "see *"))
    assert len(rig.ask(m.ListTopics, []).topics) == 2
    assert isinstance(rig.ask(m.Stats), m.StatsReply)


def test_who_lists_does_not_change_while_it_is_listed(rig: Rig):
    for number in range(300):
        rig.topic(f"t{number}")
    as_(rig, user("ann", "see topic:t1"))
    listing = rig.next_request()
    rig.send(m.ListTopics(listing, []))
    as_(rig, user("bob", ALL))
    rig.send(m.Ping(rig.next_request()))
    rig.turn(20)
    assert [each.name for each in rig.answers(listing)[0].topics] == ["t1"]


def test_a_session_belongs_to_the_one_that_asked_for_it_however_long_it_takes(rig: Rig):
    topic = rig.topic(partitions=64)
    as_(rig, user("ann", "read *"))
    request = rig.next_request()
    rig.send(m.Join(request, topic, "", "", "control", m.EARLIEST, [], 10_000, 1, 1))
    as_(rig, user("bob", ALL))
    rig.send(m.Ping(rig.next_request()))
    while not rig.answers(request):
        rig.turn()
    (joined,) = rig.answers(request)
    assert code(rig.ask(m.Ping, joined.session)) == "unknown_session"
    as_(rig, user("ann"))
    assert isinstance(rig.ask(m.Ping, joined.session), m.Done)


def test_a_topic_of_the_same_name_is_the_same_resource(rig: Rig):
    topic = rig.topic("t")
    ann = user("ann", "read topic:t")
    as_(rig, ann)
    assert isinstance(rig.fetch(topic, 0), m.Fetched)
    as_(rig, user("root", ALL))
    rig.ask(m.DeleteTopic, topic)
    again = rig.topic("t")
    as_(rig, ann)
    assert code(rig.fetch(topic, 0)) == "unknown_topic"
    assert isinstance(rig.fetch(again, 0), m.Fetched)
    assert code(rig.produce(again, [b"x"])) == "forbidden"


def test_sessions_end_when_what_they_read_is_not_allowed_any_more(rig: Rig):
    topic, other = rig.topic("t"), rig.topic("u")
    as_(rig, user("ann", "read *"))
    joined, alone, grouped = rig.join(topic), rig.join(other), rig.join(other, "g", "m")
    rig.node.judge(lambda name: user(name, "read topic:u", "read group:u/g"))
    assert [each.code for each in rig.told(joined.session) if isinstance(each, m.Evicted)] == ["forbidden"]
    rig.node.judge(lambda name: user(name, "read topic:u"))
    assert [each.code for each in rig.told(grouped.session) if isinstance(each, m.Evicted)] == ["forbidden"]
    assert isinstance(rig.ask(m.Ping, alone.session), m.Done)
    rig.node.judge(user)
    assert [each.code for each in rig.told(alone.session) if isinstance(each, m.Evicted)] == ["forbidden"]


def test_without_principals_everything_is_allowed_and_a_session_is_anyones_that_knows_its_id():
    rig = Rig()
    joined = rig.join(rig.topic(), delivery="control", peer="a")
    assert isinstance(rig.ask(m.Ping, joined.session, peer="b"), m.Done)
    assert rig.node.guard.refused == 0


def test_a_refusal_says_who_may_not_do_what_and_is_counted(rig: Rig):
    topic = rig.topic("t")
    as_(rig, user("ann", "read topic:t*", "!read topic:t"))
    answer = rig.fetch(topic, 0)
    assert (answer.code, answer.retry) == ("forbidden", False)
    assert answer.message.startswith("user ann may not read topic:t:")
    assert (rig.node.guard.refused, rig.node.guard.last_refusal) == (1, "ann may not read topic:t")


def test_what_passed_once_is_not_passed_for_another_topic_group_or_principal(rig: Rig):
    topic, other = rig.topic("t"), rig.topic("u")
    ann = user("ann", "write topic:t", "read topic:t", "read group:t/g")
    as_(rig, ann)
    for _ in range(2):
        assert isinstance(rig.produce(topic, [b"x"]), m.Produced)
        assert isinstance(rig.lease(topic, "g"), m.Leased)
        assert code(rig.produce(other, [b"x"])) == code(rig.lease(topic, "h")) == "forbidden"
        assert code(rig.produce(bytes(16), [b"x"])) == "unknown_topic"
    assert ann.passed == {(m.Produce, topic, ""), (m.Lease, topic, "g")}
    as_(rig, user("ann"))
    assert code(rig.produce(topic, [b"x"])) == code(rig.lease(topic, "g")) == "forbidden"


def test_so_many_requests_are_remembered():
    ann = user("ann", ALL)
    for number in range(DECIDED_MOST + 1):
        ann.remember(number)
    assert ann.passed == {DECIDED_MOST}


def test_names_without_end_are_refused_in_few_words_and_not_remembered(rig: Rig):
    topic, endless = rig.topic("t"), "x" * 100_000
    ann = user("ann", "read topic:t", "read group:t/*")
    as_(rig, ann)
    for answer in (
        rig.ask(m.CreateTopic, endless, 1, {}), rig.ask(m.CommitTransaction, endless, 1, []),
        rig.ask(m.ListTopics, [endless]), rig.ask(m.DeleteGroup, topic, endless),
    ):  # fmt: skip
        assert code(answer) == "forbidden"
        assert len(answer.message) < 700
    assert len(rig.node.guard.last_refusal) < 600
    rig.lease(topic, endless)  # which is allowed, and then refused as no name
    assert ann.passed == set()
    assert all(len(resource) < 500 for _, resource in ann.decided)
