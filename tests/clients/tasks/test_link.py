"""The connection of an app, when the program ends and when the app is closed."""

from __future__ import annotations

import logging

import pytest
from penstock import Tasks
from penstock.clients.errors import StillFull
from penstock.clients.tasks import link as links


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
