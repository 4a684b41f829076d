"""`penstock key`, key files, and that no secret of them is shown."""

from __future__ import annotations

import copy
import errno
import json
import os
from pathlib import Path

import pytest
from penstock import Key
from penstock.broker import access_file
from penstock.cli import app
from penstock.errors import InvalidKey


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = app.run([*args])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_keys_are_made_added_listed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    access, file = str(tmp_path / "access"), str(tmp_path / "ann.key")
    broker = Key.generate().public
    code, out, _ = run(capsys, "key", "generate", file, "--broker", broker, "--json")
    made = Key.read(file)
    assert (code, json.loads(out)["public"], made.broker) == (0, made.public, broker)
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert made.secret not in out
    assert run(capsys, "key", "generate", file)[0] == 2, "no key is overwritten"
    assert Key.read(file).secret == made.secret
    assert made.public in run(capsys, "key", "show", file)[1]
    assert run(capsys, "key", "add", access, "ann", made.public, "--expires", "1d")[0] == 0
    assert run(capsys, "key", "add", access, "bob", made.public)[0] == 2, "a key is one user's"
    assert run(capsys, "key", "add", access, "ann", made.secret[:-1])[0] == 2
    (kept,) = access_file.read(access).keys
    assert (kept.user, kept.public, kept.expires > 0) == ("ann", made.public, True)
    assert kept.id in run(capsys, "key", "list", access)[1]
    listed = json.loads(run(capsys, "key", "list", access, "--json")[1])
    assert (listed["id"], listed["user"], listed["public"]) == (kept.id, "ann", made.public)
    assert run(capsys, "key", "delete", access, kept.id, "--yes")[0] == 0
    assert access_file.read(access).keys == []
    assert made.secret not in Path(access).read_text()


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (None, 0o600, "cannot be read"),
        ("", 0o600, "is no key file"),
        ("broker " + "0" * 64, 0o600, "is no key file"),
        ("secret " + "0" * 63, 0o600, "is no key file"),
        ("secret " + "0" * 64 + "\nsecret " + "1" * 64, 0o600, "is no key file"),
        ("secret " + "0" * 64 + "\nmore", 0o600, "is no key file"),
        ("secret " + "0" * 64, 0o640, "chmod 600"),
        ("secret " + "0" * 64, 0o604, "chmod 600"),
        (b"\xff\xfe", 0o600, "no text"),
    ],
)
def test_a_file_that_is_no_key_file_is_refused(tmp_path: Path, content: str | bytes | None, mode: int, words: str):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
    with pytest.raises(InvalidKey, match=words) as caught:
        Key.read(path)
    assert "0000" not in caught.value.message


def test_comments_and_a_mode_of_the_owner_alone_are_fine(tmp_path: Path):
    path = tmp_path / "key"
    path.write_text("# mine\n\nsecret " + "a" * 64 + "\nbroker " + "b" * 64 + "\n")
    path.chmod(0o400)
    assert (Key.read(path).secret, Key.read(path).broker) == ("a" * 64, "b" * 64)


@pytest.mark.parametrize("wrong", ["", "a" * 63, "A" * 64, "g" * 64, 5, None])
def test_what_can_be_no_secret_is_refused_without_being_shown(wrong: str):
    with pytest.raises(InvalidKey) as caught:
        Key(wrong)
    assert repr(wrong) not in caught.value.message or wrong is None
    with pytest.raises(InvalidKey):
        Key("a" * 64, broker=wrong or "x")


def test_a_key_does_not_show_its_secret_and_is_neither_pickled_nor_copied():
    key = Key("5" * 64)
    assert "5" * 64 not in f"{key} {key!r} {[key]}"
    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(key)


def test_a_key_that_cannot_be_written_leaves_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(InvalidKey, match="cannot be written: No space left"):
            Key.generate().write(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []
    Key.generate().write(tmp_path / "key")
    assert Key.read(tmp_path / "key").public
