"""Keys read from a real log: each batch once, never a wrong one, and nothing waits for the disk."""

from __future__ import annotations

import pytest
from penstock.broker.engine.queues.choosing.key_window import KeyWindow, NotYet
from penstock.broker.engine.tables.queues.keys import OWN, hash_of
from support.engine import Rig

KEYS: list[list[bytes | None]] = [[b"a", None], [b"b"], [b"a", b"c", b"d"]]


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def window(rig: Rig) -> KeyWindow:
    """Over records of which each batch stands in a segment of its own, with effects between them."""
    topic = rig.topic(segment_bytes=64 << 10)
    for keys in KEYS:
        rig.produce(topic, [b"x" * (40_000 // len(keys)) for _ in keys], keys=keys)
        rig.lease(topic, group="other")
    return KeyWindow(rig.node._registry.topics.by_id[topic].readable[0], rig.port)


def test_every_record_has_its_key_in_whatever_order_it_is_asked(window: KeyWindow):
    expected = [OWN if key is None else hash_of(key) for keys in KEYS for key in keys]
    assert [window.key(offset, "t") for offset in range(6)] == expected
    for offset in (5, 0, 3, 1, 4, 2):
        assert window.key(offset, "t") == expected[offset]


def test_a_window_that_is_walked_is_read_once(rig: Rig, window: KeyWindow):
    for offset in range(6):
        window.key(offset, "t")
    read = rig.port.reads
    assert read <= 3 * len(KEYS), "of each segment its records, its effects and its end at most"
    for _ in range(2):
        for offset in range(6):
            window.key(offset, "t")
    assert rig.port.reads == read
    before = rig.port.reads
    window.forget(4)
    assert window.key(4, "t") == hash_of(b"c")
    assert rig.port.reads == before
    window.forget(6)
    window.key(4, "t")
    assert rig.port.reads > before


def test_cold_pages_are_said_to_be_cold_and_read_when_they_are_there(rig: Rig, window: KeyWindow):
    rig.port.cold = []
    with pytest.raises(NotYet):
        window.key(2, "token")
    assert rig.port.cold == ["token"]
    rig.port.cold = None
    assert window.key(2, "token") == hash_of(b"b")


def test_a_record_that_is_not_committed_has_no_key_yet(window: KeyWindow):
    with pytest.raises(NotYet):
        window.key(6, "t")


def test_a_record_that_cannot_be_read_has_no_key_and_the_others_have_theirs(rig: Rig, window: KeyWindow):
    for path, content in rig.store.files.contents.items():
        if path.endswith(".segment") and b"x" * 40_000 in content.data and b"x" * 40_001 not in content.data:
            at = content.data.index(b"x" * 40_000)
            content.data[at] ^= 1
    assert [window.key(offset, "t") for offset in (1, 2, 3)] == [OWN, OWN, hash_of(b"a")]
    assert window._partition.damaged


def test_a_record_that_is_not_there_is_damage(window: KeyWindow):
    window._partition.committed.end = 7  # so says the state, but no batch has it
    assert window.key(6, "t") == OWN
    assert window._partition.damaged
