"""Connections that are closed while their peer still sends: it reads the last reply all the same."""

from __future__ import annotations

import asyncio

import pytest
from penstock.gateway import lingering as module
from penstock.gateway.lingering import LINGER_BYTES, LINGER_S, PROGRESS_BYTES, linger


class Socket:
    """A transport whose peer is told what to do."""

    def __init__(self, *, halves: bool = True) -> None:
        self.protocol: asyncio.BaseProtocol | None = None
        self.unsent, self.halves = 0, halves
        self.ended = self.closed = False
        self.reads = False
        self.limit = -1

    def set_write_buffer_limits(self, high: int) -> None:
        self.limit = high

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        return self.protocol

    def can_write_eof(self) -> bool:
        return self.halves

    def write_eof(self) -> None:
        assert self.halves
        self.ended = True

    def resume_reading(self) -> None:
        self.reads = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    close = abort


class Clock:
    """An event loop's timers, run by hand."""

    def __init__(self) -> None:
        self.waiting: list = []

    def call_later(self, seconds: float, call) -> Clock:
        assert seconds == LINGER_S
        self.waiting = [call]
        return self

    def cancel(self) -> None:
        self.waiting = []

    def passes(self) -> None:
        call = self.waiting.pop()
        call()


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.asyncio, "get_running_loop", lambda: clock)
    return clock


def lingering(socket: Socket) -> asyncio.Protocol:
    linger(socket)
    assert isinstance(socket.protocol, asyncio.Protocol)
    return socket.protocol


@pytest.mark.parametrize("halves", [True, False], ids=["plain", "tls"])
def test_it_ends_its_half_and_reads_on(clock, halves):
    socket = Socket(halves=halves)
    protocol = lingering(socket)
    assert (socket.ended, socket.reads, socket.closed) == (halves, True, False)
    protocol.data_received(b"x")
    assert protocol.eof_received() is None  # the transport closes itself


def test_without_a_half_it_closes_once_all_is_written_to_a_peer_that_has_said_all(clock):
    calm, busy = Socket(halves=False), Socket(halves=False)
    linger(calm, may_send=False)
    assert calm.closed
    busy.unsent = 1
    linger(busy, may_send=False)
    assert (busy.closed, busy.limit) == (False, 0)
    assert isinstance(busy.protocol, asyncio.Protocol)
    busy.protocol.resume_writing()
    assert busy.closed


@pytest.mark.parametrize(("halves", "may_send"), [(True, False), (False, True)])
def test_what_was_written_before_does_not_close_other_connections(clock, halves, may_send):
    socket = Socket(halves=halves)
    socket.unsent = 1
    linger(socket, may_send=may_send)
    assert isinstance(socket.protocol, asyncio.Protocol)
    socket.protocol.resume_writing()
    assert not socket.closed


def test_what_a_peer_may_still_send_is_bounded(clock):
    socket = Socket()
    protocol, part = lingering(socket), bytes(1 << 20)
    for _ in range(LINGER_BYTES >> 20):
        protocol.data_received(part)
    assert not socket.closed
    protocol.data_received(b"x")
    assert socket.closed


def test_a_peer_that_does_not_close_is_cut_off(clock):
    socket = Socket()
    lingering(socket)
    clock.passes()
    assert socket.closed


def test_a_peer_that_reads_what_waits_for_it_is_not_cut_off(clock):
    socket = Socket()
    socket.unsent = 3 * PROGRESS_BYTES
    lingering(socket)
    for left in (2 * PROGRESS_BYTES, PROGRESS_BYTES - 1, 0):
        socket.unsent = left
        clock.passes()
        assert not socket.closed
    clock.passes()
    assert socket.closed


@pytest.mark.parametrize("less", [0, 1, PROGRESS_BYTES - 1])
def test_a_peer_that_reads_too_slowly_is_cut_off(clock, less):
    socket = Socket()
    socket.unsent = 3 * PROGRESS_BYTES
    lingering(socket)
    socket.unsent -= less
    clock.passes()
    assert socket.closed


def test_its_connection_is_told_when_it_is_lost_and_the_timer_ends(clock):
    lost: list[Exception | None] = []

    class Told(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(exc)

    socket = Socket()
    linger(socket, Told())
    assert isinstance(socket.protocol, asyncio.Protocol)
    socket.protocol.connection_lost(None)
    assert (lost, clock.waiting) == ([None], [])


def test_doing_it_twice_or_after_closing_changes_nothing(clock):
    socket = Socket()
    protocol = lingering(socket)
    linger(socket)
    assert socket.protocol is protocol
    closed = Socket()
    closed.closed = True
    linger(closed)
    assert closed.protocol is None
