"""The workers of a queue group: listed, remembered, forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from penstock.broker.engine.queues import lines, verbs
from penstock.broker.engine.queues.requests import workers
from penstock.broker.engine.tables.queues import workers as table
from penstock.transport import messages as m
from penstock.transport.queue_messages import NOWHERE, Verb
from support.engine import START_US, Rig

ACK, NACK, REJECT, RELEASE = Verb
S = 1_000_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records on each of two partitions, and a group whose leases have no end."""
    topic = rig.topic(partitions=2)
    rig.ask(m.SetQueue, topic, "g", {"lease_s": None, "backoff_s": 0, "jitter": 0})
    for partition in range(2):
        rig.produce(topic, [b"%d" % number for number in range(10)], partition)
    return topic


def test_a_portion_of_what_a_worker_held_that_could_not_be_written_is_a_failure(
    rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "TOGETHER", 1)
    for _ in range(9):
        rig.lease(topic, worker="ann", partition=0)
    rig.refuse_one_append(topic)
    request = rig.next_request()
    rig.send(m.SetWorker(request, topic, "g", "ann", False, ACK))
    while not (answers := rig.answers(request)):
        rig.turn(1)
    assert answers[0].code == "storage_full"


def listed(rig: Rig, topic: bytes) -> list[tuple[str, int, int, int]]:
    """Name, records, and seconds since the start of the first and the last time; -1 for none."""
    answer = rig.ask(m.ListWorkers, topic, "g")
    assert isinstance(answer, m.Workers), answer
    assert answer.now_us == rig.now.wall_us

    def seconds(time_us: int) -> int:
        return -1 if time_us == -1 else (time_us - START_US) // S

    return [(each.name, each.pending, seconds(each.first_us), seconds(each.last_us)) for each in answer.workers]


def tell(rig: Rig, topic: bytes, worker: str, **how: Any) -> int:
    answer = rig.ask(lambda request: m.SetWorker(request, topic, "g", worker, **how))
    assert isinstance(answer, m.Counted), answer
    return answer.count


def forget(rig: Rig, topic: bytes, worker: str, verb: int = RELEASE) -> int:
    return tell(rig, topic, worker, known=False, verb=verb)


# -- the list -----------------------------------------------------------------------------------------


def test_workers_are_listed_over_all_partitions(rig: Rig, topic: bytes):
    rig.lease(topic, most=4, worker="bob", partition=0)
    rig.pass_time(1)
    lease = rig.lease(topic, most=2, worker="ann", partition=0)
    rig.pass_time(1)
    rig.lease(topic, most=3, worker="ann", partition=1)
    rig.pass_time(1)
    rig.settle(topic, m.Settle(0, lease.token, ACK, [(5, 1)]))
    assert listed(rig, topic) == [("ann", 4, 1, 2), ("bob", 4, 0, 0)]
    found = rig.ask(m.ListWorkers, topic, "g")
    assert found.partitions == [m.PendingPartition(0, 5, 0, 4), m.PendingPartition(1, 3, 0, 2)]
    rig.restart(clean=False)
    known = [structs.replace(each, asked_us=-1, waits=False) for each in found.workers]
    assert rig.ask(m.ListWorkers, topic, "g") == m.Workers(rig._request, found.partitions, known, rig.now.wall_us)


