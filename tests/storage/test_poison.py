"""The poison file: there with its text or not at all, and what is read of it."""

from __future__ import annotations

import errno
import random

import pytest
from penstock.storage import layout
from penstock.storage.poison import acknowledged, encode, text, write
from support.files import Disk, RecordingFiles
from xxhash import xxh3_64_hexdigest

POISON = f"/log/{layout.POISON}"


@pytest.fixture
def files() -> RecordingFiles:
    return RecordingFiles(directories=["/log"])


def digest(said: bytes) -> bytes:
    return xxh3_64_hexdigest(said).encode()


def on_disk(files: RecordingFiles) -> dict[str, bytes]:
    """What a power cut leaves that takes all that was not synced."""
    disk = Disk(files)
    for operation in files.journal:
        disk.apply(operation)
    return disk.image(random.Random(0), "none")


def test_the_first_word_is_durable_and_stays(files: RecordingFiles):
    assert write(files, "/log", "EIO", durable=5) == "EIO"
    assert write(files, "/log", "again", durable=9) == "again"
    assert on_disk(files)[POISON] == files.read(POISON) == encode("EIO", 5)
    assert files.read(POISON) == b"EIO\nchecksum %s\ndurable up to seq 5\n" % digest(b"EIO\ndurable up to seq 5")
    assert acknowledged(text(files, "/log")) == 5


@pytest.mark.parametrize("kind", ["create", "write", "sync", "sync_dir"])
def test_the_reason_says_when_it_could_not_be_written(files: RecordingFiles, kind: str):
    files.fail(kind, 1, errno.EIO)
    reason = write(files, "/log", "fdatasync failed", durable=5)
    assert reason.startswith(f"fdatasync failed (and {POISON} could not be written: ")
    assert reason.endswith(")")
    assert POISON not in on_disk(files)


@pytest.mark.parametrize(
    ("written", "seq"),
    [
        (None, None),
        (b"EIO\ndurable up to seq 12\n", 12),
        (b"of two lines\nEIO\ndurable up to seq 3", 3),
        (encode("EIO", 7), 7),
        (encode("of two lines\nEIO", 0), 0),
        (encode("\n EIO of \udcff\n\0", 3), 3),
        (encode("", 3), 3),
        (b"durable up to seq 3\nEIO\n", None),
        (b"EIO\n12\n", None),
        (b"EIO\ndurable up to seq x\n", None),
        (b"EIO\ndurable up to seq \n", None),
        (b"EIO\nchecksum 0123456789abcdef\ndurable up to seq 3\n", None),
        (b"\xff", None),
        (b"", None),
        (b"\0" * 30, None),
    ],
)
def test_what_a_poison_says_was_durable(written: bytes | None, seq: int | None):
    files = RecordingFiles({} if written is None else {POISON: written}, ["/log"])
    said = text(files, "/log")
    assert acknowledged(said) == seq
    assert (said == "") is (written is not None and seq is None)


def test_a_poison_of_which_a_bit_rotted_says_its_number_or_none():
    whole = encode("EIO", 15)
    for bit in range(8 * len(whole)):
        rotten = bytearray(whole)
        rotten[bit // 8] ^= 1 << bit % 8
        files = RecordingFiles({POISON: bytes(rotten)}, ["/log"])
        assert acknowledged(text(files, "/log")) in (15, None), bit


def test_the_text_is_there_until_the_power_goes_though_it_could_not_be_synced(files: RecordingFiles):
    """So that the log is not opened anew as if nothing had failed."""
    files.fail("sync", 1, errno.EIO)
    write(files, "/log", "EIO", durable=5)
    assert acknowledged(text(files, "/log")) == 5
