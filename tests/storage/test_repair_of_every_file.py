"""Every file of a log, damaged in every way: what a repair and then an accepted loss leave of it.

A repair takes nothing that accepting the loss needs, does all it can the first time, does what its dry run says, and
a log that verifies afterwards is one that opens with its state.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock.storage import layout, log_ids, snapshots
from penstock.storage.data_directory import METADATA, TOPICS
from penstock.storage.errors import Corrupt, StorageError
from penstock.storage.files import Files
from penstock.storage.log import LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from support.damage import read_around
from support.logs import LOG_ID, Built, build

NOW = 1_800_000_000_000_000
PARTITION = f"{TOPICS}/{'1a' * 16}/0"
OTHER = f"{TOPICS}/{'2b' * 16}/7"
SHAPES = {"one": [(2, 0, 1)], "several": [(2, 0, 1), (3, 1), (1, 2)]}
FINALS = "finals-" + "0" * 32
CONTENTS = ["zeros", "garbage", "a partition's", "another's"]
DAMAGES = ["missing", "truncated", *CONTENTS, "directory", "link", "pipe"]
FILES = ["first segment", "first index", "snapshot"]
CASES = [
    *((shape, file, how) for shape in SHAPES for file in FILES for how in DAMAGES),
    *((shape, "first page", how) for shape in SHAPES for how in CONTENTS),
    *(("several", file, how) for file in ("last segment", "last index", "finals") for how in DAMAGES),
]


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda descriptor: None)


def made(directory: Path, shape: str, log_id: bytes, snapshot: bool) -> Built:
    built = build(Files(), str(directory), shape=SHAPES[shape], log_id=log_id)
    if snapshot:
        snapshots.save(built.files, built.directory, 2, 1, b"state", log_id)
    (directory / FINALS).write_bytes(b"whatever these say")
    return built


def path_of(built: Built, file: str) -> Path:
    segments = {"first segment": 0, "first page": 0, "last segment": -1}
    indexes = {"first index": 0, "last index": -1}
    if file in segments:
        return Path(built.segment_path(segments[file]))
    if file in indexes:
        return Path(built.index_path(indexes[file]))
    return Path(built.directory, snapshots.file_name(2) if file == "snapshot" else FINALS)


def damage(built: Built, others: dict[str, Built], file: str, how: str) -> None:
    path = path_of(built, file)
    old = path.read_bytes() if path.exists() else b""
    size = min(layout.DATA_START, len(old)) if file == "first page" else len(old)
    if how in ("zeros", "garbage") or how in others:
        new = bytes(size) if how == "zeros" else b"G" * size
        if how in others:
            new = path_of(others[how], file).read_bytes()[: size if file == "first page" else None]
        path.write_bytes(new + (old[size:] if file == "first page" else b""))
        return
    if how == "truncated":
        path.write_bytes(old[: size // 2])
        return
    path.unlink(missing_ok=True)
    if how == "directory":
        path.mkdir()
    elif how == "link":
        path.symlink_to(built.directory + "/elsewhere")
    elif how == "pipe":
        os.mkfifo(path)


def damaged(root: Path, place: str, shape: str, snapshot: bool, file: str, how: str) -> Built:
    directory = root / "data" / place
    others = {
        "a partition's": made(root / "data" / OTHER, shape, log_ids.own_id(OTHER) or b"", True),
        "another's": made(root / "elsewhere", shape, bytes(range(64, 80)), True),
    }
    built = made(directory, shape, log_ids.own_id(str(directory)) or LOG_ID, snapshot)
    damage(built, others, file, how)
    return built


def repaired(built: Built, *, accept_loss: bool) -> str:
    """Repair and say why not; the dry run says the same, and there is nothing left to do."""
    said: list[list[str] | str] = []
    for dry_run in (True, False, False):
        try:
            done = repair(built.files, built.directory, now_us=NOW, accept_loss=accept_loss, dry_run=dry_run)
            said.append(done.actions)
        except Corrupt as error:
            said.append(error.message)
    planned, actions, again = said
    assert planned == actions
    assert again == (actions if isinstance(actions, str) else [])
    return actions if isinstance(actions, str) else ""


def kept(built: Built) -> tuple[int, ...]:
    """How much a broker has of the log: whether it opens with its state, its id, its end, its records."""
    records, _ = read_around(built.files, built) if verify(built.files, built.directory).batches else ({}, [])
    try:
        log = LogWriter.open(
            built.directory, files=built.files, order=Sole(Promises(f"{built.directory}/../promises", built.files))
        )
    except (StorageError, OSError):
        return 0, 0, 0, 0, len(records)
    try:
        first = log.segments()[0].base_seq
        state = snapshots.load_newest(built.files, built.directory, log.log_id, first_seq=first, last_seq=log.written)
    except StorageError:
        return 0, 0, 0, log.end_offset, len(records)
    finally:
        log.close()
    own = log_ids.own_id(built.directory) or LOG_ID
    return 1, int(log.log_id == own), 0 if state is None else state.seq, log.end_offset, len(records)


@pytest.mark.parametrize(("shape", "file", "how"), CASES)
@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "no snapshot"])
@pytest.mark.parametrize("place", [METADATA, PARTITION], ids=["metadata", "partition"])
def test_a_repair_takes_nothing_away_and_a_log_that_verifies_opens(
    tmp_path: Path, place: str, shape: str, snapshot: bool, file: str, how: str
) -> None:
    case = (place, shape, snapshot, file, how)
    alone, after = damaged(tmp_path / "alone", *case), damaged(tmp_path / "after", *case)
    refused = repaired(alone, accept_loss=True)
    repaired(after, accept_loss=False)
    assert bool(repaired(after, accept_loss=True)) == bool(refused)
    ok = [verify(built.files, built.directory).ok for built in (alone, after)]
    left = [kept(built) for built in (alone, after)]
    assert left[1] >= left[0]
    assert ok == [not refused] * 2
    assert refused or all(opens for opens, *_ in left)
