"""Reading back what was staged: in order, in portions, without waiting for the disk, and damage told."""

from __future__ import annotations

import pytest
from penstock.broker.engine.transactions.stage_reader import Portion, StageReader
from penstock.storage.errors import ReadFailed
from support.engine import Rig
from support.staging import STAGE, partition_of, portion, publish, stage

SIZE = 9000


def filled(count: int = 12, others: int = 2) -> tuple[Rig, bytes]:
    """A stage in small segments, every batch between two of another stage and one of records."""
    rig = Rig()
    topic = rig.topic(segment_bytes=1 << 16)
    for number in range(count):
        stage(rig, topic, [b"%d" % number + b"." * SIZE, b"more"], first=2 * number)
        if number % others == 0:
            stage(rig, topic, [b"other"], STAGE + 1, first=number // others)
            rig.produce(topic, [b"record"])
    return rig, topic


def numbers(found: Portion) -> list[int]:
    return [int(batch.values()[0].rstrip(b".")) for batch in found.batches]


@pytest.mark.parametrize("others", [1, 3, 100])
def test_a_portion_has_the_batches_of_one_stage_in_order(others: int):
    rig, topic = filled(others=others)
    found = portion(rig, topic)
    assert (numbers(found), found.error) == (list(range(12)), None)
    assert [batch.first_sequence for batch in found.batches] == list(range(0, 24, 2))
    assert {batch.producer_id for batch in found.batches} == {STAGE}


def test_a_portion_is_about_as_large_as_asked_and_has_one_batch_at_least():
    rig, topic = filled()
    assert numbers(portion(rig, topic, max_bytes=1)) == [0]
    assert numbers(portion(rig, topic, max_bytes=3 * SIZE)) == [0, 1, 2]


@pytest.mark.parametrize("others", [1, 100], ids=["runs of one", "one run"])
def test_a_portion_has_so_many_batches_and_no_more(others: int):
    rig, topic = filled(others=others)
    assert numbers(portion(rig, topic, most=1)) == [0]
    found = portion(rig, topic, most=5)
    assert (numbers(found), found.error) == ([0, 1, 2, 3, 4], None)
    assert numbers(portion(rig, topic, most=12)) == list(range(12))


def test_the_next_portion_begins_behind_what_is_published():
    rig, topic = filled()
    publish(rig, topic, max_bytes=3 * SIZE)
    assert numbers(portion(rig, topic)) == list(range(3, 12))


def test_a_stage_that_is_not_there_has_no_batches():
    rig, topic = filled()
    found = portion(rig, topic, STAGE + 9)
    assert (found.batches, found.error) == ([], None)


def test_a_portion_that_the_disk_did_not_give_fails_for_now_and_is_no_damage():
    rig, topic = filled()
    read = rig.port.read

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    rig.port.read = fails
    assert isinstance(portion(rig, topic).error, ReadFailed)
    rig.port.read = read
    assert numbers(portion(rig, topic)) == list(range(12))


def test_a_portion_whose_pages_are_not_in_memory_is_told_when_they_are():
    rig, topic = filled()
    done: list[Portion] = []
    wanted = Portion(partition_of(rig, topic), STAGE, 1 << 20, 1000, done.append)
    reader, rig.port.cold = StageReader(rig.port), []
    reader.read(wanted)
    reader.warmed(wanted)
    assert (done, rig.port.cold) == ([], [wanted, wanted])
    rig.port.cold = None
    reader.warmed(wanted)
    assert done == [wanted]
    assert numbers(wanted) == list(range(12))
    reader.warmed(wanted)
    assert len(done) == 1, "once"


def damage(rig: Rig, topic: bytes, text: bytes) -> None:
    """Change a byte of what was written."""
    path = rig.store.directory(topic, 0)
    for name, content in rig.store.files.contents.items():
        if name.startswith(path) and name.endswith(".segment") and (place := content.data.find(text)) >= 0:
            content.data[place] ^= 1
            return
    raise AssertionError(f"{text!r} is nowhere")


def test_damage_ends_a_portion_before_it_and_is_told():
    rig, topic = filled()
    damage(rig, topic, b"5" + b"." * 100)
    found = portion(rig, topic)
    assert numbers(found) == [0, 1, 2, 3, 4]
    assert found.error is not None
    assert "does not match its checksum" in found.error.message


def test_damage_to_its_neighbours_costs_a_stage_nothing():
    rig, topic = filled(others=1)
    log = partition_of(rig, topic).log
    row = log.reader().row(5)
    assert row is not None, "a batch of the other stage"
    segment = log.reader().segment_of(5).ref.path
    rig.store.files.contents[segment].data[row.position] ^= 1
    found = portion(rig, topic)
    assert (numbers(found), found.error) == (list(range(12)), None)


def test_a_batch_that_is_gone_is_told():
    rig, topic = filled()
    name = min(each for each in rig.store.files.contents if each.startswith(rig.store.directory(topic, 0)))
    wanted = Portion(partition_of(rig, topic), STAGE, 1 << 20, 1000, lambda found: None)
    rig.restart(clean=False)
    rig.store.files.unlink(name.replace(".index", ".segment"))
    StageReader(rig.port).read(wanted)
    assert wanted.batches == []
    assert wanted.error is not None
