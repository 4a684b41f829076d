"""What a client has open, and closes with itself: nothing of it is forgotten, and nothing that was closed is kept."""

from __future__ import annotations

from collections.abc import Callable

from penstock.clients.connection.opened import Opened


class Door:
    def __init__(self, when_asked: Callable[[], object] = lambda: None) -> None:
        self._when_asked = when_asked
        self.is_closed = False

    @property
    def closed(self) -> bool:
        self._when_asked()
        return self.is_closed


def test_what_was_closed_is_not_kept() -> None:
    opened = Opened()
    first, second, third = (opened.add(Door()) for _ in range(3))
    second.is_closed = True
    fourth = opened.add(Door())
    assert opened.newest_first() == [fourth, third, first]


def test_what_another_thread_opens_meanwhile_is_closed_too() -> None:
    opened, meanwhile = Opened(), Door()
    calls = iter([lambda: opened.add(meanwhile)])
    first = opened.add(Door(lambda: next(calls, lambda: None)()))
    second = opened.add(Door())
    assert set(opened.newest_first()) == {first, second, meanwhile}
