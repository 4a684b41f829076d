"""The member that fetches a state, alone: which messages it takes for the answer to what it asked last."""

from __future__ import annotations

import msgspec
from penstock.broker.replica.catching_up import CatchUp
from penstock.broker.replica.catchup_messages import (
    AskBatches,
    Asked,
    AskFile,
    AskManifest,
    FilePiece,
    LogStart,
    Manifest,
    ShippedBatches,
    ShippedFile,
    ShippedLog,
    Withdrawn,
)
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.storage.memory_files import MemoryFiles
from support.logs import LOG_ID, build

OTHER = bytes(16)


def test_only_the_answer_to_the_last_question_is_taken():
    batch = build(shape=((1,),)).batches[1]
    file = ShippedFile(f"snapshot-{1:020d}", 4)
    shipped = ShippedLog(LOG_ID, b"", 0, LogStart(0, 0, 0, 0, 0), 1, int.from_bytes(batch[:8], "little"), [file])
    checkpoint = Checkpoint(entry=9, term=1, commit=9, acked=9, logs=[])
    manifest = Manifest(9, msgspec.msgpack.encode(checkpoint), 0, [shipped])
    batches, piece = ShippedBatches(9, LOG_ID, 0), FilePiece(9, LOG_ID, file.name, 0, b"ab")
    asked: list[tuple[int, Asked]] = []
    catching_up = CatchUp(MemoryFiles(), "data", OTHER, own=lambda shipped: None, ask=lambda *each: asked.append(each))

    def awaited() -> list[object]:
        """Of all that may come, from the leader that is asked and from another."""
        may_come = [
            *(manifest, batches, piece, Withdrawn(9), Withdrawn(8)),
            *(ShippedBatches(8, LOG_ID, 0), ShippedBatches(9, OTHER, 0), ShippedBatches(9, LOG_ID, 1)),
            *(FilePiece(8, LOG_ID, file.name, 0, b""), FilePiece(9, OTHER, file.name, 0, b"")),
        ]
        return [(sender, each) for sender in (2, 3) for each in may_come if catching_up.awaits(sender, each)]

    assert awaited() == [(2, manifest), (3, manifest)], "that of a leader that was asked long ago"
    catching_up.begin(2)
    assert asked.pop() == (2, AskManifest())
    assert awaited() == [(2, manifest)]
    assert not catching_up.take(3, manifest, [])
    assert not catching_up.take(2, manifest, [])
    assert asked.pop() == (2, AskBatches(9, LOG_ID, 0))
    assert awaited() == [(2, batches), (2, Withdrawn(9))]
    assert not catching_up.take(2, batches, [batch])
    assert asked.pop() == (2, AskFile(9, LOG_ID, file.name, 0))
    assert awaited() == [(2, piece), (2, Withdrawn(9))]
    assert not catching_up.take(2, piece, [])
    assert asked.pop() == (2, AskFile(9, LOG_ID, file.name, 2))
    assert catching_up.fetched_bytes == len(batch) + 2
    assert not catching_up.take(2, Withdrawn(9), [])
    assert asked.pop() == (2, AskManifest())
    assert asked == []
    catching_up.end()
    assert not catching_up.take(3, manifest, [])
    assert asked.pop() == (3, AskFile(9, LOG_ID, file.name, 0)), "what is staged is used"
    catching_up.end()
