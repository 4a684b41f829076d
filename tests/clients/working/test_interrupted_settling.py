"""Ctrl-C while outcomes are said: they are said again, and nothing waits for ever."""

from __future__ import annotations

from support.interrupts import interrupts

PLACES = ("clients/working/settling.py", "clients/working/leases.py", "broker", "clients/connection/connection.py")


def test_an_ack_that_is_interrupted_at_any_moment_is_committed_by_flushing(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    with client.worker("t", group="g") as worker:
        for interrupt in interrupts(PLACES, stride=3, above=10):
            producer.send(b"x")
            (task,) = worker.fetch(1)
            with interrupt:
                task.ack()
            worker.flush()
            assert not worker._core.settling.unconfirmed
