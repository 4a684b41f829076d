"""Ctrl-C while records become a batch: what was gathered before goes out all the same, and flushing says so."""

from __future__ import annotations

import pytest
from support.interrupts import interrupts
from support.locks import is_free

INSIDE = ("clients/producing", "transport/producer_session.py", "storage/batch")


@pytest.mark.parametrize("with_columns", [False, True])
def test_gathered_records_outlive_an_interrupt_at_any_moment_of_shipping(penstock_client, with_columns) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    sender = producer._core.senders[0]
    extras = {"key": b"k", "headers": {"h": b"v"}} if with_columns else {}
    taken: list[bytes] = []
    for interrupt in interrupts(INSIDE, above=10):
        sender.trigger = 1 << 20  # so that it gathers
        value = b"%d" % interrupt.nth
        future = producer.send_nowait(value, **extras)
        with producer._driver.lock, interrupt:  # as a verb: the pump ships, too
            sender.ship()
        producer.flush()
        assert future.done(), f"interrupted at moment {interrupt.nth}"
        taken.append(value)
    assert [record.value for record in client.read("t", 0, 0, max_records=10_000)] == taken


def test_a_record_that_is_interrupted_on_its_way_in_spoils_no_other(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    sender = producer._core.senders[0]
    sure: list[bytes] = []
    for interrupt in interrupts(("clients/producing/core.py",), above=5):
        sender.trigger = 1 << 20
        producer.send_nowait(b"plain %d" % interrupt.nth)
        with interrupt:
            producer.send_nowait(b"half", key=b"k", headers={"h": b"v"}, timestamp=1_700_000_000_000_000)
        producer.flush()
        sure.append(b"plain %d" % interrupt.nth)
    found = [record.value for record in client.read("t", 0, 0, max_records=10_000)]
    assert [value for value in found if value != b"half"] == sure


def test_sending_without_waiting_gives_the_lock_back_at_any_moment(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    for interrupt in interrupts(("clients/producing/sending.py",), above=3):
        with interrupt:
            producer.send_nowait(b"value")
        assert is_free(producer._driver.lock), f"interrupted at moment {interrupt.nth}"


def test_a_named_producer_whose_claim_was_interrupted_goes_on(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    for interrupt in interrupts(("clients/connection", "clients/producing"), above=30):
        producer = client.producer("t", name=f"p{interrupt.nth}")
        with interrupt:
            producer.send(b"first")
        last = producer.send(b"after", timeout=5)
        assert client.read("t", 0, last)[0].value == b"after", f"interrupted at moment {interrupt.nth}"
        producer.close()
