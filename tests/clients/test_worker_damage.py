"""What a worker does with records that cannot be read: it buries those, and works on all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from penstock.clients.working.core import WorkerCore
from penstock.storage.batch import ColumnId, Kind, assemble
from penstock.storage.columns import pieces
from penstock.storage.errors import MissingCodec
from penstock.transport.queue_messages import Verb
from support.unjudged import NOT_ZSTD, append_to, flip, hidden_codec, with_headers
from support.worker_bench import Bench


def work_off(bench: Bench, core: WorkerCore) -> list[bytes]:
    """All tasks, in the order in which they come, each acked."""
    done: list[bytes] = []
    while tasks := bench.fetch(core, 3):
        bench.run(core.settle_now(tasks, Verb.ACK))
        done += [task.value for task in tasks]
    return done


@pytest.fixture
def spoiled(penstock_broker: Any) -> Iterator[Bench]:
    """Good tasks before and behind batches that cannot be read, in whole or in part."""
    with penstock_broker.connect() as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            producer.send_many([b"before"])
            append_to(penstock_broker, "t", NOT_ZSTD)
            append_to(penstock_broker, "t", with_headers(b"", b"\x93", b"\x80"))
            producer.send_many([b"spoiled-0", b"spoiled-1"])
            producer.send_many([b"behind"])
    flip(penstock_broker._broker._store.files, b"spoiled-0")
    bench = Bench(penstock_broker)
    yield bench
    bench.connection.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_worker_buries_what_cannot_be_read_and_works_on_all_else(spoiled, penstock_broker, prefetch: int):
    core = spoiled.worker(prefetch=prefetch)
    assert work_off(spoiled, core) == [b"before", b"0", b"2", b"behind"]
    with penstock_broker.connect() as client:
        dead = client.dead_letters("t", "jobs")
        assert [(task.record.offset, task.attempt) for task in dead] == [(1, 1), (2, 1), (4, 1), (6, 1), (7, 1)]
        assert all(task.reason.startswith("it cannot be read: ") for task in dead)
        assert ["zstd" in task.reason for task in dead] == [True, True, False, False, False]
        assert "headers of record 1 of batch" in dead[2].reason
        assert "checksum" in dead[3].reason
        assert client.queue("t", "jobs").depth == 0


def test_attempts_stay_with_their_tasks_behind_one_that_cannot_be_read(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send(b"again")
    bench = Bench(penstock_broker)
    core = bench.worker()
    bench.run(core.settle_now(bench.fetch(core), Verb.NACK, delay=0))
    urgent = (ColumnId.PRIORITY, 0, b"\x09")
    columns = [(ColumnId.VALUE, 0, pieces([b"urgent"])), (ColumnId.HEADERS, 0, pieces([b"\x93"])), urgent]
    append_to(penstock_broker, "t", bytes(assemble(Kind.RECORDS, 1, columns)))
    assert [(task.value, task.attempt) for task in bench.fetch(core)] == [(b"again", 2)]
    bench.connection.close()


def test_dead_tasks_are_listed_beside_those_that_cannot_be_read(spoiled, penstock_broker):
    work_off(spoiled, spoiled.worker())
    with penstock_broker.connect() as client:
        with client.worker("t", group="jobs") as worker, client.producer("t") as producer:
            producer.send(b"good", key=b"k")
            worker.reject(worker.fetch(wait=0), "no")
        dead = client.dead_letters("t", "jobs")
        assert [task.record.offset for task in dead] == [1, 2, 4, 6, 7, 9]
        assert [bool(task.unreadable) for task in dead] == [True] * 5 + [False]
        assert [task.record.value for task in dead] == [b""] * 5 + [b"good"]
        assert client.redrive("t", "jobs") == 6
    assert work_off(spoiled, spoiled.worker()) == [b"good"], "it is damaged as before"


def test_tasks_of_a_codec_that_is_not_installed_go_back_and_the_others_come_first(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send(b"before")
        client.producer("t", codec="zstd").send_many([b"packed-0", b"packed-1"])
        client.producer("t").send(b"behind")
    bench = Bench(penstock_broker)
    core = bench.worker()
    with hidden_codec():
        tasks = bench.fetch(core, 10)
        assert [task.value for task in tasks] == [b"before", b"behind"]
        bench.run(core.settle_now(tasks, Verb.ACK))
        refusals = 0
        for _ in range(100):
            try:
                assert bench.fetch(core, 10) == []
            except MissingCodec:
                refusals += 1
            bench.pass_time(0.05, step=0.05)
        assert 2 <= refusals <= 10, "more seldom each time"
    tasks = []
    while not tasks:
        bench.pass_time(1)
        tasks = bench.fetch(core, 10)
    assert [(task.value, task.attempt) for task in tasks] == [(b"packed-0", 1), (b"packed-1", 1)]
    bench.connection.close()
