"""Producers' ids, stages and names of transactions belong to the user that began them (decision 119)."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.upkeep.rounds import OWN, producer_of
from penstock.broker.engine.tables.effects import ProducerOwned
from penstock.broker.rights import Principal
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.dead import die, set_queue
from support.engine import Rig
from support.staging import partition_of, staged

from .test_guard import ALL, as_, code, user

ANN, BOB = user("ann", "write,read *"), user("bob", "write,read *")
ADMIN = user("root", ALL)
ID = 0xBEEF


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.principal = ADMIN
    return made


def send(
    rig: Rig, topic: bytes, who: Principal | None, first: int = 0, producer_id: int = ID, epoch: int = 0, **how: Any
) -> Any:
    as_(rig, who)  # pyright: ignore[reportArgumentType] - None: a node without users
    batch = encode([b"x"], producer_id=producer_id, first_sequence=first, producer_epoch=epoch, **how)
    return rig.ask(m.Produce, topic, 0, payload=batch)


def put(rig: Rig, topic: bytes, who: Principal | None, first: int = 0, stage: int = ID) -> Any:
    as_(rig, who)  # pyright: ignore[reportArgumentType]
    return rig.ask(m.Produce, topic, 0, payload=staged([b"x"], stage, first))


def commit(rig: Rig, who: Principal | None, name: str, epoch: int, *stages: m.Stage) -> Any:
    as_(rig, who)  # pyright: ignore[reportArgumentType]
    return rig.ask(m.CommitTransaction, name, epoch, list(stages))


@pytest.mark.parametrize("how", [{}, {"keys": [b"k"]}, {"dedup": [b""]}], ids=["few", "keyed", "deduplicated"])
def test_the_next_sequence_of_a_producer_is_taken_from_its_owner_alone(rig: Rig, how: dict[str, Any]):
    topic = rig.topic()
    assert isinstance(send(rig, topic, ANN, **how), m.Produced)
    refused = send(rig, topic, BOB, 1, **how)
    assert code(refused) == "forbidden"
    assert "belongs to another user" in refused.message
    assert "ann" not in refused.message
    assert send(rig, topic, ANN, 1, **how).offset == 1
    assert rig.node.guard.refused == 1
    assert "ann owns" in rig.node.guard.last_refusal


def test_not_even_an_administrator_goes_on_with_an_unnamed_producer(rig: Rig):
    topic = rig.topic()
    send(rig, topic, ANN)
    assert code(send(rig, topic, ADMIN, 1)) == "forbidden"


@pytest.mark.parametrize("how", [{}, {"keys": [b"k"]}], ids=["few", "keyed"])
def test_a_resend_of_another_is_refused_before_it_says_where_the_record_is(rig: Rig, how: dict[str, Any]):
    topic = rig.topic()
    send(rig, topic, ANN)
    for first, epoch in ((0, 0), (9, 0), (0, 1)):
        assert code(send(rig, topic, BOB, first, epoch=epoch, **how)) == "forbidden"
    assert send(rig, topic, ANN, 0).offset == 0


@pytest.mark.parametrize("snapshot", [False, True])
def test_owners_outlast_a_restart_from_the_log_and_from_a_snapshot(rig: Rig, snapshot: bool):
    topic = rig.topic()
    send(rig, topic, ANN)
    put(rig, topic, ANN, stage=7)
    commit(rig, ANN, "nightly", 1)
    as_(rig, ANN)
    claimed = rig.ask(m.OpenProducer, topic, 0, "feed")
    if snapshot:
        rig.node.close(rig.now)
    rig.restart()
    assert code(send(rig, topic, BOB, 1)) == "forbidden"
    assert code(put(rig, topic, BOB, 1, stage=7)) == "forbidden"
    assert code(commit(rig, BOB, "nightly", 2)) == "forbidden"
    assert code(send(rig, topic, BOB, 0, claimed.producer_id, claimed.epoch)) == "forbidden"
    assert isinstance(send(rig, topic, ANN, 1), m.Produced)
    assert isinstance(put(rig, topic, ANN, 1, stage=7), m.Produced)
    assert isinstance(commit(rig, ANN, "nightly", 2, m.Stage(topic, 0, 7, 2)), m.TransactionCommitted)
    assert isinstance(send(rig, topic, ANN, 0, claimed.producer_id, claimed.epoch), m.Produced)


def test_another_proof_of_the_same_user_is_the_same_owner(rig: Rig):
    topic = rig.topic()
    send(rig, topic, Principal("ann", ANN.grants, "key:one"))
    assert isinstance(send(rig, topic, Principal("ann", ANN.grants, "uid:7"), 1), m.Produced)


def test_what_has_no_owner_gets_the_first_user_that_goes_on_with_it(rig: Rig):
    """Directories of before, and of brokers that had no users."""
    topic = rig.topic()
    rig.restart()
    send(rig, topic, None)
    put(rig, topic, None, stage=7)
    assert isinstance(send(rig, topic, BOB, 1), m.Produced)
    assert code(send(rig, topic, ANN, 2)) == "forbidden"
    assert isinstance(put(rig, topic, BOB, 1, stage=7), m.Produced)
    assert code(put(rig, topic, ANN, 2, stage=7)) == "forbidden"


def test_a_node_without_users_asks_for_no_owner(rig: Rig):
    topic = rig.topic()
    send(rig, topic, ANN)
    rig.restart()
    assert isinstance(send(rig, topic, None, 1), m.Produced)
    assert code(send(rig, topic, BOB, 2)) == "forbidden"


def test_a_claimed_name_goes_to_another_user_that_may_manage_it(rig: Rig):
    topic = rig.topic("t")
    as_(rig, ANN)
    first = rig.ask(m.OpenProducer, topic, 0, "feed")
    assert code(send(rig, topic, BOB, 0, first.producer_id, first.epoch)) == "forbidden"
    assert code(rig.ask(m.OpenProducer, topic, 0, "feed")) == "forbidden"
    heir = user("heir", "write *", "manage producer:t/feed")
    as_(rig, heir)
    second = rig.ask(m.OpenProducer, topic, 0, "feed")
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    assert isinstance(send(rig, topic, heir, 0, second.producer_id, second.epoch), m.Produced)
    assert code(send(rig, topic, ANN, 1, second.producer_id, second.epoch)) == "forbidden"
    as_(rig, ANN)
    assert code(rig.ask(m.OpenProducer, topic, 0, "feed")) == "forbidden"


def test_records_without_a_producer_have_no_owner(rig: Rig):
    topic = rig.topic()
    for who in (ANN, BOB, ANN):
        as_(rig, who)
        assert isinstance(rig.ask(m.Produce, topic, 0, payload=encode([b"x"])), m.Produced)
    assert not partition_of(rig, topic).committed.producers.by_id


def test_a_stage_is_committed_and_dropped_by_its_owner_and_those_that_manage_the_topic(rig: Rig):
    topic = rig.topic("t")
    for stage in (7, 8, 9):
        put(rig, topic, ANN, stage=stage)
    for stage in (7, 8, 9):
        assert code(commit(rig, BOB, "theirs", 1, m.Stage(topic, 0, stage, 1))) == "forbidden"
        as_(rig, BOB)
        assert code(rig.ask(m.DropStages, [m.Stage(topic, 0, stage, 1)])) == "forbidden"
    assert isinstance(commit(rig, ANN, "mine", 1, m.Stage(topic, 0, 7, 1)), m.TransactionCommitted)
    keeper = user("keeper", "write *", "manage topic:t")
    assert isinstance(commit(rig, keeper, "kept", 1, m.Stage(topic, 0, 8, 1)), m.TransactionCommitted)
    as_(rig, keeper)
    assert isinstance(rig.ask(m.DropStages, [m.Stage(topic, 0, 9, 1)]), m.Done)
    assert rig.node.stats()["stages.open"] == 0


def test_one_foreign_stage_refuses_a_whole_request(rig: Rig):
    topic = rig.topic()
    put(rig, topic, ANN, stage=7)
    put(rig, topic, BOB, stage=8)
    both = [m.Stage(topic, 0, 8, 1), m.Stage(topic, 0, 7, 1)]
    assert code(commit(rig, BOB, "theirs", 1, *both)) == "forbidden"
    as_(rig, BOB)
    assert code(rig.ask(m.DropStages, both)) == "forbidden"
    assert rig.node.stats()["stages.open"] == 2


def test_a_transaction_is_committed_again_by_its_owner_and_those_that_manage_it(rig: Rig):
    topic = rig.topic()
    assert isinstance(commit(rig, ANN, "nightly", 1), m.TransactionCommitted)
    put(rig, topic, BOB, stage=8)
    for epoch in (1, 2, 1 << 40):
        assert code(commit(rig, BOB, "nightly", epoch, m.Stage(topic, 0, 8, 1))) == "forbidden"
    assert rig.ask(m.AskTransaction, "nightly").epoch == 1
    heir = user("heir", "write *", "manage transaction:nightly")
    assert isinstance(commit(rig, heir, "nightly", 2), m.TransactionCommitted)
    assert code(commit(rig, ANN, "nightly", 3)) == "forbidden"


def test_a_request_of_several_turns_is_asked_for_its_own_user(rig: Rig):
    topic = rig.topic()
    for stage in range(1, 70):
        put(rig, topic, ANN, stage=stage)
    as_(rig, BOB)
    request = rig.next_request()
    rig.send(m.DropStages(request, [m.Stage(topic, 0, stage, 1) for stage in range(1, 70)]))
    as_(rig, ANN)
    rig.send(m.Ping(rig.next_request()))
    rig.turn(20)
    assert [code(answer) for answer in rig.answers(request)] == ["forbidden"]


def test_the_owner_stands_in_the_log_before_the_first_record(rig: Rig):
    topic = rig.topic()
    rig.store.hold = True
    as_(rig, ANN)
    rig.send(m.Produce(rig.next_request(), topic, 0), encode([b"x"], producer_id=ID))
    rig.turn()
    owned, record = list(partition_of(rig, topic).history.in_flight)[-2:]
    assert [type(effect).__name__ for effect in owned.effects] == ["ProducerOwned"]
    assert record.producer_id == ID


def test_no_user_sends_under_the_id_of_copies_of_dead_letters(rig: Rig):
    topic, graves = rig.topic("t"), rig.topic("graves")
    set_queue(rig, topic, dead_topic="graves")
    rig.produce(topic, [b"bad"])
    die(rig, topic, [0])
    table = partition_of(rig, graves).committed.producers
    known = table.by_id[producer_of(partition_of(rig, topic).log.log_id)]
    assert (known.owner, known.next_sequence) == (":broker", 2)
    assert code(send(rig, graves, ADMIN, 2, known.producer_id)) == "forbidden"


def grave(rig: Rig) -> tuple[bytes, bytes, int]:
    """A queue's topic and its dead-letter topic, and the id that copies there will have."""
    topic, graves = rig.topic("t"), rig.topic("graves")
    set_queue(rig, topic, dead_topic="graves")
    rig.produce(topic, [b"bad", b"worse"])
    return topic, graves, producer_of(partition_of(rig, topic).log.log_id)


