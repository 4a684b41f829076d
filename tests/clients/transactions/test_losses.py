"""What transactions make of losses: of brokers, of answers, of what was staged, and of clients."""

from __future__ import annotations

import subprocess
import sys
import threading

import msgspec
import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import LimitReached, StageLost, Unavailable
from penstock.clients import TimedOut, connect
from penstock.clients.connection import connection, driver
from penstock.clients.errors import StillFull
from penstock.clients.producing import partition_sender as sender
from penstock.clients.transactions import verbs
from penstock.storage.errors import Closed, StorageFull
from penstock.transport import codec
from penstock.transport.messages import CommitTransaction, Done, Failure, Produced, Stage, TransactionCommitted
from support.processes import Serving

MANY = [b"%06d" % number for number in range(3000)]


@pytest.fixture(params=["unix", "ipc"])
def own(request, tmp_path):
    """A broker of the test's own, to be killed."""
    config = ServeConfig(
        data=str(tmp_path / "data"), listen=(f"{request.param}://{tmp_path}/b.sock",), restart_first_s=0.01
    )
    with Serving(config) as serving:
        yield serving


def read(client, topic):
    return [
        [record.value for record in client.read(topic, part.partition, 0, max_records=100_000)]
        for part in client.topic(topic).partitions
    ]


# -- brokers that go away -----------------------------------------------------------------------------------


def test_a_transaction_goes_on_over_the_death_of_its_broker(own):
    with connect(own.url, timeout=60) as client:
        for name in ("t", "u"):
            client.create_topic(name)
        with client.transaction("load", 1) as transaction:
            first, second = transaction.producer("t"), transaction.producer("u")
            futures = [first.send_nowait(value) for value in MANY[:1000]]
            own.kill_broker()
            futures += [first.send_nowait(value) for value in MANY[1000:]]
            second.send_many(MANY)
            own.kill_broker()
            assert {future.result() for future in futures} == {-1}
            transaction.stages()
            own.kill_broker()
        assert read(client, "t") == read(client, "u") == [MANY]
        own.kill_broker()
        assert client.transaction_epoch("load") == 1
        assert client.commit_stages("load", 1, []) is False
        assert read(client, "t") == read(client, "u") == [MANY]


