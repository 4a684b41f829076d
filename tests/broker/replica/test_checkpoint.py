"""Checkpoints: whole or not there, and never beyond the order they belong to."""

from __future__ import annotations

import msgspec
import pytest
from penstock.broker.replica import checkpoint
from penstock.broker.replica.checkpoint import Checkpoint, LogPlace
from penstock.storage.errors import Corrupt, NewerFormat
from penstock.storage.memory_files import MemoryFiles
from support.order import ORDER, ORDER_ID, log_id


def made(entry: int) -> Checkpoint:
    places = [LogPlace(log_id(1), 4, 99), LogPlace(log_id(2), 0, 0)]
    return Checkpoint(entry=entry, term=2, checksum=5, commit=entry + 1, acked=entry + 2, logs=places)


def test_a_checkpoint_comes_back_and_the_one_before_it_is_kept():
    files = MemoryFiles()
    assert checkpoint.save(files, ORDER, ORDER_ID, made(3)) == 0
    assert checkpoint.save(files, ORDER, ORDER_ID, made(8)) == 3
    found = checkpoint.load(files, ORDER, ORDER_ID, first=1, last=10)
    assert found == made(8)
    assert found.places() == {log_id(1): (4, 99), log_id(2): (0, 0)}


def test_without_a_checkpoint_the_walk_starts_at_the_first_entry():
    assert checkpoint.load(MemoryFiles(), ORDER, ORDER_ID, first=1, last=0) is None


def test_an_order_without_its_first_entries_needs_a_checkpoint_that_reaches_them():
    files = MemoryFiles()
    checkpoint.save(files, ORDER, ORDER_ID, made(3))
    assert checkpoint.load(files, ORDER, ORDER_ID, first=4, last=9) == made(3)
    with pytest.raises(Corrupt):
        checkpoint.load(files, ORDER, ORDER_ID, first=5, last=9)


def test_an_order_that_ends_before_its_checkpoint_has_lost_what_was_durable():
    files = MemoryFiles()
    checkpoint.save(files, ORDER, ORDER_ID, made(3))
    assert checkpoint.load(files, ORDER, ORDER_ID, first=1, last=3) == made(3)
    with pytest.raises(Corrupt, match="before its checkpoint"):
        checkpoint.load(files, ORDER, ORDER_ID, first=1, last=2)


def test_a_checkpoint_of_a_newer_version_is_refused_and_no_guess_is_made():
    with pytest.raises(NewerFormat):
        checkpoint.decode(msgspec.msgpack.encode([checkpoint.VERSION + 1, "what it says then"]), ORDER)


@pytest.mark.parametrize("body", [b"", b"\x90", b"\x80", msgspec.msgpack.encode([1, b"", "no entry"])])
def test_a_body_that_is_no_checkpoint_is_damage(body):
    with pytest.raises(Corrupt):
        checkpoint.decode(body, ORDER)
