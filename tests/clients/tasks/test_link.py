"""The connection of an app, when the program ends and when the app is closed."""

from __future__ import annotations

import asyncio
import logging

import pytest
from penstock import Tasks
from penstock.clients.errors import StillFull
from penstock.clients.tasks import link as links
from support.interrupts import left_open


class Full:
    """A client whose records have no room."""

    url, closed, closes = "mem://full", False, 0

    def close(self) -> None:
        self.closes += 1
        raise StillFull("the broker has no room")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Full:
    found = Full()
    monkeypatch.setattr(links, "connect", lambda *_, **how: found)
    return found


def test_an_app_that_cannot_send_says_so_once_when_the_program_ends(client: Full, caplog) -> None:
    link = Tasks("mem://full")._link
    link.client()
    assert link._at_exit is not None
    with caplog.at_level(logging.ERROR):
        link._at_exit()
        link._at_exit()
    assert [record.message for record in caplog.records] == [
        "closing the connection of an app to mem://full: the broker has no room"
    ]


def test_an_app_that_is_closed_raises_what_closing_it_does_and_is_silent_when_the_program_ends(client: Full) -> None:
    link = Tasks("mem://full")._link
    link.client()
    with pytest.raises(StillFull):
        link.close()
    link.close()
    assert client.closes == 1
    assert link._at_exit is not None
    assert not link._at_exit.alive


def test_programs_of_one_loop_after_the_other_leave_no_connection_open(unix: str, topic: str) -> None:
    """As of asyncio.run for each request: nothing closes what such a loop had opened."""
    app = Tasks(unix)

    async def ask() -> None:
        client = await app.aio.client()
        assert client.url == unix
        assert await client.topics() is not None

    opened = []
    for _ in range(4):
        asyncio.run(ask())
        opened.append(left_open())
    assert opened[0] == opened[1] == opened[3]
    asyncio.run(app.aio.close())
    assert len(left_open()[0]) < len(opened[0][0])
