"""What a sole writer leaves on the disk, byte for byte, after each step of a life with every kind of append and end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.storage.batch import encode, encode_state
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from support.files import RecordingFiles
from xxhash import xxh3_64_hexdigest

GOLDEN = Path(__file__).parent.parent / "golden" / "life_v1.txt"
PATH = "/log"
OPTIONS = LogOptions(segment_bytes=20_000, allocate_bytes=4096)


def digests(files: MemoryFiles) -> str:
    """Name, size and digest of every file."""
    lines = (f"  {path} {len(file.data)} {xxh3_64_hexdigest(file.data)}" for path, file in files.contents.items())
    return "\n".join(sorted(lines))


def life() -> Iterator[tuple[str, MemoryFiles]]:
    """Each step by name, and the files after it."""
    files = RecordingFiles()
    time_us = 1_700_000_000_000_000

    def opened(*, suspect: bool = False) -> LogWriter:
        order = Sole(Promises(f"{PATH}/promises", files))
        how = {"suspect": suspect}
        return LogWriter.create_or_open(PATH, files=files, log_id=bytes(range(16)), options=OPTIONS, order=order, **how)

    log = opened()
    yield "created", files
    log.append([encode([b"one"])], time_us)
    yield "one", files
    log.append([encode([b"two", b"three"], keys=[b"k", None]), encode_state(b"state")], time_us - 5)
    yield "several, and the clock went back", files
    log.sync()
    yield "synced", files
    log.append([encode([bytes(9000)]), encode([bytes(9000)]), encode([bytes(9000)])], time_us + 1)
    yield "over three segments", files
    log.close()
    yield "closed", files
    log = opened()
    log.append([encode([b"in place"])], time_us + 2)
    yield "went on in place", files
    log = opened()
    log.append([encode([b"behind a crash"])], time_us + 3)
    yield "went on behind a crash", files
    files.fail("write", 2)
    with pytest.raises(StorageFull):
        log.append([encode([b"refused"])], time_us + 4)
    yield "refused, and taken back", files
    files.heal()
    log.segment_ends = True
    log.append([encode([b"accepted"])], time_us + 5)
    yield "went on behind a failed write", files
    log.append([encode([b"more"])], time_us + 6)
    log.sync(mark=False)
    log.mark_durable()
    yield "marked", files
    log.poison("a sync failed")
    yield "poisoned", files
    log = opened()
    log.append([encode([b"again"])], time_us + 7)
    log.close()
    yield "went on behind a poison", files
    log = opened()
    log.append([encode([b"in doubt"])], time_us + 8)
    log = opened(suspect=True)
    log.append([encode([b"behind a copy"])], time_us + 9)
    yield "went on behind a copy", files


def test_a_life_of_a_log_leaves_the_bytes_that_it_always_left() -> None:
    assert "".join(f"{step}\n{digests(files)}\n" for step, files in life()) == GOLDEN.read_text()
