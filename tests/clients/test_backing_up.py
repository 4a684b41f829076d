"""The places that a checkpoint names are those that are backed up."""

from __future__ import annotations

from penstock.clients.backing_up import _served
from penstock.storage.backup import BackupPlace
from penstock.storage.data_directory import METADATA
from penstock.transport.messages import Checkpointed, LogPlace

TOPIC, LOG = bytes(range(16)), bytes(range(16, 32))


def test_a_place_is_backed_up_with_all_that_the_checkpoint_says_of_it():
    logs = [LogPlace("", bytes(16), 0, LOG, 7, 0), LogPlace("t", TOPIC, 3, LOG, 9, 5, 2)]
    found, left_out = _served(Checkpointed(1, logs, {"u/0": "it is damaged"}))
    assert found == [
        BackupPlace(METADATA, "the catalogue", LOG, 7, 0),
        BackupPlace(f"topics/{TOPIC.hex()}/3", "t/3", LOG, 9, 5, 2),
    ]
    assert left_out == {"u/0": "it is damaged"}
