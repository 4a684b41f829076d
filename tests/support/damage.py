"""What damage tests ask of a damaged log: what the scan and a reader make of it, held against what was built.

Every helper that reads asserts by itself that nothing wrong is read, that it ends, and that damage is named.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from penstock.storage.batch import Batch, parse
from penstock.storage.errors import Corrupt, InvalidTopic, OutOfBounds, StorageError
from penstock.storage.files import Files
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.reader import LogReader
from penstock.storage.scan import Bad, Good, Tail, scan
from support.logs import Built, content, copy_of, put

STEPS_MAX = 50
"""No walk over these small logs takes more steps; one that does hangs."""


def scanned(files: Files, built: Built) -> tuple[dict[int, bytes], list[Bad], Tail | None]:
    """Good batches by seq, damaged ranges and the tail; every good one is what was written there."""
    found: dict[int, bytes] = {}
    bad: list[Bad] = []
    tail: Tail | None = None
    for steps, each in enumerate(scan(files, built.directory)):
        assert steps < STEPS_MAX, "the scan hangs"
        match each:
            case Good():
                assert_true(each.batch, built)
                assert each.batch.seq not in found
                found[each.batch.seq] = bytes(each.batch.buffer)
            case Bad():
                bad.append(each)
            case Tail():
                tail = each
    return found, bad, tail


def assert_true(batch: Batch, built: Built) -> None:
    """A batch says what was written there; only padding, which is never read, may differ."""
    truth = parse(built.batches[batch.seq])
    assert (batch.header_checksum, batch.values(), batch.keys()) == (
        truth.header_checksum,
        truth.values(),
        truth.keys(),
    )
    assert batch.effects() == truth.effects()


def assert_nothing_vanished(built: Built, durable: int, found: dict[int, bytes], bad: list[Bad]) -> None:
    """Every seq up to the mark is either good or named as damaged, and the damage has a file and a position."""
    for seq in range(1, durable + 1):
        named = [b for b in bad if b.first_seq <= seq and (b.next_seq is None or seq < b.next_seq)]
        assert (seq in found) != bool(named), f"batch {seq}: good {seq in found}, reported {named}"
    for each in bad:
        assert each.file.startswith(built.directory)
        assert each.position >= 0
        assert each.reason


def read_around(files: Files, built: Built) -> tuple[dict[int, bytes], list[Corrupt]]:
    """Records by offset as a stream reader gets them, going on where the error says; every one is the true one."""
    found: dict[int, bytes] = {}
    errors: list[Corrupt] = []
    try:
        reader = LogReader(built.directory, files)
        offset = reader.first_offset
        end = reader.end_offset
    except (InvalidTopic, Corrupt, OutOfBounds) as error:
        return found, [error] if isinstance(error, Corrupt) else []
    for _ in range(STEPS_MAX):
        try:
            offset = _read_on(reader, built, offset, found)
            break
        except Corrupt as error:
            errors.append(error)
            following = error.next_offset
        if following is None or following >= end:
            break
        if following <= offset and following in found:
            pytest.fail("the reader is sent in a circle")
        offset = following
    else:
        pytest.fail("the reader hangs")
    reader.close()
    assert all(error.path.startswith(built.directory) for error in errors)
    return found, errors


def _read_on(reader: LogReader, built: Built, offset: int, found: dict[int, bytes]) -> int:
    cursor = reader.cursor(offset)
    for _ in range(STEPS_MAX):
        chunk = cursor.next(1)
        if chunk is None:
            return cursor.offset
        for batch in chunk.batches:
            try:
                batch.check()
            except StorageError as error:
                end = batch.base_offset + batch.record_count
                raise Corrupt(error.message, path=reader.path, position=0, next_offset=end) from error
            for index, value in enumerate(batch.values()):
                assert value == built.values[batch.base_offset + index]
                found[batch.base_offset + index] = value
    pytest.fail("the cursor hangs")


def built_records(built: Built, seq: int) -> range:
    """Offsets of the records of a batch."""
    return range(built.ends[seq - 1].offset, built.ends[seq].offset)


def flips(data: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Every bit of a range flipped, one at a time: (position, mutant)."""
    for bit in range(8 * start, 8 * end):
        mutant = bytearray(data)
        mutant[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(mutant)


def in_batch(built: Built, position: int) -> int | None:
    """The seq of the batch whose checked bytes a position of its segment is in; None in padding."""
    for seq, (_, start) in built.places.items():
        if start <= position < start + len(built.batches[seq]):
            return seq
    return None


def checked_bytes(data: bytes) -> int:
    """Bytes of a batch that some checksum covers."""
    batch = parse(data)
    return batch.header_bytes + sum(column.stored_bytes for column in batch.directory())


def damaged_at_random(built: Built, chance: random.Random) -> MemoryFiles:
    """A copy with one to four damages: bits, zeroed or swapped sectors, cuts, tails, lost and copied files."""
    files = copy_of(built)
    for _ in range(chance.randint(1, 4)):
        names = files.listdir(built.directory)
        path = f"{built.directory}/{chance.choice(names)}"
        data = bytearray(content(files, path))
        place = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0 if data:
                data[place % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                data[place - place % 512 : place - place % 512 + 512] = bytes(512)
            case 2:
                del data[place:]
            case 3:
                data += chance.randbytes(chance.randrange(600))
            case 4:
                data[place : place + 256] = chance.choice(list(built.batches.values()))[:256]
            case 5:
                data = bytearray(content(files, f"{built.directory}/{chance.choice(names)}"))
            case _ if chance.random() < 0.3:
                files.unlink(path)
                continue
        put(files, path, bytes(data))
    return files
