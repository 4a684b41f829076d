"""Ctrl-C while records become a batch: what was gathered before goes out all the same, and flushing says so."""

from __future__ import annotations

import pytest
from support.interrupts import InterruptAt
from support.locks import is_free

INSIDE = ("clients/producing", "transport/producer_session.py", "storage/batch")


@pytest.mark.parametrize("with_columns", [False, True])
def test_gathered_records_outlive_an_interrupt_at_any_moment_of_shipping(penstock_client, with_columns) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    sender = producer._core.senders[0]
    extras = {"key": b"k", "headers": {"h": b"v"}} if with_columns else {}
    taken, nth, came = [], 1, True
    while came:
        sender.trigger = 1 << 20  # so that it gathers
        value = b"%d" % nth
        future = producer.send_nowait(value, **extras)
        with producer._driver.lock, InterruptAt(nth, inside=INSIDE) as interrupt:  # as a verb: the pump ships, too
            try:
                sender.ship()
            except KeyboardInterrupt:
                assert interrupt.came
        producer.flush()
        assert future.done(), f"interrupted at moment {nth}"
        taken.append(value)
        came, nth = interrupt.came, nth + 1
    assert [record.value for record in client.read("t", 0, 0, max_records=10_000)] == taken
    assert nth > 10


def test_a_record_that_is_interrupted_on_its_way_in_spoils_no_other(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    sender = producer._core.senders[0]
    nth, came, sure = 1, True, []
    while came:
        sender.trigger = 1 << 20
        producer.send_nowait(b"plain %d" % nth)
        with InterruptAt(nth, inside=("clients/producing/core.py",)) as interrupt:
            try:
                producer.send_nowait(b"half", key=b"k", headers={"h": b"v"}, timestamp=1_700_000_000_000_000)
            except KeyboardInterrupt:
                assert interrupt.came
        producer.flush()
        sure.append(b"plain %d" % nth)
        came, nth = interrupt.came, nth + 1
    found = [record.value for record in client.read("t", 0, 0, max_records=10_000)]
    assert [value for value in found if value != b"half"] == sure
    assert nth > 5


def test_sending_without_waiting_gives_the_lock_back_at_any_moment(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    producer = client.producer("t")
    nth, came = 1, True
    while came:
        with InterruptAt(nth, inside=("clients/producing/sending.py",)) as interrupt:
            try:
                producer.send_nowait(b"value")
            except KeyboardInterrupt:
                assert interrupt.came
        assert is_free(producer._driver.lock), f"interrupted at moment {nth}"
        came, nth = interrupt.came, nth + 1
    assert nth > 3


def test_a_named_producer_whose_claim_was_interrupted_goes_on(penstock_client) -> None:
    client = penstock_client
    client.create_topic("t", partitions=1)
    nth, came = 1, True
    while came:
        producer = client.producer("t", name=f"p{nth}")
        with InterruptAt(nth, inside=("clients/connection", "clients/producing")) as at:
            try:
                producer.send(b"first")
            except KeyboardInterrupt:
                assert at.came
        last = producer.send(b"after", timeout=5)
        assert client.read("t", 0, last)[0].value == b"after", f"interrupted at moment {nth}"
        producer.close()
        came, nth = at.came, nth + 5
    assert nth > 30
