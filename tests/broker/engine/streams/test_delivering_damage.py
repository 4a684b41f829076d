"""Delivery of partitions with damage that took no records, or the newest ones."""

from __future__ import annotations

import pytest
from penstock.storage.layout import mark_from_row, word
from penstock.storage.segment import NEWEST_BYTES_MAX, write_mark
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import partition_of, stage


@pytest.mark.parametrize("kind", ["state", "staged"])
def test_damage_that_took_no_record_stops_no_reader_and_is_told(kind: str):
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    if kind == "state":
        rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])
    else:
        stage(rig, topic, [b"hidden"])
    rig.produce(topic, [b"b"])
    reader = partition_of(rig, topic).log.reader()
    row = reader.row(2)
    assert row is not None
    rig.store.files.contents[reader.segment_of(2).ref.path].data[row.position + 5] ^= 1
    joined = rig.join(topic)
    assert (rig.received(joined), rig.partition(topic).state) == ([b"a", b"b"], "damaged")
    assert [rig.fetch(topic, offset).next_offset for offset in (0, 1)] == [1, 2]
    rig.produce(topic, [b"c"])
    assert rig.received(joined) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("lost", [1, 2])
def test_newest_batches_that_are_damaged_before_a_mark_names_them_are_told_like_others(lost: int):
    rig = Rig()
    topic = rig.topic(commit="written")
    rig.store.lazy = True  # the keeper has written no mark yet
    for value in (b"a", b"b", b"c" * NEWEST_BYTES_MAX):
        rig.produce(topic, [value])
    reader = partition_of(rig, topic).log.reader()
    for seq in range(4 - lost, 4):
        row = reader.row(seq)
        assert row is not None
        rig.store.files.contents[reader.segment_of(seq).ref.path].data[row.position + 20] ^= 1
    assert [rig.fetch(topic, 3).next_offset, rig.fetch(topic, 2).offset] == [3, 3]
    joined = rig.join(topic)
    told, nothing = rig.deliveries(joined)[-1]
    assert (nothing, told.offset, told.next_offset, told.records) == ([], 3, 3, 0)
    assert "is damaged at" in told.damage
    assert len(rig.received(joined)) == 3 - lost
    late = rig.join(topic, positions=[(0, 2)])
    assert rig.deliveries(late)[-1][0].damage
    rig.produce(topic, [b"d"])
    assert rig.received(joined)[3 - lost :] == rig.received(late) == [b"d"]
    assert rig.deliveries(joined)[-1][0].damage == ""


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_damage_at_the_end_is_told_without_records_and_what_is_written_later_comes(refused: int):
    """Once, though the first or the second delivery could not be sent at first."""
    rig = Rig()
    topic = rig.topic()
    for value in (b"a", b"b" * NEWEST_BYTES_MAX):
        rig.produce(topic, [value])
    log = partition_of(rig, topic).log
    reader = log.reader()
    row = reader.row(2)
    assert row is not None
    file = rig.store.files.open(reader.segment_of(2).ref.path, write=True)
    write_mark(file, mark_from_row(log.log_id, word(log.generation, 2), row))
    file.pwritev([b"\xff" * 8], row.position + 20)
    file.close()
    deliver, tries = rig.port.deliver, iter([True] * (refused == 2) + [False] * (refused > 0))
    rig.port.deliver = lambda *delivery: next(tries, True) and deliver(*delivery)
    joined = rig.join(topic)
    rig.node.eased(joined.session)
    rig.turn()
    (_, values), (told, nothing) = rig.deliveries(joined)
    assert (values, nothing, told.offset, told.next_offset, told.records) == ([b"a"], [], 2, 2, 0)
    assert "is damaged at" in told.damage
    rig.turn()
    assert len(rig.deliveries(joined)) == 2
    rig.produce(topic, [b"c"])
    assert (rig.received(joined), rig.deliveries(joined)[-1][0].damage) == ([b"a", b"c"], "")
