"""PEERS.md and the code say the same: every message, every field in order, the limits."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.broker.peers import messages, outbox
from penstock.broker.replica import catching_up, shipping
from penstock.broker.replica import catchup_messages as cm

TEXT = Path(messages.__file__).with_name("PEERS.md").read_text()
HEADING = re.compile(r"^#### (\d+) (\w+)$", re.MULTILINE)
FIELD = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", re.MULTILINE)


def test_every_message_and_field_is_on_the_page() -> None:
    parts = re.split(HEADING, TEXT)[1:]
    page = {
        (int(tag), name): [field for field, _, _ in FIELD.findall(text)]
        for tag, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
    kinds = (messages.PeerHello, messages.PeerTurn)
    assert page == {(kind.__struct_config__.tag, kind.__name__): list(kind.__struct_fields__) for kind in kinds}
    assert all(200 <= tag <= 249 for tag, _ in page)


def test_the_limits_are_on_the_page() -> None:
    assert f"| a frame | {messages.FRAME_BYTES_MAX >> 20} MiB |" in TEXT
    assert f"| Raft messages in one message | {messages.MESSAGES_MAX} |" in TEXT
    assert f"once it has | {messages.FRAME_BYTES_AIM >> 20} MiB |" in TEXT
    assert f"then messages are dropped | {outbox.WAITING_BYTES_MAX >> 20} MiB |" in TEXT
    assert {kind.name for kind in messages.DATA_KINDS} == {"APPEND", "SNAPSHOT", "PIECE"}


def test_the_messages_of_a_catch_up_are_on_the_page() -> None:
    asked = (cm.AskManifest, cm.AskBatches, cm.AskFile, cm.Staged)
    for kind in (*asked, cm.Manifest, cm.ShippedBatches, cm.FilePiece, cm.Withdrawn, cm.AskWhole, cm.WholeBatches):
        line = next(each for each in TEXT.splitlines() if f"| {kind.__name__} |" in each)
        assert line.startswith(f"| {kind.__struct_config__.tag} |")
        assert all(field in line for field in kind.__struct_fields__)
    assert f"A piece is {cm.PIECE_BYTES >> 20} MiB" in TEXT
    assert f"again after {catching_up.RETRY_TICKS} ticks" in TEXT
    assert f"sends {shipping.TICK_BYTES >> 20} MiB a tick" in TEXT
    assert f"silent for {shipping.QUIET_TICKS}" in TEXT