@pytest.mark.parametrize("epochs", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_a_commit_whose_broker_dies_under_it_is_done_once(own, epochs):
    """The broker dies somewhere in the midst of it; wherever that is, all of the epoch is there, once."""
    with connect(own.url, timeout=60) as client:
        client.create_topic("t", partitions=2)
        client.create_topic("u")
        for epoch in range(epochs):
            transaction = client.transaction("load", epoch)
            for name in ("t", "u"):
                transaction.producer(name).send_many([b"%d-%s" % (epoch, value) for value in MANY], keys=MANY)
            transaction.stages()
            killing = threading.Thread(target=own.kill_broker)
            killing.start()
            assert transaction.commit() is True, "the repeated request was the one that decided"
            killing.join(60)
            assert client.transaction_epoch("load") == epoch
        wanted = sorted(b"%d-%s" % (epoch, value) for epoch in range(epochs) for value in MANY)
        for name in ("t", "u"):
            assert sorted(value for part in read(client, name) for value in part) == wanted


KILLED_STAGER = """
import sys, msgspec, penstock

with penstock.connect(sys.argv[1]) as client:
    staging = client.staging()
    producer = staging.producer("t")
    producer.send_many([b"%06d" % number for number in range(3000)], partition=0)
    print(msgspec.json.encode(staging.stages()).decode(), flush=True)
    for number in range(1000):
        producer.send_nowait(b"never told of", partition=1)
    print("staged more", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_had_told_of_can_be_committed_and_nothing_else(own):
    with connect(own.url, timeout=60) as client:
        client.create_topic("t", partitions=2)
        command = [sys.executable, "-c", KILLED_STAGER, own.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            stages = msgspec.json.decode(killed.stdout.readline(), type=list[Stage])
            assert killed.stdout.readline() == "staged more\n"
            killed.kill()
        own.kill_broker()
        assert read(client, "t") == [[], []]
        assert client.commit_stages("load", 1, stages) is True
        assert read(client, "t") == [MANY, []]


# -- answers that go away -------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(sender, "PATIENCE_S", 0.02)
    monkeypatch.setattr(connection, "LOOK_PERIOD_S", 0.01)
    monkeypatch.setattr(driver, "WAIT_MAX_S", 0.01)


def test_staged_batches_whose_answers_were_lost_are_sent_again_and_stand_once(penstock_client, losing, impatient):
    penstock_client.create_topic("t")
    losing(Produced, 1, 3)
    with penstock_client.transaction() as transaction, transaction.producer("t") as producer:
        assert [producer.send(value) for value in MANY[:5]] == [-1] * 5
    assert read(penstock_client, "t") == [MANY[:5]]


def test_a_commit_whose_answer_was_lost_is_repeated_and_publishes_once(penstock_client, losing):
    penstock_client.create_topic("t")
    losing(TransactionCommitted, 1)
    transaction = penstock_client.transaction("load", 1)
    transaction.producer("t").send_many(MANY)
    with pytest.raises(TimedOut, match="committing epoch 1 of transaction load, which may be decided by now"):
        transaction.commit(timeout=0.3)
    assert not transaction.closed
    assert transaction.commit() is True
    assert transaction.closed
    assert read(penstock_client, "t") == [MANY]


def test_a_block_whose_commit_was_not_answered_says_so_and_can_be_repeated(penstock_broker, losing):
    with penstock_broker.connect(timeout=0.2) as client:
        client.create_topic("t")
        losing(TransactionCommitted, 1)
        transaction = client.transaction()
        producer = transaction.producer("t")
        with pytest.raises(TimedOut), transaction:
            producer.send(b"x")
        with pytest.raises(Closed):
            producer.send(b"late")
        assert transaction.commit() is True  # no other transaction has its name
    assert transaction.closed


def test_a_commit_is_tried_again_while_there_is_no_room(penstock_client, losing, monkeypatch):
    monkeypatch.setattr(verbs, "BACKOFF_MIN_S", 0.001)
    penstock_client.create_topic("t")
    losing(TransactionCommitted, 1, 2, instead=lambda answer: Failure(answer.request, StorageFull.code, "full", True))
    with penstock_client.transaction() as transaction:
        transaction.producer("t").send(b"x")
        assert transaction.commit() is True
    assert read(penstock_client, "t") == [[b"x"]]


def test_a_commit_without_room_says_so_when_patience_ends(penstock_client, losing, monkeypatch):
    monkeypatch.setattr(verbs, "BACKOFF_MIN_S", 60)
    penstock_client.create_topic("t")
    losing(TransactionCommitted, instead=lambda answer: Failure(answer.request, StorageFull.code, "full", True))
    transaction = penstock_client.transaction()
    with pytest.raises(StillFull, match=r"committing epoch 1 of .* may be decided .*: full$"):
        transaction.commit(timeout=30)


def test_a_commit_without_room_says_so_though_its_last_answer_does_not_come(penstock_client, losing, monkeypatch):
    monkeypatch.setattr(verbs, "BACKOFF_MIN_S", 0.001)
    penstock_client.create_topic("t")
    losing(TransactionCommitted, 1, instead=lambda answer: Failure(answer.request, StorageFull.code, "full", True))
    losing(TransactionCommitted, 2)
    transaction = penstock_client.transaction()
    with pytest.raises(StillFull, match=r": full$"):
        transaction.commit(timeout=0.3)
    assert transaction.commit() is True


def test_as_many_stages_as_a_commit_takes_fit_into_its_frame(penstock_client):
    largest = Stage(bytes(16), 2**31, 2**64 - 1, 2**62)
    codec.encode(CommitTransaction(2**31, "x" * 200, 2**62, [largest] * verbs.STAGES_MAX))
    with pytest.raises(LimitReached, match=r"24001 stages, .* and a commit takes 24000: let fewer producers stage"):
        penstock_client.commit_stages("load", 1, [largest] * (verbs.STAGES_MAX + 1))
    penstock_client.drop_stages([largest] * (verbs.STAGES_MAX + 1))


def test_a_drop_that_failed_can_be_repeated(penstock_client, losing):
    penstock_client.create_topic("t")
    staging = penstock_client.staging()
    staging.producer("t").send(b"x")
    stages = staging.stages()
    losing(Done, 1, instead=lambda answer: Failure(answer.request, Unavailable.code, "not now"))
    with pytest.raises(Unavailable, match="not now"):
        staging.drop()
    assert staging.closed
    assert staging.stages() == stages
    staging.drop()
    with pytest.raises(Closed, match="was dropped"):
        staging.stages()


# -- stages that go away --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["unknown_producer", "sequence_gap", "poisoned"])
def test_a_stage_that_broke_is_never_taken_up_again(penstock_client, losing, code):
    penstock_client.create_topic("t")
    losing(Produced, 2, instead=lambda answer: Failure(answer.request, code, "it is gone"))
    transaction = penstock_client.transaction("load", 1)
    producer = transaction.producer("t")
    producer.send(b"a")
    with pytest.raises(StageLost if code != "poisoned" else Exception, match="it is gone"):
        producer.send(b"b")
    says = r"partition 0 of topic t is not complete .*has to be begun again"
    with pytest.raises(StageLost, match=says):
        producer.send(b"c")
    producer.send_nowait(b"d")
    with pytest.raises(StageLost, match=says):
        producer.flush()
    with pytest.raises(StageLost):
        transaction.commit()
    assert transaction.closed
    assert read(penstock_client, "t") == [[]]
    assert penstock_client.transaction_epoch("load") is None


def test_a_deleted_topic_takes_the_transaction_with_it(penstock_client):
    for name in ("t", "u"):
        penstock_client.create_topic(name)
    transaction = penstock_client.transaction("load", 1)
    for name in ("t", "u"):
        transaction.producer(name).send(b"x")
    penstock_client.delete_topic("t")
    with pytest.raises(Exception, match=r"unknown|lost|no topic|not there"):
        transaction.commit()
    assert transaction.closed
    assert read(penstock_client, "u") == [[]]


def test_what_is_sent_to_a_stage_that_is_committed_meanwhile_is_refused(penstock_broker):
    with penstock_broker.connect() as one, penstock_broker.connect() as two:
        one.create_topic("t")
        staging = one.staging()
        producer = staging.producer("t")
        producer.send(b"in time")
        assert two.commit_stages("load", 1, staging.stages()) is True
        with pytest.raises(Exception, match=r"."):
            producer.send(b"late")
        assert read(one, "t") == [[b"in time"]]
