"""Guessing passwords: ten at once from one place, then one in two seconds; others do not feel it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from penstock.broker import access_file
from penstock.broker.errors import Overloaded
from penstock.broker.passwords import HashedPassword
from penstock.broker.rights import Principal
from penstock.gateway.guessing import EACH_S, FREE, SOURCES, Guesses
from penstock.gateway.users import Users


def wait(guesses: Guesses, source: str, now: float) -> float:
    try:
        guesses.check(source, now)
    except Overloaded as error:
        return error.retry_after
    return 0.0


def test_so_many_are_free_and_the_rest_take_their_time():
    guesses = Guesses()
    for number in range(FREE):
        assert wait(guesses, "10.0.0.1", 5.0) == 0, number
        guesses.wrong("10.0.0.1", 5.0)
    assert wait(guesses, "10.0.0.1", 5.0) == EACH_S
    assert wait(guesses, "10.0.0.1", 5.0 + EACH_S / 2) == EACH_S / 2
    assert wait(guesses, "10.0.0.1", 5.0 + EACH_S) == 0
    guesses.wrong("10.0.0.1", 5.0 + EACH_S)
    assert wait(guesses, "10.0.0.1", 5.0 + EACH_S) == EACH_S
    assert wait(guesses, "10.0.0.2", 5.0) == 0


def test_nothing_is_saved_up():
    guesses = Guesses()
    guesses.wrong("a", 0.0)
    for _ in range(FREE):
        guesses.wrong("a", 1000.0)
    assert wait(guesses, "a", 1000.0) == EACH_S


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("[fe80::1%eth0]", "fe80::2", True),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_a_network_of_ipv6_is_one_source(one: str, other: str, same: bool):
    guesses = Guesses()
    for _ in range(FREE):
        guesses.wrong(one, 0.0)
    assert (wait(guesses, other, 0.0) > 0) is same


def test_the_source_that_was_wrong_longest_ago_is_forgotten():
    guesses = Guesses()
    for source in ("first", "second", "first"):
        guesses.wrong(source, 0.0)
    for number in range(SOURCES - 1):
        guesses.wrong(str(number), 0.0)
    assert len(guesses._paid_s) == SOURCES
    assert "first" in guesses._paid_s
    assert "second" not in guesses._paid_s


def test_processes_that_reach_the_socket_of_the_same_user_are_not_counted():
    guesses = Guesses()
    for _ in range(2 * FREE):
        guesses.wrong("", 0.0)
    assert wait(guesses, "", 0.0) == 0
    assert guesses._paid_s == {}


def test_a_guesser_is_not_checked_any_more_and_others_are(tmp_path, monkeypatch, caplog):
    path, checks = str(tmp_path / "users"), []
    access_file.add_password(path, "ann", "right")
    access_file.add_password(path, "bob", "right")
    users = Users.load(path)
    matches = HashedPassword.matches
    monkeypatch.setattr("penstock.gateway.users.time", SimpleNamespace(monotonic=lambda: 5.0, time=lambda: 5.0))
    monkeypatch.setattr(HashedPassword, "matches", lambda self, given: checks.append(given) or matches(self, given))

    async def run() -> None:
        assert await users.verify("ann", "right", "far") == Principal("ann")
        guesses = [users.verify("ann", f"guess {number}", "far") for number in range(FREE + 5)]
        found = await asyncio.gather(*guesses, return_exceptions=True)
        assert [type(each) for each in found] == [type(None)] * FREE + [Overloaded] * 5
        with pytest.raises(Overloaded, match="too many wrong passwords came from far"):
            await users.verify("bob", "right", "far")
        assert await users.verify("ann", "right", "far") == Principal("ann"), "it was right lately"
        assert await users.verify("bob", "right", "near") == Principal("bob")
        assert await users.verify("bob", "right", "far") == Principal("bob"), "and here, too"

    asyncio.run(run())
    assert len(checks) == 1 + FREE + 1
    assert "guess " not in caplog.text
