"""Records that are taken as a run are as if they had been taken one by one."""

from __future__ import annotations

import random

import pytest
from penstock.broker.errors import UnknownPartition
from penstock.clients.errors import InvalidArgument
from penstock.clients.producing.core import ProducerCore
from penstock.clients.producing.queued import Queued
from penstock.storage.errors import RecordTooLarge
from penstock.transport.producer_session import TARGET_BYTES


@pytest.fixture
def core(penstock_client) -> ProducerCore:
    penstock_client.create_topic("t", partitions=2, max_record_bytes="1MB")
    return penstock_client.producer("t", window_bytes=64 << 20)._core


def taken(core: ProducerCore, values, keys=None, headers=None, partition=1):
    return core.append_run(values, keys, headers, partition)


def settled(core: ProducerCore) -> None:
    core.run(core.flush(core.connection.deadline()))


def records(penstock_client) -> list:
    with penstock_client.consumer("t", group="g", start="earliest") as consumer:
        found = []
        while batch := consumer.fetch(max_records=10_000, wait=0):
            found += batch
        return [(record.value, record.key, dict(record.headers or {})) for record in found]


def test_runs_and_single_records_keep_their_order_and_columns(penstock_client, core, seed):
    randomly, wanted = random.Random(seed), []
    pick = randomly.choice
    for number in range(300):
        count = pick([1, 2, 50])
        values = [b"%d-%d" % (number, each) + b"x" * pick([0, 10, 5000]) for each in range(count)]
        values[-1] = pick([values[-1], None])
        keys = pick([None, [pick([None, b"k", b""]) for _ in values]])
        headers = pick([None, [pick([None, {"h": b"1"}]) for _ in values]])
        if randomly.random() < 0.3:
            core.append(values[0], b"own", {"o": b""}, 10**15, 1, Queued(3))
            wanted.append((values[0], b"own", {"o": b""}))
        runs = taken(core, values, keys, headers)
        assert sum(taken_ for _, _, taken_ in runs) == count
        wanted += zip(values, keys or [None] * count, [each or {} for each in headers or [None] * count], strict=True)
        if randomly.random() < 0.1:
            settled(core)
    settled(core)
    assert records(penstock_client) == wanted


def test_a_run_says_where_its_records_are(penstock_client, core):
    values = [b"%06d" % number + b"x" * 1000 for number in range(2000)]
    with core.lock:
        runs = taken(core, values)
    assert len(runs) > 5
    assert all(first == 0 and count * 1000 < TARGET_BYTES + 2000 for _, first, count in runs)
    settled(core)
    offsets = [pending.offset + first + each for pending, first, count in runs for each in range(count)]
    assert offsets == list(range(2000))


def test_what_has_no_room_waits_in_one_batch(core):
    core.senders[1].has_room = lambda size: False  # pyright: ignore[reportAttributeAccessIssue]
    with core.lock:
        runs = taken(core, [bytes(1000)] * 3 * (TARGET_BYTES // 1000))
        assert core.jammed is core.senders[1]
        assert [(pending, first) for pending, first, _ in runs] == [
            (core.senders[1].gather, 0), (core.senders[1].gather, runs[0][2]),
        ]  # fmt: skip
        core.senders[1].gather.values.clear()


@pytest.mark.parametrize(
    ("run", "partition", "error"),
    [
        (([b"a", bytes((1 << 20) + 1)], None, None), 1, RecordTooLarge),
        (([b"a", b"b"], [None, bytes((1 << 20) + 1)], None), 1, RecordTooLarge),
        (([b"a", b"b"], None, [None, {"h": bytes((1 << 20) + 1)}]), 1, RecordTooLarge),
        (([b"a", b"b"], None, [None, {"\ud800": b""}]), 1, InvalidArgument),
        (([b"a"], None, None), 2, UnknownPartition),
    ],
)
def test_of_a_run_with_one_refused_record_nothing_is_taken(core, run, partition, error):
    with core.lock:
        with pytest.raises(error):
            core.append_run(*run, partition)
        assert all(not (sender.gather.values or sender.gather.size) for sender in core.senders)
        assert core.senders[1].is_empty
