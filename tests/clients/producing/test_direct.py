"""Producers that append by themselves: when they do, when not, and that no record is lost or there twice."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from penstock.clients import InvalidArgument, connect
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.producing import direct
from penstock.clients.producing.direct import ASK_MIN_S, PAUSES, REASONS, WORTH
from penstock.transport.messages import GiveBack, Lend, Moved, Produce
from support.interrupts import interrupts
from support.lent_lane import Lending
from support.locks import is_free

ENDS = ("no room", "trouble", "in doubt", "in doubt, stands")


@pytest.fixture
def client(penstock_client):
    penstock_client.create_topic("t")
    return penstock_client


@pytest.fixture
def lending(client, monkeypatch) -> Iterator[Lending]:
    with connect(client.url) as other:
        yield Lending(other, monkeypatch)


def values(client) -> list[bytes]:
    return [record.value for record in client.read("t", 0, 0, max_records=100_000)]


def test_a_record_that_is_appended_is_settled_when_the_call_returns(client, lending) -> None:
    with client.producer("t", direct=True) as producer:
        assert [producer.send(b"%d" % number) for number in range(5)] == list(range(5))
        assert producer.direct
        assert producer.direct.partitions == [0]
        assert producer.direct.reasons == {}
        future = producer.send_nowait(b"5")
        assert future.done()
        assert future.result() == 5
    assert lending.through_broker == 0
    assert lending.said == [Lend, GiveBack]
    assert all(appender.closed for appender in lending.appenders)
    assert values(client) == [b"%d" % number for number in range(6)]


def test_a_producer_says_of_each_partition_why_it_does_not_append_to_it(client, lending, caplog) -> None:
    client.create_topic("two", partitions=2)
    lending.refusals.append("it has a queue group")
    with client.producer("two", direct=True) as producer, caplog.at_level(logging.WARNING):
        assert "nothing was sent" in producer.direct.reasons[0]
        producer.send(b"x", partition=1)
        producer.send(b"x", partition=1)
        assert not producer.direct
        assert producer.direct.reasons[1] == "it has a queue group"
    assert caplog.messages == ["records of topic two for partition 1 go through the broker: it has a queue group"]
    with client.producer("t") as plain:
        assert plain.direct.reasons == {0: "direct=True was not given"}
    assert lending.said == [Lend]
    assert lending.through_broker == 2


def test_one_reason_for_many_partitions_is_told_once_and_then_with_their_number(client, lending, caplog) -> None:
    client.create_topic("many", partitions=101)
    lending.refusals += [f"partition {number} of topic many cannot be lent: it is durable" for number in range(101)]
    lending.refusals += ["it has a queue group"] * 2
    with client.producer("many", direct=True) as producer, caplog.at_level(logging.WARNING):
        for number in range(101):
            producer.send(b"x", partition=number)
        for sender in producer._core.senders[:2]:
            sender._ask_at = 0.0
            producer.send(b"x", partition=sender.partition)
        assert "partition 7 of topic many" in producer.direct.reasons[7]
    assert caplog.messages == [
        "records of topic many for partition 0 go through the broker: "
        "partition 0 of topic many cannot be lent: it is durable",
        "records of topic many for 10 partitions go through the broker: "
        "a partition of topic many cannot be lent: it is durable",
        "records of topic many for 100 partitions go through the broker: "
        "a partition of topic many cannot be lent: it is durable",
        "records of topic many for partition 0 go through the broker: it has a queue group",
    ]


def test_a_producer_remembers_a_bounded_number_of_reasons(client, lending, caplog) -> None:
    lending.refusals += [str(number % (REASONS + 1)) for number in range(2 * REASONS + 2)] + [str(REASONS)]
    with client.producer("t", direct=True) as producer, caplog.at_level(logging.WARNING):
        for _ in range(2 * REASONS + 3):
            producer._core.senders[0]._ask_at = 0.0
            producer.send(b"x")
        assert len(producer._core._reasons) <= REASONS
    assert len(caplog.messages) == 2 * REASONS + 2


def test_a_reason_that_is_known_is_not_told_again_though_no_more_are_remembered(client, lending, caplog) -> None:
    lending.refusals += [*map(str, range(REASONS)), "0"]
    with client.producer("t", direct=True) as producer, caplog.at_level(logging.WARNING):
        for _ in range(REASONS + 1):
            producer._core.senders[0]._ask_at = 0.0
            producer.send(b"x")
    assert len(caplog.messages) == REASONS


def test_after_a_refusal_it_asks_again_later_and_less_often(client, lending, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(client._connection, "clock", lambda: now[0])
    lending.refusals += ["no"] * 3
    with client.producer("t", direct=True) as producer:
        asked = []
        for _ in range(100):
            before = len(lending.said)
            producer.send(b"x")
            if len(lending.said) > before:
                asked.append(now[0])
            now[0] += 1.0
        assert asked == [0.0, ASK_MIN_S, 3 * ASK_MIN_S, 7 * ASK_MIN_S]
        assert producer.direct


@pytest.fixture
def cheap(monkeypatch) -> None:
    """A grant is worth having for one batch."""
    monkeypatch.setattr(direct, "WORTH", 1)


@pytest.mark.parametrize("what", ENDS)
def test_what_an_appender_does_not_finish_goes_through_the_broker_once(client, lending, cheap, what: str) -> None:
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        lending.script.append(what)
        assert producer.send(b"1") == 1
        assert lending.through_broker == 1
        assert producer.send(b"2") == 2
        assert producer.send_many([b"3", b"4"]) == 2
        assert bool(producer.direct) == (what != "trouble")
    assert values(client) == [b"%d" % number for number in range(5)]


def test_why_grants_are_good_for_little_is_told_once(client, lending, caplog) -> None:
    """As for a topic whose records are compressed: each grant of it ends with its first record."""
    with client.producer("t", direct=True) as producer, caplog.at_level(logging.WARNING):
        for _ in range(WORTH):
            producer.send(b"direct")
        for told in (0, 1, 1):
            lending.script.append("no room")
            producer.send(b"through the broker")
            line = f"records of topic t for partition 0 go through the broker: {producer.direct.reasons[0]}"
            assert caplog.messages == [line] * told
            producer._core.senders[0]._ask_at = 0.0


def test_a_grant_that_was_good_for_little_is_asked_for_again_later(client, lending, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(client._connection, "clock", lambda: now[0])
    with client.producer("t", direct=True) as producer:
        for number in range(WORTH - 1):
            assert producer.send(b"%d" % number) == number
        lending.script.append("no room")
        producer.send(b"odd")
        assert lending.through_broker == 1
        assert producer.direct.reasons == {0: "no room"}
        now[0] += ASK_MIN_S - 0.1
        producer.send(b"through the broker")
        now[0] += 0.2
        for number in range(WORTH):
            producer.send(b"%d" % number)
        assert (lending.through_broker, lending.said.count(Lend)) == (2, 2)
        lending.script.append("no room")
        producer.send(b"odd")
        producer.send(b"direct at once")
        assert producer.direct
    assert (lending.through_broker, lending.said.count(Lend)) == (3, 3)


def test_a_question_for_a_log_that_an_interrupt_kept_from_being_sent_is_sent(client, lending, monkeypatch) -> None:
    post, posted = client._connection.post, []

    def interrupted(question) -> None:
        posted.append(question)
        if len(posted) == 1:
            raise KeyboardInterrupt
        post(question)

    with client.producer("t", direct=True) as producer:
        monkeypatch.setattr(client._connection, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"0")
        producer.flush(timeout=20)
        assert len(posted) == 2
        assert producer.direct
    assert values(client) == [b"0"]


def test_a_producer_says_at_once_that_its_log_was_taken_back(client, lending) -> None:
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        lending.end()
        assert not producer.direct
        assert "next record" in producer.direct.reasons[0]
        producer.send(b"1")
        assert producer.direct


def test_a_log_that_was_taken_back_is_asked_for_again_before_the_next_record(client, lending) -> None:
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        lending.end()
        producer.send(b"1")
        assert producer.direct
    assert lending.through_broker == 0
    assert values(client) == [b"0", b"1"]


@pytest.mark.parametrize("pauses", [1, PAUSES, PAUSES + 1])
def test_while_the_broker_borrows_the_log_it_waits_a_moment(client, lending, cheap, pauses: int) -> None:
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        lending.script += ["paused"] * pauses
        assert producer.send(b"1") == 1
        assert producer.send(b"2") == 2
    assert lending.through_broker == (pauses > PAUSES)
    assert values(client) == [b"0", b"1", b"2"]


def test_a_borrowed_log_is_looked_for_soon_at_first_and_less_often_later(client, lending, monkeypatch) -> None:
    """A borrow takes the broker some 100 us, and a record that waits longer waits for nothing."""
    now = [0.0]
    monkeypatch.setattr(client._connection, "clock", lambda: now[0])
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        lending.script += ["paused"] * 6
        future, tried, left = producer.send_nowait(b"1"), [0.0], len(lending.script)
        while not future.done():
            now[0] += 0.00005
            producer._core.senders[0].turn(now[0])
            if len(lending.script) < left or future.done():
                tried.append(now[0])
                left = len(lending.script)
        waits = [later - earlier for earlier, later in pairwise(tried)]
        assert waits == pytest.approx([0.0001, 0.0002, 0.0004, 0.0008, 0.001, 0.001], abs=0.00006)
        assert lending.through_broker == 0


def test_records_that_come_while_the_log_is_asked_for_follow_in_order(client, lending) -> None:
    lending.holding = True
    with client.producer("t", direct=True) as producer, producer._driver.lock:
        futures = [producer.send_nowait(b"%d" % number) for number in range(10)]
        assert not any(future.done() for future in futures)
        lending.holding = False
        sender = producer._core.senders[0]
        lending.answer(client._connection.channel, sender._question(sender._asking.request))
        client._connection.turn()
        assert [future.result() for future in futures] == list(range(10))
    assert values(client) == [b"%d" % number for number in range(10)]
    assert lending.through_broker == 0


def test_nothing_is_appended_behind_a_batch_that_the_broker_has_yet_to_answer(client, lending) -> None:
    lending.refusals.append("not now")
    with client.producer("t", direct=True) as producer, producer._driver.lock:
        futures = [producer.send_nowait(b"0")]
        client._connection.turn()
        assert lending.through_broker == 1
        sender = producer._core.senders[0]
        assert not futures[0].done()
        sender._ask_at = 0.0
        futures.append(producer.send_nowait(b"1"))
        sender.ship()
        assert lending.said == [Lend]
        client._connection.turn()
        assert [future.result() for future in futures] == [0, 1]
    assert lending.through_broker == 2
    assert values(client) == [b"0", b"1"]


@pytest.mark.parametrize("script", ["in doubt", "in doubt, stands", "interrupted, stands"])
def test_a_batch_in_doubt_goes_through_the_broker_alone_however_long_that_takes(
    client, lending, monkeypatch, script: str
) -> None:
    with client.producer("t", direct=True) as producer, producer._driver.lock:
        producer.send(b"0")
        send, full = LocalChannel.send, [True]
        monkeypatch.setattr(
            LocalChannel, "send",
            lambda channel, message, payload=b"": not (full and type(message) is Produce
            and channel is client._connection.channel) and send(channel, message, payload),
        )  # fmt: skip
        lending.script.append(script)
        try:
            producer.send_nowait(b"1")
        except KeyboardInterrupt:
            assert script.startswith("interrupted")
        for _ in range(3):
            producer._core.senders[0]._ask_at = 0.0
            client._connection.turn()
        assert (lending.said, lending.through_broker) == ([Lend], 0)
        full.clear()
        for _ in range(3):
            client._connection.turn()
    assert lending.through_broker == 1
    assert values(client) == [b"0", b"1"]


def test_records_one_upon_the_other_gather_and_lone_ones_do_not(client, lending, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(client._connection, "clock", lambda: now[0])
    with client.producer("t", direct=True) as producer, producer._driver.lock:
        producer.send(b"x" * 100)
        for _ in range(10):
            now[0] += 1e-3
            producer.send_nowait(b"x" * 100)
        assert lending.appenders[0].count == 11
        last = [producer.send_nowait(b"x" * 100) for _ in range(1000)][-1]
        assert lending.appenders[0].count < 11 + 10
        client._connection.turn()
        assert last.done()
        assert not client._connection.parts
        for _ in range(10):  # in a closed loop
            producer.send(b"x" * 100)
            assert producer._core.senders[0].is_empty
    assert len(values(client)) == 1021


def test_records_gather_where_the_sender_is_behind_however_slow_the_machine_appends(
    client, lending, monkeypatch
) -> None:
    now, put = [0.0], Lending.put
    monkeypatch.setattr(client._connection, "clock", lambda: now[0])

    def slow(*args: Any) -> Any:
        now[0] += 1e-3
        return put(*args)

    monkeypatch.setattr(Lending, "put", slow)
    with client.producer("t", direct=True) as producer, producer._driver.lock:
        producer.send(b"x" * 100)
        for _ in range(10):
            now[0] += 1e-3
            producer.send_nowait(b"x" * 100)
        assert lending.appenders[0].count == 11
        for _ in range(1000):
            now[0] += 2e-6
            producer.send_nowait(b"x" * 100)
        assert lending.appenders[0].count < 11 + 10


def test_two_records_at_once_delay_none_but_the_next_of_a_calm_sender(client, lending, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(client._connection, "clock", lambda: now[0])
    with client.producer("t", direct=True) as producer, producer._driver.lock:
        producer.send(b"x" * 100)
        sent, appended = [0, 0], []
        for pause in [1e-4, 1e-4, 0.0, 1e-4, 1e-4, 1e-4, 1e-4]:
            now[0] += pause
            sent.append(producer.send_nowait(b"x" * 100))
            appended.append(lending.appenders[0].count - 1)
        assert appended == [1, 2, 3, 3, 4, 5, 6], "the fourth gathers, and the fifth says that they come one by one"
        assert all(future.done() for future in sent[2:])


def test_a_broker_that_sleeps_is_told_once_for_each_of_its_sleeps(client, lending) -> None:
    with client.producer("t", direct=True) as producer:
        for lending.asleep in (0, 7, 7, 0, 8, 8):
            producer.send(b"x")
    assert lending.said == [Lend, Moved, Moved, GiveBack]


def test_a_log_that_cannot_be_opened_is_given_back(client, lending) -> None:
    lending.script.append("not attached")
    with client.producer("t", direct=True) as producer:
        producer.send(b"x")
        assert producer.direct.reasons == {0: "no such file"}
    assert lending.said == [Lend, GiveBack]


def test_a_producer_that_may_not_write_the_files_says_who_may(client, lending, monkeypatch) -> None:
    def attach(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/lock")

    monkeypatch.setattr(direct, "attach", attach)
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        reason = producer.direct.reasons[0]
        assert "broker's user" in reason
        assert "/data/lock" in reason
    assert lending.through_broker == 1


def test_a_producer_that_may_make_larger_records_than_the_topic_takes_now_does_not_append(client, lending) -> None:
    lending.max_record_bytes = 100
    with client.producer("t", direct=True) as producer:
        producer.send(b"x")
        assert "max_record_bytes" in producer.direct.reasons[0]
    assert lending.appenders == []


def test_a_producer_whose_name_is_claimed_anew_asks_anew(client, lending) -> None:
    first = client.producer("t", name="p", direct=True)
    first.send(b"0")
    with client.producer("t", name="p", direct=True) as second:
        assert second.next_sequence() == 1
        second.send(b"1")
        assert second.direct
    assert [appender.grant.epoch for appender in lending.appenders] == [1, 2]


def test_callbacks_and_futures_hear_of_records_that_are_appended(client, lending) -> None:
    heard: list[int] = []
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        producer.post(b"1", on_done=lambda posted: heard.append(posted.offset))
        producer.send_nowait(b"2").add_done_callback(lambda future: heard.append(future.result()))
        producer.flush()
    assert heard == [1, 2]


def test_a_topic_that_asks_for_tasks_works_as_ever(client, lending, cheap) -> None:
    lending.script += ["stands", "no room"]
    with client.producer("t", direct=True) as producer:
        producer.send(b"0")
        producer.send(b"1", delay=1)
        producer.send(b"2")
    assert lending.through_broker == 1
    with pytest.raises(InvalidArgument):
        client.producer("t", direct="yes")


def test_an_interrupt_at_any_moment_of_an_append_loses_nothing_and_repeats_nothing(client, lending) -> None:
    producer = client.producer("t", direct=True)
    producer.send(b"start")
    sure = [b"start"]
    inside = ("clients/producing", "transport/producer_session.py", "tests/support/lent_lane.py")
    for interrupt in interrupts(inside, above=20):
        value = b"%d" % interrupt.nth
        with interrupt:
            producer.send(value)
            sure.append(value)
        producer.send(b"after %d" % interrupt.nth, timeout=20)
        sure.append(b"after %d" % interrupt.nth)
        assert is_free(producer._driver.lock), f"interrupted at moment {interrupt.nth}"
    producer.close()
    found = values(client)
    assert [value for value in found if value in set(sure)] == sure
    assert len(found) == len(set(found))
    assert lending.through_broker


def test_whatever_comes_of_appends_records_keep_their_order(client, lending) -> None:
    chance = random.Random(1)
    producer = client.producer("t", direct=True)
    sent = 0
    for _ in range(300):
        lending.script.append(
            chance.choice(["stands", "stands", "paused", "interrupted", "interrupted, stands", *ENDS])
        )
        if chance.random() < 0.1:
            lending.end()
        producer._core.senders[0]._ask_at = 0.0
        for _ in range(chance.randrange(1, 4)):
            try:
                producer.send_nowait(b"%d" % sent)
                sent += 1
            except KeyboardInterrupt:
                sent += 1  # it is in, and goes out with the others
    lending.script.clear()
    producer.flush()
    producer.close()
    assert values(client) == [b"%d" % number for number in range(sent)]
