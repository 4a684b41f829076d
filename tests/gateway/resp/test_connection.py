"""One connection: bounds, order, and peers that behave badly, while others notice nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Iterator, Sequence

import pytest
from penstock.clients.errors import TimedOut
from penstock.gateway.holding import HeldBytes
from penstock.gateway.resp import connection as module
from penstock.gateway.resp.command import Command, RespSession
from penstock.gateway.resp.connection import COMMAND_S, OUT_BYTES_MAX, READ_S, RespConnection
from penstock.gateway.resp.requests import RequestReader, SharedReaders
from penstock.gateway.resp.table import TABLE
from penstock.storage.errors import InvalidBatch

from .connected import OPEN, FakeDoor, Transport

hiredis = pytest.importorskip("hiredis", reason="needs the extra gateway")


def test_replies_come_in_order_in_one_write(connected):
    connection, transport = connected
    connection.data_received(b"PING\r\n*2\r\n$4\r\nECHO\r\n$1\r\na\r\nping x\r\n")
    assert transport.out == b"+PONG\r\n$1\r\na\r\n$1\r\nx\r\n"


def test_a_peer_that_does_not_read_is_not_read_from_and_then_cut_off(connected, clock):
    connection, transport = connected
    assert transport.limit == OUT_BYTES_MAX
    connection.pause_writing()
    connection.data_received(b"PING\r\n" * 3)
    assert (transport.out, transport.reads) == (b"", False)
    assert not connection.overdue(clock[0] + READ_S - 0.1)
    assert connection.overdue(clock[0] + READ_S)
    connection.resume_writing()
    assert (transport.out, transport.reads) == (b"+PONG\r\n" * 3, True)
    assert not connection.overdue(clock[0] + 1e9)


def test_a_connection_that_is_closed_is_freed_without_the_collector():
    requests = RequestReader(module.BEFORE_AUTH, SharedReaders(hiredis.Reader), hiredis.HiredisError)
    connection, transport = RespConnection(FakeDoor(), 1, requests, 1 << 20, OPEN), Transport()
    gone = weakref.ref(connection)
    gc.collect()
    gc.disable()
    try:
        connection.connection_made(transport)
        connection.data_received(b"PING\r\nMULTI\r\nPING\r\n*3\r\n$4\r\nECHO\r\n")
        connection.connection_lost(None)
        del connection
        assert gone() is None
    finally:
        gc.enable()


def test_replies_larger_than_the_questions_stop_the_rest(connected):
    connection, transport = connected
    written: list[int] = []

    def write(data: bytes) -> None:
        written.append(len(data))
        if sum(written) > OUT_BYTES_MAX:
            connection.pause_writing()

    transport.write = write

    async def run() -> None:
        connection.data_received(b"*1\r\n$7\r\nCOMMAND\r\n" * 10_000)
        for _ in range(1000):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert OUT_BYTES_MAX < sum(written) < 2 * OUT_BYTES_MAX
    assert not transport.reads


class Held:
    """A record on its way, as a Ticket."""

    def __init__(self) -> None:
        self.batch = self
        self.settled = False

    def reply(self) -> bytes:
        return b":0\r\n"


def test_replies_behind_a_record_on_its_way_stop_the_rest_until_it_is_settled(connected):
    connection, transport = connected
    text = b"x" * 60_000
    echo = b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + text + b"\r\n"
    held = Held()

    async def lives() -> None:
        connection._replies.append(held)
        for _ in range(100):
            connection.data_received(echo)
        assert transport.out == b""
        assert not transport.reads
        waiting = sum(len(reply) for reply in connection._replies if reply is not held)
        assert OUT_BYTES_MAX < waiting < OUT_BYTES_MAX + 2 * len(echo)
        held.settled = True
        connection.settled()
        while not transport.reads:
            await asyncio.sleep(0)

    asyncio.run(lives())
    assert transport.out == b":0\r\n" + b"$60000\r\n%s\r\n" % text * 100


def test_a_command_has_to_be_complete_in_time(connected, clock):
    connection, _ = connected
    assert not connection.overdue(clock[0] + 1e9)
    connection.data_received(b"*1\r\n$4\r\nPI")
    clock[0] += COMMAND_S - 1
    connection.data_received(b"N")
    assert not connection.overdue(clock[0])
    assert connection.overdue(clock[0] + 1)
    connection.data_received(b"G\r\n")
    assert not connection.overdue(clock[0] + 1e9)


def test_a_peer_that_reads_late_has_no_more_time_for_its_command(connected, clock):
    connection, _ = connected
    connection.data_received(b"*1\r\n$4\r\nPI")
    connection.pause_writing()
    assert connection.overdue(clock[0] + READ_S)
    connection.resume_writing()
    assert not connection.overdue(clock[0] + COMMAND_S - 0.1)
    assert connection.overdue(clock[0] + COMMAND_S)
    connection.pause_writing()
    clock[0] += COMMAND_S
    assert connection.overdue(clock[0])


def ends(connection: RespConnection, data: bytes) -> None:
    """The last bytes of a connection, which lingers."""

    async def receive() -> None:
        connection.data_received(data)

    asyncio.run(receive())


NO_REQUESTS = [
    b"*100000000\r\n",
    b"*1\r\n$2147483648\r\n",
    b"*1\r\n:1\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\n\r\nPING\r\n",
]


@pytest.mark.parametrize("data", NO_REQUESTS)
def test_what_is_no_request_is_answered_once_and_ends_the_connection(connected, data):
    connection, transport = connected
    ends(connection, b"PING\r\n" + data)
    assert transport.out.startswith(b"+PONG\r\n-ERR Protocol error")
    assert transport.out.count(b"\r\n") == 2
    assert (transport.ended, transport.closed, transport.reads) == (True, False, True)


LARGE = b"*8000\r\n$4\r\nECHO\r\n$6\r\n*99999\r\n" + b"$1\r\na\r\n" * 7998


def test_large_arrays_of_many_connections_are_parsed_one_portion_a_turn(clock, monkeypatch):
    looked: list[int] = []
    feed = RequestReader.feed

    def counted(reader: RequestReader, data: bytes, most: int = 0) -> list[list[bytes]]:
        looked[-1] += most if reader.more or data else 0
        return feed(reader, data, most)

    monkeypatch.setattr(RequestReader, "feed", counted)

    async def run() -> None:
        peers = []
        for _ in range(20):
            requests = RequestReader(module.BEFORE_AUTH, SharedReaders(hiredis.Reader), hiredis.HiredisError)
            peers.append((RespConnection(FakeDoor(), 1, requests, 1 << 20, OPEN), Transport()))
            peers[-1][0].connection_made(peers[-1][1])
            looked.append(0)
            peers[-1][0].data_received(LARGE + b"PING\r\n")
            assert looked[-1] <= module.AT_ONCE + module.PORTION
            assert not peers[-1][1].reads
        while not all(transport.out for _, transport in peers):
            looked.append(0)
            await asyncio.sleep(0)
            assert looked[-1] <= module.PORTION
        for _, transport in peers:
            assert transport.out == b"-ERR wrong number of arguments for 'echo' command\r\n+PONG\r\n"
            assert transport.reads

    asyncio.run(run())


@pytest.mark.parametrize("end", ["lost", "drained", "quit"])
def test_a_connection_may_end_before_all_of_it_is_parsed(connected, end):
    connection, transport = connected

    async def run() -> None:
        connection.data_received(LARGE * 2 + b"QUIT\r\n" + LARGE)
        if end == "lost":
            transport.close()
            connection.connection_lost(None)
        elif end == "drained":
            connection.drain()
        while not (transport.closed or transport.ended):
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert transport.out.count(b"\r\n") == (0 if end == "lost" else 3)


def another() -> tuple[RespConnection, Transport]:
    requests = RequestReader(module.BEFORE_AUTH, SharedReaders(hiredis.Reader), hiredis.HiredisError)
    connection, transport = RespConnection(FakeDoor(), 1, requests, 1 << 20, OPEN), Transport()
    connection.connection_made(transport)
    return connection, transport


@pytest.fixture
def bound(monkeypatch) -> HeldBytes:
    held = HeldBytes(1 << 20)
    monkeypatch.setattr(FakeDoor, "held", held)
    return held


def test_a_command_that_is_not_complete_is_held_and_the_largest_gives_way(clock, bound):
    small, large, last = another(), another(), another()

    async def run() -> None:
        small[0].data_received(b"*2\r\n$4\r\nECHO\r\n$300000\r\n" + b"x" * 200_000)
        large[0].data_received(b"*2\r\n$4\r\nECHO\r\n$600000\r\n" + b"x" * 300_000)
        assert large[1].out == b""
        last[0].data_received(b"*2\r\n$4\r\nECHO\r\n$9000\r\n" + b"x" * 9000)
        last[0].data_received(b"\r\n")
        assert last[1].out.startswith(b"$9000\r\n")
        last[0].data_received(b"*2\r\n$4\r\nECHO\r\n$900000\r\n" + b"x" * 100_000)
        assert b"as many bytes of its clients as it may" in large[1].out
        assert large[1].ended
        assert large[0].held() == 0 < small[0].held()

    asyncio.run(run())
    assert (small[1].out, small[1].ended) == (b"", False)


def test_replies_that_a_peer_does_not_read_are_held_and_it_is_cut_off(clock, bound):
    (slow, socket), (other, theirs) = another(), another()
    socket.get_write_buffer_size = lambda: 900_000
    slow.data_received(b"*1\r\n$4\r\nPING\r\n")
    assert not socket.closed
    other.data_received(b"*2\r\n$4\r\nECHO\r\n$600000\r\n" + b"x" * 100_000)
    assert socket.closed
    slow.connection_lost(None)
    assert not theirs.closed
    assert bound.take((1 << 20) - other.held())


def test_what_a_peer_reads_is_not_held_any_more(clock, bound):
    slow, socket = another()
    socket.get_write_buffer_size = lambda: 900_000
    slow.data_received(b"*1\r\n$4\r\nPING\r\n")
    assert bound._left == (1 << 20) - 900_000
    socket.get_write_buffer_size = lambda: 0
    bound.look()
    assert bound._left == 1 << 20


def test_a_connection_that_is_gone_holds_nothing_once_its_records_are_settled(clock, bound):
    peer, transport = another()
    held, text = Held(), b"$9000\r\n" + b"x" * 9000

    async def lives() -> None:
        peer._replies.append(held)
        peer.data_received(b"*2\r\n$4\r\nECHO\r\n" + text + b"\r\nMULTI\r\n*2\r\n$4\r\nECHO\r\n" + text + b"\r\n")
        peer.data_received(b"*2\r\n$4\r\nECHO\r\n" + text)
        assert bound._left < (1 << 20) - 3 * 9000
        transport.close()
        peer.connection_lost(None)
        held.settled = True
        peer.settled()
        assert bound._left == 1 << 20
        assert peer.held() == 0

    asyncio.run(lives())


def test_a_run_that_fails_for_now_is_refused_as_one(connected):
    """Each alone would wait for as long: a pipeline of a thousand held its connection for hours."""
    connection, transport = connected
    ran: list[int] = []

    async def late(session: RespSession, shared: list[bytes], columns: list[Sequence[bytes]]) -> bytes:
        ran.append(len(columns[0]))
        raise TimedOut("no answer") if shared == [b"now"] else InvalidBatch("one is bad")

    async def run() -> None:
        row = Command("ADD", 3, late, "streams", "ADD", "Adds", shared=lambda words: 2)
        connection._table = {**TABLE, "ADD": row}
        connection.data_received(b"ADD now a\r\nADD now b\r\nADD now c\r\nPING\r\nADD bad a\r\nADD bad b\r\nPING\r\n")
        while transport.out.count(b"\r\n") < 7:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert ran == [3, 2, 1, 1]
    passing, lasting = b"-TRYAGAIN no answer [timed_out]\r\n", b"-ERR one is bad [invalid_batch]\r\n"
    assert transport.out == passing * 3 + b"+PONG\r\n" + lasting * 2 + b"+PONG\r\n"


def test_a_reply_that_there_is_no_room_for_is_refused_and_given_back(connected, bound):
    connection, transport = connected

    async def run() -> None:
        async def large(session: RespSession, arguments: list[bytes]) -> bytes:
            for _ in range(int(arguments[0])):
                session.hold(100_000)
                assert not connection.shed()
            return b"done"

        connection._table = {"LARGE": Command("LARGE", 2, large, "streams", "LARGE", "Large")}
        connection.data_received(b"LARGE 11\r\nLARGE 10\r\n")
        while transport.out.count(b"\r\n") < 3:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert transport.out.startswith(b"-ERR the gateway holds as many bytes")
    assert transport.out.endswith(b"ask for fewer with COUNT\r\n$4\r\ndone\r\n")
    assert bound._left == 1 << 20


def test_quit_ends_it_and_what_comes_behind_does_not_run(connected):
    connection, transport = connected
    ends(connection, b"QUIT\r\nPING\r\n")
    assert (transport.out, transport.ended, transport.reads) == (b"+OK\r\n", True, True)
    assert not connection.overdue(1e9)


def test_a_connection_that_lingers_closes_when_the_door_does(connected):
    connection, transport = connected
    ends(connection, b"QUIT\r\n")
    assert not transport.closed
    connection.drain()
    assert transport.closed


def test_what_came_before_the_end_of_the_stream_is_answered(connected):
    connection, transport = connected
    connection.pause_writing()
    connection.data_received(b"PING\r\nPING\r\n")
    assert connection.eof_received()
    connection.resume_writing()
    assert (transport.out, transport.closed) == (b"+PONG\r\n" * 2, True)


def test_a_command_that_begins_to_wait_after_the_end_of_the_stream_does_not(connected):
    connection, transport = connected

    async def run() -> None:
        asked = asyncio.Event()

        async def wait(session: RespSession, arguments: list[bytes]) -> None:
            await asked.wait()
            session.blocks(True)
            await asyncio.Event().wait()

        connection._table = {"WAIT": Command("WAIT", 1, wait, "streams", "WAIT", "Waits")}
        connection.data_received(b"WAIT\r\n")
        assert connection.eof_received()
        asked.set()
        while not transport.closed:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert transport.out == b"*-1\r\n"


@pytest.mark.parametrize("behind", [0, 3])
def test_a_large_reply_that_the_peer_takes_at_once_stops_nothing(connected, behind):
    connection, transport = connected

    async def large(session: RespSession, arguments: list[bytes]) -> bytes:
        return b"x" * (OUT_BYTES_MAX + 1)

    async def run() -> None:
        connection._table = {**TABLE, "LARGE": Command("LARGE", 1, large, "streams", "LARGE", "Answers")}
        connection.data_received(b"LARGE\r\n" + b"PING\r\n" * behind)
        while len(transport.out) < OUT_BYTES_MAX:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert transport.reads
    assert transport.out.endswith(b"x\r\n" + b"+PONG\r\n" * behind)


def test_a_transaction_is_bounded(connected):
    connection, transport = connected

    async def run() -> None:
        connection.data_received(b"MULTI\r\n")
        connection.data_received(b"*1\r\n$4\r\nPING\r\n" * 20_000)
        while not transport.reads:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert b"a transaction has 1048576 bytes at most" in transport.out
    connection.data_received(b"EXEC\r\n")
    assert transport.out.endswith(b"-EXECABORT Transaction discarded because of previous errors.\r\n")


def test_reset_leaves_a_transaction(connected):
    connection, transport = connected
    connection.data_received(b"CLIENT SETNAME me\r\nMULTI\r\nPING\r\nRESET\r\nPING\r\nCLIENT GETNAME\r\nEXEC\r\n")
    assert transport.out == (b"+OK\r\n+OK\r\n+QUEUED\r\n+RESET\r\n+PONG\r\n$-1\r\n-ERR EXEC without MULTI\r\n")


# -- over real sockets -------------------------------------------------------------------------------------


@pytest.fixture
def peer(gateway) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connected:
        yield connected


def received(peer: socket.socket) -> bytes:
    """Everything until the gateway closes."""
    found = b""
    while data := peer.recv(1 << 16):
        found += data
    return found


def test_http_is_refused(peer):
    peer.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nPING\r\n")
    assert received(peer) == b"-ERR Protocol error: this port speaks RESP, not HTTP\r\n"


@pytest.mark.parametrize("data", [b"QUIT\r\n", b"*1\r\n$99999999\r\n", b"*1\r\n:1\r\n"], ids=["quit", "large", "kind"])
def test_a_peer_that_still_sends_reads_the_last_reply(peer, data):
    peer.sendall(data)
    for _ in range(20):
        peer.sendall(bytes(1 << 20))
    assert received(peer)[:5] in (b"+OK\r\n", b"-ERR ")


def test_a_peer_that_closes_its_half_is_answered(peer, key):
    peer.sendall(b"ENQUEUE %b x\r\nLISTEN %b c\r\n" % (key.encode(), key.encode()))
    peer.shutdown(socket.SHUT_WR)
    assert received(peer) == b":0\r\n*1\r\n$1\r\nx\r\n"


def test_abusive_peers_hold_nothing_up(gateway, resp, key):
    def memory() -> int:
        with open(f"/proc/{gateway.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    before = memory()
    peers = [socket.create_connection(("127.0.0.1", gateway.port), timeout=30) for _ in range(100)]
    try:
        for each in peers[:50]:
            each.sendall(b"*65536\r\n$4\r\nXADD\r\n")  # the largest array, and then nothing
        for each in peers[50:]:
            each.sendall(b"*2\r\n$4\r\nECHO\r\n$65536\r\n" + b"x" * 65536 + b"\r\n" + b"*1\r\n$4\r\nPI")
        assert resp.xadd(key, {"value": "x"}).endswith(b"-0")
        assert resp.xlen(key) == 1
        assert memory() - before < 50 << 10
    finally:
        for each in peers:
            each.close()


@pytest.mark.parametrize("behind", ["", "PING\r\n"], ids=["nothing behind", "a command behind"])
def test_a_blocked_reader_that_left_is_forgotten(gateway, resp, key, behind):
    resp.xadd(key, {"value": "x"})
    before = int(resp.info()["connected_clients"])
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as each:
        each.sendall(f"PING\r\nXREAD BLOCK 0 STREAMS {key} $\r\n{behind}".encode())
        assert each.recv(100) == b"+PONG\r\n"
        assert int(resp.info()["connected_clients"]) == before + 1
    while int(resp.info()["connected_clients"]) > before:
        resp.ping()
