"""The users file: who may read it, what it holds, and passwords that are checked against it."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import access_file as module
from penstock.broker import passwords
from penstock.broker.errors import InvalidUsers
from penstock.broker.passwords import HashedPassword
from penstock.broker.rights import Grant, Principal, authorize
from penstock.gateway.users import Users

READS = Grant(False, frozenset(["read"]), "topic:t")


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "COST", (2, 1, 1))
    passwords.decoy.cache_clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "users")


@pytest.fixture
def checked() -> Iterator[Callable[..., list[Principal | None]]]:
    """What questions answer that are asked at once."""

    async def all_of(questions: tuple[Coroutine[Any, Any, Principal | None], ...]) -> list[Principal | None]:
        return await asyncio.gather(*questions)

    with asyncio.Runner() as runner:
        yield lambda *questions: runner.run(all_of(questions))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that were checked at full cost."""
    seen: list[str] = []
    matches = HashedPassword.matches

    def watched(self: HashedPassword, password: str) -> bool:
        seen.append(password)
        return matches(self, password)

    monkeypatch.setattr(HashedPassword, "matches", watched)
    return seen


def test_a_password_with_nul_characters_behind_is_another_one(checked, path):
    module.add_password(path, "ann", "s3cret")
    users = Users.load(path)
    assert checked(users.verify("ann", "s3cret\0"), users.verify("ann", "s3cret\0\0\0")) == [None, None]
    with pytest.raises(InvalidUsers, match="NUL"):
        module.add_password(path, "bob", "s3cret\0")


def test_the_right_password_of_a_user_is_that_user(checked, path):
    assert module.add_password(path, "ann", "s3cret") is True
    assert module.add_password(path, "bob", "other: \u20ac\udcff") is True
    users = Users.load(path)
    assert checked(
        users.verify("ann", "s3cret"), users.verify("ann", "other: \u20ac\udcff"), users.verify("ann", ""),
        users.verify("bob", "other: \u20ac\udcff"), users.verify("eve", "s3cret"),
    ) == [Principal("ann"), None, None, Principal("bob"), None]  # fmt: skip


def test_a_password_that_was_right_costs_once_and_a_wrong_one_each_time(checked, path, hashed):
    module.add_password(path, "ann", "right")
    users = Users.load(path)
    assert checked(*(users.verify("ann", "right") for _ in range(20))) == [Principal("ann")] * 20
    assert hashed == ["right"]
    assert checked(*(users.verify(name, "wrong") for name in ("ann", "ann", "eve"))) == [None] * 3
    assert hashed == ["right", "wrong", "wrong", "wrong"]
    assert checked(users.verify("eve", "right")) == [None]
    assert len(users._right) == 1


def test_a_source_that_guesses_delays_others_by_one_check_each(checked, path, hashed):
    module.add_password(path, "ann", "right")
    users = Users.load(path)
    guesses = [users.verify("ann", f"guess {number}", "far", number) for number in range(9)]
    assert checked(*guesses, users.verify("ann", "right", "near"))[-1] == Principal("ann")
    assert hashed.index("right") <= 2
    users._right.clear()
    hashed.clear()
    guesses = [users.verify("ann", f"guess {number}", "near", 1) for number in range(9)]
    assert checked(*guesses, users.verify("ann", "right", "near"))[-1] == Principal("ann")
    assert hashed.index("right") == 1


def test_checks_run_one_at_a_time_beside_the_loop_also_when_callers_leave(path, monkeypatch):
    module.add_password(path, "ann", "right")
    users, go, inside, most = Users.load(path), threading.Event(), [0], [0]

    def slow(self: HashedPassword, password: str) -> bool:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        go.wait(30)
        inside[0] -= 1
        return False

    monkeypatch.setattr(HashedPassword, "matches", slow)

    async def run() -> None:
        asked = [asyncio.ensure_future(users.verify("ann", str(number))) for number in range(5)]
        while not inside[0]:
            await asyncio.sleep(0)
        for each in asked[:2]:
            each.cancel()
        await asyncio.wait(asked[:2])
        assert inside == [1]
        go.set()
        assert await asyncio.gather(*asked[2:]) == [None] * 3

    asyncio.run(run())
    assert (most, inside) == ([1], [0])


def test_a_check_that_cannot_begin_holds_up_no_other(path, monkeypatch):
    """No password was ever checked again."""
    module.add_password(path, "ann", "right")
    users = Users.load(path)

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> Principal | None:
        with monkeypatch.context() as limited:
            limited.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
            with pytest.raises(RuntimeError):
                await users.verify("ann", "right")
        return await asyncio.wait_for(users.verify("ann", "right"), 30)

    assert asyncio.run(run()) == Principal("ann")