def test_what_a_user_sent_under_the_id_of_copies_keeps_no_dead_letter_from_being_copied(rig: Rig):
    topic, graves, copies = grave(rig)
    as_(rig, BOB)
    squatted = encode([b"x"] * 5, producer_id=copies, producer_epoch=3)
    assert isinstance(rig.ask(m.Produce, graves, 0, payload=squatted), m.Produced)
    die(rig, topic, [0])
    assert rig.read(graves) == [b"x"] * 5 + [b"bad"]
    assert code(send(rig, graves, BOB, 5, copies, 3)) == "forbidden"
    as_(rig, ADMIN)
    rig.restart(clean=False)
    die(rig, topic, [1])
    assert rig.read(graves)[5:] == [b"bad", b"worse"]


def test_a_crash_after_the_owner_and_before_the_copy_loses_no_dead_letter(rig: Rig):
    topic, graves, copies = grave(rig)
    as_(rig, BOB)
    rig.ask(m.Produce, graves, 0, payload=encode([b"x"] * 5, producer_id=copies))
    partition_of(rig, graves).propose_in_order(ProducerOwned(copies, 0, OWN))
    rig.turn()
    as_(rig, ADMIN)
    rig.restart(clean=False)
    die(rig, topic, [0])
    assert rig.read(graves) == [b"x"] * 5 + [b"bad"]


def test_copies_wait_for_a_stage_under_their_id_that_takes_no_more(rig: Rig):
    topic, graves, copies = grave(rig)
    assert isinstance(put(rig, graves, BOB, stage=copies), m.Produced)
    die(rig, topic, [0])
    assert rig.read(graves) == []
    assert code(put(rig, graves, BOB, 1, stage=copies)) == "invalid_batch"
    as_(rig, BOB)
    assert isinstance(commit(rig, BOB, "theirs", 1, m.Stage(graves, 0, copies, 1)), m.TransactionCommitted)
    as_(rig, ADMIN)
    rig.pass_time(5.0)
    assert rig.read(graves) == [b"x", b"bad"]
    assert code(put(rig, graves, BOB, 1, stage=copies)) == "invalid_batch"