def asked(rig: Rig, topic: bytes, *names: str) -> list[int | str]:
    """Seconds since the start when each asked last, "now" while it waits; -1 for never."""
    answer = rig.ask(m.ListWorkers, topic, "g")
    assert all(each.asked_us == answer.now_us for each in answer.workers if each.waits)
    found = {each.name: each for each in answer.workers}
    times = [found[name].asked_us for name in names]
    seconds = [-1 if time_us == -1 else (time_us - START_US) // S for time_us in times]
    return ["now" if found[name].waits else at for name, at in zip(names, seconds, strict=True)]


def test_who_waits_asks_now_and_who_ceased_to_wait_did_then(rig: Rig, topic: bytes):
    rig.settle(topic, m.Settle(0, rig.lease(topic, worker="given", partition=0).token, ACK))
    for partition in range(2):
        rig.lease(topic, worker="other", most=100, partition=partition)
    tell(rig, topic, "made")
    rig.pass_time(1)
    request = rig.ask_lease(topic, worker="ann", wait_ms=60_000, remember=True)
    rig.pass_time(1)
    assert asked(rig, topic, "ann", "given", "made") == ["now", 0, -1]
    rig.produce(topic, [b"more"], 0)
    assert rig.answers(request)
    rig.pass_time(1)
    assert asked(rig, topic, "ann") == [2]
    rig.ask_lease(topic, worker="ann", wait_ms=60_000)
    rig.pass_time(1)
    rig.node.disconnect("c")
    rig.pass_time(1)
    assert asked(rig, topic, "ann") == [4]


def test_when_a_worker_asked_is_known_of_so_many(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "ASKERS_MAX", 2)
    for name in ("ann", "bob", "ann", "cid"):
        rig.lease(topic, worker=name)
    assert asked(rig, topic, "ann", "bob", "cid") == [0, -1, 0]


def test_the_times_of_partitions_are_the_earliest_and_the_latest(rig: Rig, topic: bytes):
    rig.lease(topic, worker="ann", partition=1)
    rig.pass_time(3)
    tell(rig, topic, "bob")
    rig.lease(topic, worker="ann", partition=0)
    rig.pass_time(2)
    rig.lease(topic, worker="bob", partition=1)
    assert listed(rig, topic) == [("ann", 2, 0, 3), ("bob", 1, 3, 5)]


def test_workers_without_records_are_listed_whether_they_leased_or_took_them(rig: Rig, topic: bytes):
    rig.settle(topic, m.Settle(0, rig.lease(topic, worker="ann", most=2, partition=0).token, ACK))
    rig.pass_time(1)
    rig.lease(topic, worker="bob", takes=True)
    found = rig.ask(m.ListWorkers, topic, "g")
    assert found.partitions == [m.PendingPartition(p, 0, -1, -1) for p in range(2)]
    assert listed(rig, topic) == [("ann", 0, 0, 0), ("bob", 0, 1, 1)]


def test_a_worker_that_extends_its_lease_was_seen_then(rig: Rig, topic: bytes):
    lease = rig.lease(topic, worker="ann", partition=0, lease_ms=10_000)
    rig.pass_time(5)
    rig.ask(m.ExtendLeases, topic, "g", [(0, lease.token)], 10_000)
    assert listed(rig, topic) == [("ann", 1, 0, 5)]


def test_a_claim_counts_as_now_whatever_time_it_gives_to_the_lease(rig: Rig, topic: bytes):
    rig.lease(topic, worker="ann", partition=0)
    rig.pass_time(5)
    rig.ask(lambda request: m.Claim(request, topic, "g", "bob", 0, 10, given_us=-3 * S))
    assert listed(rig, topic) == [("ann", 0, 0, 0), ("bob", 1, 5, 5)]


def test_of_too_many_those_with_records_are_listed_all_the_same(
    rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table, "WORKERS_MAX", 2)
    rig.lease(topic, worker="ann", partition=0)
    rig.settle(topic, m.Settle(0, rig.lease(topic, worker="bob", partition=0).token, ACK))
    for worker in ("cid", "dan"):
        rig.lease(topic, worker=worker, partition=0)
    assert listed(rig, topic) == [("ann", 1, -1, -1), ("cid", 1, 0, 0), ("dan", 1, 0, 0)]
    assert tell(rig, topic, "ann") == 0, "it is known"
    rig.pass_time(1)
    rig.lease(topic, worker="ann", partition=1)
    assert listed(rig, topic)[0] == ("ann", 2, 1, 1), "one of the partitions does not know since when"


def test_a_list_is_made_in_portions(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "COUNTED", 2)
    for number in range(9):
        tell(rig, topic, f"w{number}")
    request = rig.next_request()
    rig.send(m.ListWorkers(request, topic, "g"))
    assert rig.answers(request) == []
    rig.turn(8)
    assert [len(answer.workers) for answer in rig.answers(request)] == [9]


def test_a_list_is_of_what_is_committed(rig: Rig, topic: bytes):
    rig.store.hold = True
    rig.send(m.SetWorker(rig.next_request(), topic, "g", "ann"))
    rig.turn()
    assert listed(rig, topic) == []
    rig.store.hold = False
    rig.sync()
    assert listed(rig, topic) == [("ann", 0, 0, -1)]


# -- remembering --------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_worker_is_made_once_and_stays_over_restarts(rig: Rig, topic: bytes, again: bool, clean: bool):
    rig.pass_time(1)
    assert tell(rig, topic, "ann") == 1
    if again:
        rig.restart(clean=clean)
    rig.pass_time(1)
    assert tell(rig, topic, "ann") == 0
    assert listed(rig, topic) == [("ann", 0, 1, -1)]


def test_a_worker_that_any_partition_knows_is_known(rig: Rig, topic: bytes):
    rig.lease(topic, worker="ann", partition=1)
    assert tell(rig, topic, "ann") == 0
    queues = [partition.committed.queues.by_name["g"] for partition in rig.node._registry.topics.get(topic).readable]
    assert [list(queue.workers) for queue in queues] == [[], ["ann"]]


def test_it_is_answered_once_it_is_durable_also_where_another_asked_first(rig: Rig, topic: bytes):
    rig.store.hold = True
    requests = [rig.next_request() for _ in range(2)]
    for request in requests:
        rig.send(m.SetWorker(request, topic, "g", "ann"))
    rig.turn()
    assert [rig.answers(request) for request in requests] == [[], []]
    rig.store.hold = False
    rig.sync()
    assert [[each.count for each in rig.answers(request)] for request in requests] == [[1], [0]]


@pytest.mark.parametrize("partition", [-1, 1])
@pytest.mark.parametrize("wait_ms", [0, 5000])
def test_a_lease_may_have_its_worker_remembered_although_there_is_nothing(
    rig: Rig, topic: bytes, partition: int, wait_ms: int
):
    for number in range(2):
        rig.lease(topic, worker="bob", partition=number, most=10)
    for remember in (False, True, True):
        rig.ask_lease(topic, worker="ann", partition=partition, remember=remember, wait_ms=wait_ms, start=NOWHERE)
        rig.turn()
        known = [("ann", 0, 0, -1)] if remember else []
        assert listed(rig, topic) == [*known, ("bob", 20, 0, 0)]
    found = rig.node._registry.topics.get(topic).partition(max(partition, 0))
    assert "ann" in found.committed.queues.by_name["g"].workers
    before = found.seq
    rig.ask_lease(topic, worker="ann", partition=partition, remember=True, wait_ms=wait_ms)
    assert tell(rig, topic, "ann") == 0
    assert found.seq == before, "nothing is written of what is known"


def test_a_worker_is_remembered_where_the_group_can_work(rig: Rig, topic: bytes):
    partitions = rig.node._registry.topics.get(topic).readable
    rig.lease(topic, worker="bob", partition=1, most=10)
    partitions[0].log.poison("test")
    rig.ask_lease(topic, worker="ann", remember=True)
    assert [list(each.committed.queues.by_name["g"].workers) for each in partitions] == [[], ["bob", "ann"]]


def test_a_lease_that_gets_something_needs_no_further_effect(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verbs, "remember", lambda *_: pytest.fail("it was remembered twice"))
    rig.lease(topic, worker="ann", partition=0, remember=True)


# -- forgetting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "state"), [(ACK, "completed"), (NACK, "waiting"), (REJECT, "dead"), (RELEASE, "waiting")]
)
def test_what_a_forgotten_worker_holds_is_settled_everywhere(rig: Rig, topic: bytes, verb: int, state: str):
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 100})
    for most in (2, 1):
        rig.lease(topic, worker="ann", partition=0, most=most)
        rig.lease(topic, worker="bob", partition=0)
    rig.lease(topic, worker="ann", partition=1, most=3)
    assert forget(rig, topic, "ann", verb) == 6
    assert listed(rig, topic) == [("bob", 2, 0, 0)]
    found = [rig.ask(m.AskTask, topic, "g", partition, at) for partition, at in ((0, 0), (0, 1), (0, 3), (1, 2))]
    assert {(each.state, each.reason) for each in found} == {(state, "")}
    assert {each.attempt for each in found} == ({0} if verb in (ACK, RELEASE) else {1})
    assert rig.ask(m.AskTask, topic, "g", 0, 2).state == "leased"
    assert forget(rig, topic, "ann", verb) == 0
    rig.restart(clean=False)
    assert listed(rig, topic) == [("bob", 2, 0, 0)]


