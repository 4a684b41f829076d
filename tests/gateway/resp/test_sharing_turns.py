"""Connections that send much at once take turns with others."""

from __future__ import annotations

import asyncio

from msgspec import structs
from penstock.gateway.resp import connection as module
from penstock.gateway.resp.command import Command
from penstock.gateway.resp.replies import Encoded


def test_small_commands_take_turns_with_other_connections(connected):
    connection, transport = connected
    most, count = module.COMMANDS_A_TURN, 3 * module.COMMANDS_A_TURN + 5

    async def run() -> list[int]:
        connection.data_received(b"PING\r\n" * count)
        seen = [transport.out.count(b"PONG")]
        assert not transport.reads
        while seen[-1] < count:
            connection.settled()  # a record's answer brings no further turn
            await asyncio.sleep(0)
            seen.append(transport.out.count(b"PONG"))
            assert seen[-1] - seen[-2] <= most
        return seen

    seen = asyncio.run(run())
    assert (seen[0], seen[-1], transport.reads) == (most, count, True)


def test_after_a_long_run_the_next_read_waits_for_a_turn(connected):
    connection, transport = connected
    most = module.CHEAPER_IN_RUNS * (module.COMMANDS_A_TURN - 1)
    noted = Command("N", 2, lambda _, __, columns: Encoded(b":1\r\n" * len(columns[0])), "connection", "", "")
    connection._table = {"N": structs.replace(noted, shared=lambda words: 1)}

    async def run() -> None:
        for count, reads in ((most - 1, True), (most, False)):
            connection.data_received(b"*2\r\n$1\r\nN\r\n$1\r\na\r\n" * count)
            assert transport.reads == reads
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert (transport.out.count(b":1"), transport.reads) == (2 * most - 1, True)


def test_what_waits_for_a_turn_is_forgotten_with_its_connection(connected):
    connection, transport = connected

    async def run() -> None:
        connection.data_received(b"PING\r\n" * 1000)
        transport.close()
        connection.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert transport.out.count(b"PONG") == module.COMMANDS_A_TURN
