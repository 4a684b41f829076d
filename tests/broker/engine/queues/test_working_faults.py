"""Queue groups on a full disk: finished work is written, and no lease has a record that is not in the log."""

from __future__ import annotations

from typing import Any

from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig

ACK = 0


def fill_disk(rig: Rig) -> Any:
    """Let the log of the only partition refuse what has records in it. Returns what makes it work again."""
    log = rig.node.logs[1]
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        if any(len(batch) > 2000 for batch in batches):
            raise StorageFull("no space left")
        return append(batches, now_us)

    log.append = full
    return lambda: setattr(log, "append", append)


def test_a_lease_fails_with_the_records_it_speaks_of_and_acks_beside_it_stand():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b"])
    first = rig.lease(topic, most=2)
    empty = fill_disk(rig)
    produce, lease, settle = rig.next_request(), rig.next_request(), rig.next_request()
    rig.send(m.Produce(produce, topic, 0), bytes(encode([b"x" * 3000])))
    rig.send(m.Lease(lease, topic, "g", "w", 5, wait_ms=1000))
    rig.send(m.SettleTasks(settle, topic, "g", [m.Settle(0, first.token, ACK, [(0, 1)])]))
    rig.turn()
    assert [each.code for each in rig.answers(produce)] == ["storage_full"]
    assert [each.code for each in rig.answers(lease)] == ["storage_full"]
    assert [each.refused for each in rig.answers(settle)] == [[]]
    empty()
    rig.produce(topic, [b"y"])
    assert rig.lease(topic, most=9).runs == [(2, 1, 1)]
    rig.pass_time(31)
    assert rig.lease(topic, most=9).runs == [(1, 2, 2)]


def test_workers_that_waited_beside_records_that_could_not_be_written_are_answered():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    done = rig.lease(topic).token
    rig.settle(topic, m.Settle(0, done, ACK))
    fill_disk(rig)
    produce, lease, settle = rig.next_request(), rig.next_request(), rig.next_request()
    rig.send(m.Produce(produce, topic, 0), bytes(encode([b"x" * 3000])))
    rig.send(m.Lease(lease, topic, "g", "w", 5))
    rig.send(m.SettleTasks(settle, topic, "g", [m.Settle(0, done, ACK)]))
    rig.turn()
    codes = [[getattr(each, "code", "") for each in rig.answers(request)] for request in (produce, lease, settle)]
    assert codes == [["storage_full"]] * 3


def test_who_waits_in_line_is_told_at_once_that_what_they_settled_could_not_be_written():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    token = rig.lease(topic).token
    log = rig.node.logs[1]

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    append, log.append = log.append, full
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 1, wait_ms=60_000, settles=[m.Settle(0, token, ACK)]))
    rig.turn()
    assert [each.code for each in rig.answers(request)] == ["storage_full"]
    log.append = append
    rig.produce(topic, [b"b"])
    assert len(rig.answers(request)) == 1
    assert rig.lease(topic, most=9).runs == [(1, 1, 1)], "later records are not leased"