def test_records_are_released_where_it_is_not_said_otherwise_and_go_to_those_who_wait(rig: Rig, topic: bytes):
    lease = rig.lease(topic, worker="ann", partition=0, most=10)
    request = rig.ask_lease(topic, worker="bob", partition=0, most=20)
    assert tell(rig, topic, "ann", known=False) == 10
    rig.turn()
    assert [answer.runs for answer in rig.answers(request)] == [[(0, 10, 1)]]
    assert [each.code for each in rig.settle(topic, m.Settle(0, lease.token, ACK))] == ["lease_lost"]


def test_records_that_are_nacked_go_to_those_who_wait_once_they_may(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 2})
    rig.lease(topic, worker="ann", partition=0, most=10)
    request = rig.ask_lease(topic, worker="bob", partition=0, most=20, wait_ms=20_000)
    assert forget(rig, topic, "ann", NACK) == 10
    rig.pass_time(1.9)
    assert rig.answers(request) == []
    rig.pass_time(0.2)
    assert [answer.runs for answer in rig.answers(request)] == [[(0, 10, 2)]]


def test_a_worker_that_is_acked_finds_its_leases_settled(rig: Rig, topic: bytes):
    lease = rig.lease(topic, worker="ann", partition=0, most=3)
    forget(rig, topic, "ann", ACK)
    assert rig.settle(topic, m.Settle(0, lease.token, ACK)) == []


