"""Batches and flushes by hand, for tests of the order log."""

from __future__ import annotations

from penstock.broker.raft.messages import Entry
from penstock.broker.replica.entries import StampedBatch, encode_flush
from penstock.storage.batch import encode, parse
from penstock.storage.header import Stamp, stamp

ORDER = "/data/order"
ORDER_ID = b"order".ljust(16, b"\0")


def log_id(number: int) -> bytes:
    return b"log %d" % number + bytes(11)


def stamped(log: bytes, seq: int, value: bytes, *, offset: int | None = None, previous: int = 0) -> StampedBatch:
    """A batch of one record at a place in a log."""
    batch = encode([value])
    place = Stamp(seq, seq - 1 if offset is None else offset, 1, log, 1000 + seq, previous)
    whole = bytes(stamp(batch, place)) + bytes(batch[parse(batch).header_bytes :])
    return StampedBatch(log, seq, parse(whole).header_checksum, len(whole), [whole])


def flush(index: int, term: int, *batches: StampedBatch, time_us: int = 0) -> Entry:
    """An entry that names these batches."""
    return Entry(index, term, encode_flush(time_us or 1000 + index, batches))
