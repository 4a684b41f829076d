"""Bare Unix sockets move whole batches, count round trips, and their peers end."""

from __future__ import annotations

import os
import socket

import pytest
from support.servers import descendants

from perf.bare import unix_sockets, zeromq


@pytest.fixture(autouse=True)
def peers_end():
    before = descendants(os.getpid())
    yield
    assert descendants(os.getpid()) <= before


@pytest.fixture
def pair():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        yield one, other


def test_a_batch_arrives_as_it_was_sent_and_the_end_is_no_batch(pair):
    one, other = pair
    memory = memoryview(bytearray(1000))
    for data in (b"first", b"x" * 900):
        unix_sockets.send(one, data)
        assert memory[: unix_sockets.received(other, memory)] == data
    one.close()
    assert unix_sockets.received(other, memory) == 0


def test_an_end_within_a_batch_is_an_error(pair):
    one, other = pair
    one.sendall((10).to_bytes(4, "little") + b"half")
    one.close()
    with pytest.raises(ConnectionError, match="within a batch"):
        unix_sockets.received(other, memoryview(bytearray(10)))


@pytest.mark.parametrize("batches", [1, zeromq.WINDOW - 1, zeromq.WINDOW, 3 * zeromq.WINDOW])
def test_every_batch_is_acknowledged_whatever_the_window(batches):
    assert unix_sockets.acknowledged_records_per_s([b"x" * 100] * 2 * batches, batch=2) > 0


@pytest.mark.parametrize("size", [100, 1 << 10, 64 << 10])
def test_batches_of_every_size_are_delivered(size):
    assert unix_sockets.delivered_records_per_s(3 * zeromq.in_a_batch(size), size) > 0


def test_bulk_arrives():
    assert unix_sockets.bulk_mb_per_s(pieces=4) > 0


@pytest.mark.parametrize("measure", [unix_sockets.ping_pong_ns, unix_sockets.one_way_ages_ns, zeromq.one_way_ages_ns])
def test_every_message_is_counted(measure):
    ages = measure(20)
    assert len(ages) == 20
    assert ages.min() > 0