def test_a_running_gateway_notices_other_users(checked, path, caplog):
    module.add_password(path, "ann", "old")
    users = Users.load(path)
    assert checked(users.verify("ann", "old")) == [Principal("ann")]
    assert module.add_password(path, "ann", "new") is False
    assert checked(users.verify("ann", "old"), users.verify("ann", "new")) == [None, Principal("ann")]
    os.chmod(path, 0o644)
    Path(path).write_text("nonsense")
    assert checked(users.verify("ann", "new"), users.verify("ann", "new")) == [Principal("ann")] * 2
    assert [each.levelname for each in caplog.records] == ["WARNING", "ERROR"], "a refused client, and once the file"
    os.unlink(path)
    assert checked(users.verify("ann", "new")) == [Principal("ann")]
    module.add_password(path, "bob", "x")
    assert checked(users.verify("ann", "new"), users.verify("bob", "x")) == [None, Principal("bob")]


@pytest.mark.parametrize("enforced", [True, False])
def test_who_showed_a_password_may_do_nothing_once_it_has_changed(checked, path, monkeypatch, enforced):
    for name in ("ann", "bob"):
        module.add_password(path, name, "x")
        module.add_grant(path, name, READS)
    users = Users.load(path, enforced=enforced)
    monkeypatch.setattr("penstock.gateway.users.LOOK_S", 0.0)
    ann, again, bob = checked(users.verify("ann", "x"), users.verify("ann", "x"), users.verify("bob", "x"))
    assert [reads(users, each) for each in (ann, again, bob)] == [True] * 3
    module.add_token(path, "ann")
    assert reads(users, ann), "another change is none of the password"
    module.add_password(path, "ann", "x")
    assert [reads(users, each) for each in (ann, again, bob)] == [False, False, True], "the same word, set anew"
    (fresh,) = checked(users.verify("ann", "x"))
    assert [reads(users, each) for each in (fresh, ann, Principal("ann"))] == [True, False, False]
    module.delete_user(path, "ann")
    assert not reads(users, fresh)


def test_passwords_of_one_hash_are_still_two_users(checked, path):
    module.add_password(path, "ann", "x")
    line = Path(path).read_text()
    Path(path).write_text(line + line.replace("ann", "bob"))
    users = Users.load(path)
    assert checked(users.verify("ann", "x"), users.verify("bob", "x")) == [Principal("ann"), Principal("bob")]


def test_a_password_that_changes_while_it_is_checked_is_wrong(path, monkeypatch):
    module.add_password(path, "ann", "old")
    users, matches = Users.load(path), HashedPassword.matches

    def changing(self: HashedPassword, password: str) -> bool:
        found = matches(self, password)
        module.add_password(path, "ann", "new")
        users._refresh()
        return found

    monkeypatch.setattr(HashedPassword, "matches", changing)
    assert asyncio.run(users.verify("ann", "old")) is None


def reads(users: Users, principal: Principal | None) -> bool:
    assert principal is not None
    return authorize(users.current(principal), "read", "topic:t")


def test_a_changed_file_that_is_made_private_counts_then(checked, path):
    for name in ("ann", "bob"):
        module.add_password(path, name, "x")
    users = Users.load(path)
    text = Path(path).read_text()
    os.chmod(path, 0o644)
    Path(path).write_text(text.replace("bob", "eve"))
    assert checked(users.verify("bob", "x")) == [Principal("bob")]
    os.chmod(path, 0o600)
    assert checked(users.verify("bob", "x"), users.verify("eve", "x")) == [None, Principal("eve")]


def test_a_user_that_was_deleted_is_none_any_more(checked, path):
    module.add_password(path, "ann", "x")
    users = Users.load(path)
    assert checked(users.verify("ann", "x")) == [Principal("ann")]
    module.delete_user(path, "ann")
    assert checked(users.verify("ann", "x")) == [None]
    with pytest.raises(InvalidUsers, match="has no users: penstock user add"):
        Users.load(path)
    with pytest.raises(InvalidUsers, match="no user ann"):
        module.delete_user(path, "ann")


