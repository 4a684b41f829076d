"""Each of a log, a channel, a spool and a broker refuses a directory of the others, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from penstock import Channel, Log, Spool
from penstock.clients import connect
from penstock.clients.spooling.forwarding import Forwarder
from penstock.storage.errors import ForeignDirectory
from penstock.storage.files import Files


def node(path: str) -> Any:
    client = connect(f"file://{path}")
    client.create_topic("t", if_missing=True)
    return client


KINDS: dict[str, Callable[[str], Any]] = {"log": Log, "channel": Channel, "spool": Spool, "node": node}
OPENERS = KINDS | {"forwarder": Forwarder}


def filled(kind: str, path: Path) -> None:
    """A directory of this kind, with something in it."""
    with KINDS[kind](str(path)) as made:
        if kind == "log":
            made.append(b"v")
        elif kind == "channel":
            made.put(b"v")
        elif kind == "spool":
            made.send("t", b"v")


def tree(path: Path) -> dict[str, bytes | None]:
    return {str(each): each.read_bytes() if each.is_file() else None for each in sorted(path.rglob("*"))}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_opens_its_own_directories_and_refuses_those_of_the_others(kind, opener, tmp_path):
    filled(kind, tmp_path / "d")
    if kind == {"forwarder": "spool"}.get(opener, opener):
        OPENERS[opener](str(tmp_path / "d")).close()
        return
    before = tree(tmp_path)
    with pytest.raises(ForeignDirectory, match=f"{tmp_path}/d "):
        OPENERS[opener](str(tmp_path / "d"))
    assert tree(tmp_path) == before
    filled(kind, tmp_path / "d")


@pytest.mark.parametrize("opener", OPENERS)
def test_a_directory_with_anything_else_is_refused_and_an_empty_one_is_taken(opener, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/precious.txt").touch()
    with pytest.raises(ForeignDirectory, match=r"it holds precious\.txt\): choose an empty one"):
        OPENERS[opener](str(tmp_path / "d"))
    (tmp_path / "d/precious.txt").unlink()
    assert tree(tmp_path / "d") == {}
    OPENERS[opener](str(tmp_path / "d")).close()


@pytest.mark.parametrize("kind", ["log", "channel", "spool"])
def test_what_else_a_directory_got_later_does_not_keep_it_from_being_opened(kind, tmp_path):
    filled(kind, tmp_path / "d")
    (tmp_path / "d/notes.txt").touch()
    filled(kind, tmp_path / "d")


BEGUN = [
    ("log", ["lock", "promises", "spare-1"]),
    ("channel", ["items/"]),
    ("channel", ["items/", "done/", "taken", "lock"]),
    ("spool", ["lock", "forwarded.json.new"]),
    ("spool", ["forwarding"]),
    ("spool", ["lock", "forwarding", "records/"]),
]


@pytest.mark.parametrize(("kind", "names"), BEGUN)
def test_what_was_begun_by_a_process_that_died_is_taken(kind, names, tmp_path):
    for name in names:
        path = tmp_path / "d" / name
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if name.endswith("/") else path.touch()
    filled(kind, tmp_path / "d")


@pytest.mark.parametrize("opener", ["log", "channel", "spool", "forwarder"])
@pytest.mark.parametrize("step", ["mkdir", "listdir", "try_lock"])
def test_what_the_system_does_not_allow_is_one_error(opener, step, tmp_path, monkeypatch):
    def denied(files: Files, path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    if step == "try_lock" and opener == "channel":
        step = "sync_dir"
    monkeypatch.setattr(Files, step, denied)
    with pytest.raises(ForeignDirectory, match=f"{tmp_path}/d cannot be a .*'s directory: Permission denied"):
        OPENERS[opener](str(tmp_path / "d"))


def test_a_log_that_may_not_be_read_is_the_same_error(tmp_path, monkeypatch):
    def denied(files: Files, path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(Files, "listdir", denied)
    with pytest.raises(ForeignDirectory, match=f"{tmp_path}/d cannot be read: Permission denied"):
        Log(tmp_path / "d", read_only=True)


@pytest.mark.parametrize("opener", ["log", "channel", "spool", "forwarder"])
def test_a_file_in_place_of_the_directory_is_refused(opener, tmp_path):
    (tmp_path / "d").touch()
    with pytest.raises(ForeignDirectory, match=f"{tmp_path}/d cannot be a .*'s directory"):
        OPENERS[opener](str(tmp_path / "d"))