def test_a_worker_that_holds_nothing_and_one_that_is_not_known_are_forgotten_for_nothing(rig: Rig, topic: bytes):
    rig.settle(topic, m.Settle(0, rig.lease(topic, worker="ann", partition=0).token, ACK))
    assert (forget(rig, topic, "ann"), forget(rig, topic, "ann"), forget(rig, topic, "none")) == (0, 0, 0)
    assert listed(rig, topic) == []


def sizes_of_settles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each settle is about, from now on."""
    sizes: list[int] = []
    settle_held = verbs.settle_held

    def settle(*arguments: Any) -> int:
        sizes.append(sum(count for _, count in arguments[2].ranges))
        return settle_held(*arguments)

    monkeypatch.setattr(verbs, "settle_held", settle)
    return sizes


def test_much_is_settled_in_portions_and_what_comes_meanwhile_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "TOGETHER", 40)
    topic = rig.topic(partitions=2)
    for partition in range(2):
        rig.produce(topic, [b""] * 400, partition)
        rig.lease(topic, worker="ann", most=100, partition=partition)
        for _ in range(100):
            rig.lease(topic, worker="ann", most=2, partition=partition)
    groups = [each.proposed.queues.by_name["g"] for each in rig.node._registry.topics.get(topic).readable]
    request = rig.next_request()
    rig.send(m.SetWorker(request, topic, "g", "ann", False, ACK))
    portions = sizes_of_settles(monkeypatch)
    while groups[0].in_flight or groups[1].in_flight > 200:
        rig.node.tick(rig.now)
    assert max(portions) == 40
    assert rig.answers(request) == []
    lease = rig.next_request()
    rig.send(m.Lease(lease, topic, "g", "ann", 5, partition=0), peer="d")
    rig.turn(30)
    assert rig.answers(lease)[0].runs == [(300, 5, 1)]
    assert [answer.count for answer in rig.answers(request)] == [600]
    assert listed(rig, topic) == [("ann", 5, 0, 0)]


def test_a_group_that_is_deleted_meanwhile_ends_it(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "TOGETHER", 1)
    for partition in range(2):
        rig.lease(topic, worker="ann", partition=partition, most=10)
    request = rig.next_request()
    rig.send(m.SetWorker(request, topic, "g", "ann", False))
    rig.node.tick(rig.now)
    rig.send(m.DeleteQueue(rig.next_request(), topic, "g"), peer="d")
    rig.turn(30)
    assert [type(answer) for answer in rig.answers(request)] == [m.Counted]
    assert rig.ask(m.ListQueues).queues == []


@pytest.mark.parametrize("code", ["poisoned", "unavailable"])
def test_a_partition_that_fails_meanwhile_refuses_it(
    rig: Rig, topic: bytes, code: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "TOGETHER", 1)
    rig.lease(topic, worker="ann", partition=0, most=10)
    request, partition = rig.next_request(), rig.node._registry.topics.get(topic).partition(0)
    rig.send(m.SetWorker(request, topic, "g", "ann", False))
    rig.node.tick(rig.now)
    if code == "poisoned":
        partition.log.poison("test")
    else:
        partition.history.damaged = True
    rig.turn(30)
    assert [each.code for each in rig.answers(request)] == [code]


def test_a_group_that_is_deleted_before_a_lease_finds_nothing_remembers_no_worker(rig: Rig, topic: bytes):
    settles = [m.Settle(0, 1, ACK)] * 4000
    rig.send(m.Lease(rig.next_request(), topic, "g", "ann", 1, settles=settles, remember=True))
    rig.send(m.DeleteQueue(rig.next_request(), topic, "g"), peer="d")
    rig.turn(1000)
    assert rig.ask(m.ListWorkers, topic, "g").code == "unknown_group"


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda t: m.ListWorkers(9, t, "h"), "unknown_group"),
        (lambda t: m.ListWorkers(9, b"x" * 16, "g"), "unknown_topic"),
        (lambda t: m.SetWorker(9, t, "h", "w"), "unknown_group"),
        (lambda t: m.SetWorker(9, b"x" * 16, "g", "w"), "unknown_topic"),
        (lambda t: m.SetWorker(9, t, "g", "w" * 201), "invalid_request"),
        (lambda t: m.SetWorker(9, t, "g", "w", False, 4), "invalid_request"),
    ],
)
def test_what_is_not_there_is_refused(rig: Rig, topic: bytes, make: Any, code: str):
    rig.send(make(topic))
    rig.turn()
    assert [each.code for each in rig.answers(9)] == [code]


@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_changed_when_a_partition_cannot_be_written(rig: Rig, topic: bytes, known: bool):
    rig.lease(topic, worker="ann", partition=0)
    rig.node._registry.topics.get(topic).partition(1).history.damaged = True
    answer = rig.ask(lambda request: m.SetWorker(request, topic, "g", "ann", known))
    assert answer.code == "unavailable"
    assert listed(rig, topic) == [("ann", 1, 0, 0)]