def test_the_file_is_for_its_owner_alone_and_has_no_password(path):
    before = os.umask(0)
    try:
        module.add_password(path, "ann", "s3cret")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    text = Path(path).read_text()
    assert text.startswith("ann:scrypt:2:1:1:")
    assert "s3cret" not in text
    assert os.listdir(os.path.dirname(path)) == ["users"]
    for mode in (0o400, 0o700):
        os.chmod(path, mode)
        assert module.read(path).names == ["ann"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes files of other users")
@pytest.mark.parametrize("owner", [(12345, 12346), (12345, os.getegid()), (os.geteuid(), 12346)])
def test_root_leaves_a_file_to_its_owner_who_has_to_read_it(path, monkeypatch, owner):
    module.add_password(path, "ann", "x")
    os.chown(path, *owner)
    module.add_grant(path, "ann", READS)
    found = os.stat(path)
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, 0o600)

    def refuse(descriptor: int, user: int, group: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(InvalidUsers, match="cannot be written: Operation not permitted"):
        module.delete_user(path, "ann")
    assert os.listdir(os.path.dirname(path)) == ["users"]
    assert module.read(path).names == ["ann"]


def test_what_was_changed_is_on_the_disk_when_the_command_ends(path, monkeypatch):
    """A token that was revoked does not come back with a power cut: the file's name is synced, too."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    module.add_password(path, "ann", "x")
    assert [os.path.dirname(synced[0]), *synced[1:]] == [os.path.dirname(path)] * 2


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o610])
def test_a_file_that_others_may_open_is_refused(path, mode):
    module.add_password(path, "ann", "x")
    os.chmod(path, mode)
    for use in (Users.load, module.read, lambda path: module.add_password(path, "bob", "x")):
        with pytest.raises(InvalidUsers, match="open to other users of this machine: chmod 600"):
            use(path)


def test_the_same_password_twice_is_hashed_differently(path):
    module.add_password(path, "ann", "x")
    module.add_password(path, "bob", "x")
    first, second = (line.partition(":")[2] for line in Path(path).read_text().splitlines())
    assert first != second


HASHED = "scrypt:2:1:1:" + "00" * 16 + ":" + "00" * 32

BAD_LINES = {
    "ann": "is not that of a user",
    "ann:secret": "is not that of a user",
    "ann:" + HASHED[:-1]: "is not that of a user",
    "a b:" + HASHED: "is not that of a user",
    "ann:" + HASHED.replace(":2:", ":3:", 1): "no cost",
    "ann:" + HASHED.replace(":2:", ":1:", 1): "no cost",
    "ann:" + HASHED.replace(":1:", ":0:", 1): "no cost",
    "ann:" + HASHED.replace(":2:", f":{1 << 20}:", 1): "is too high",
    "ann:" + HASHED.replace(":2:1:1", f":{1 << 16}:8:65", 1): "is too high",
    f"bob:{HASHED}": "user bob is there twice",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_line_that_is_none_is_named(path, line):
    Path(path).write_text(f"# people\nbob:{HASHED}\n\n{line}\n")
    os.chmod(path, 0o600)
    with pytest.raises(InvalidUsers, match=f"line 4.*{BAD_LINES[line]}"):
        Users.load(path)


def test_what_cannot_be_read_or_written_is_one_sentence(path, tmp_path):
    with pytest.raises(InvalidUsers, match="cannot be read: No such file"):
        Users.load(path)
    with pytest.raises(InvalidUsers, match="cannot be written: No such file"):
        module.add_password(str(tmp_path / "none" / "users"), "ann", "x")
    Path(path).write_bytes(b"\xff")
    with pytest.raises(InvalidUsers, match="cannot be read"):
        Users.load(path)


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("a:b", "x"), ("a b", "x"), ("ann", "")])
def test_names_and_passwords_have_to_be_some(path, name, password):
    with pytest.raises(InvalidUsers):
        module.add_password(path, name, password)
    assert not os.path.exists(path)


def test_new_passwords_cost_enough():
    n, r, p = 1 << 14, 8, 5
    assert HashedPassword(n, r, p, bytes(16), b"")._hash("x", 4)  # OpenSSL allows the memory


# -- tokens --------------------------------------------------------------------------------------------------


def test_a_token_is_its_user_until_it_expires_or_is_deleted(path, monkeypatch):
    secret, token = module.add_token(path, "ann", 1_000)
    lasting, _ = module.add_token(path, "bob")
    users, now = Users.load(path), [999.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    async def look() -> None:
        assert [users.verify_token(each) for each in (secret, lasting)] == [Principal("ann"), Principal("bob")]
        assert [users.verify_token(each) for each in ("", secret[:-1], secret + "x", token.digest)] == [None] * 4
        now[0] = 1_000.0
        assert users.verify_token(secret) is None
        now[0] = 999.0
        module.delete_token(path, token.id)
        assert [users.verify_token(each) for each in (secret, lasting)] == [None, Principal("bob")]

    asyncio.run(look())


def test_the_file_has_hashes_of_tokens_and_is_private(path):
    made = [module.add_token(path, name, 5)[0] for name in ("ann", "ann", "bob")]
    assert len(set(made)) == 3
    text = Path(path).read_text()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not [secret for secret in made if secret in text]
    assert [token.user for token in module.read(path).tokens] == ["ann", "ann", "bob"]


def test_passwords_and_tokens_do_not_change_each_other(path, checked):
    module.add_password(path, "ann", "one")
    secret, token = module.add_token(path, "ann")
    module.add_password(path, "ann", "two")
    users = Users.load(path)
    assert users.verify_token(secret) == Principal("ann")
    module.delete_token(path, token.id)
    assert checked(users.verify("ann", "two")) == [Principal("ann")]
    secret, _ = module.add_token(path, "ann")
    module.add_token(path, "bob")
    assert module.read(path).names == ["ann", "bob"]
    module.delete_user(path, "ann")
    assert users.verify_token(secret) is None
    module.delete_user(path, "bob")
    with pytest.raises(InvalidUsers, match="no users"):
        Users.load(path)


def test_what_is_not_there_is_said(path):
    module.add_token(path, "ann")
    with pytest.raises(InvalidUsers, match="no token 00"):
        module.delete_token(path, "00")
    with pytest.raises(InvalidUsers, match="no user bob"):
        module.delete_user(path, "bob")
    with pytest.raises(InvalidUsers, match="cannot be the name"):
        module.add_token(path, "a:b")
