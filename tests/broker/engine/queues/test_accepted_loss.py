"""Accepted losses stop no queue group; other damage does, and is never guessed."""

from __future__ import annotations

from typing import Any

from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.settings import parse
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.accepted import FILE_NAME
from penstock.storage.batch import Kind
from penstock.storage.repair import repair
from penstock.storage.scan import Good, scan
from penstock.transport import messages as m
from support.bad_sectors import BadSectors
from support.engine import START_US, MemoryStore, Rig

ACK = 0


def worked(store: MemoryStore | None = None) -> tuple[Rig, bytes]:
    """Six records in batches of their own; the group g did the first, then leased and acked the second."""
    rig = Rig(store, snapshot_batches=1000)
    topic = rig.topic()
    for number in range(6):
        rig.produce(topic, [b"value-%d" % number])
    for _ in range(2):
        leased = rig.lease(topic)
        assert not rig.settle(topic, m.Settle(0, leased.token, ACK))
    return rig, topic


def stop(rig: Rig) -> None:
    """As a broker that is killed, so that no snapshot covers anything."""
    rig.sync()
    for log in rig.node.logs:
        log.close(clean=False)


def spoil(rig: Rig, topic: bytes, kind: Kind, number: int) -> None:
    """Flip bits in a batch: in the header of records, in the effects of decisions."""
    files, path = rig.store.files, rig.store.directory(topic, 0)
    found = [each for each in scan(files, path) if isinstance(each, Good) and each.batch.kind == kind]
    good = found[number]
    name = f"{path}/{good.segment.segment_file}"
    place = 40 if kind == Kind.RECORDS else good.batch.directory()[0].position
    files.contents[name].data[good.position + place] ^= 0xFF


def accept(rig: Rig, topic: bytes) -> list[str]:
    return repair(rig.store.files, rig.store.directory(topic, 0), now_us=START_US, accept_loss=True).actions


def lease_all(rig: Rig, topic: bytes) -> Any:
    return rig.lease(topic, most=10)


def test_queues_work_again_once_the_loss_of_what_they_had_decided_is_accepted():
    rig, topic = worked()
    stop(rig)
    spoil(rig, topic, Kind.STATE, -1)  # the ack of the second record
    rig.restart(clean=False)
    assert lease_all(rig, topic).code == "unavailable"
    stop(rig)
    assert any("accept the loss" in action for action in accept(rig, topic))
    rig.restart(clean=False)
    assert lease_all(rig, topic).runs == [(2, 4, 1)]
    rig.pass_time(31)
    again = lease_all(rig, topic).runs
    assert again[0][0] == 1, "what was acked and forgotten comes back; nothing else is lost"


def test_where_the_disk_cannot_read_what_was_accepted_only_queues_refuse():
    files = BadSectors()
    rig, topic = worked(MemoryStore(files))
    stop(rig)
    spoil(rig, topic, Kind.STATE, -1)
    accept(rig, topic)
    files.bad = {(f"{rig.store.directory(topic, 0)}/{FILE_NAME}", 0)}
    rig.restart(clean=False)
    assert lease_all(rig, topic).code == "unavailable"
    assert rig.read(topic) == [b"value-%d" % number for number in range(6)]


def test_records_that_were_given_up_die_and_say_why():
    rig, topic = worked()
    stop(rig)
    spoil(rig, topic, Kind.RECORDS, 3)
    rig.restart(clean=False)
    stop(rig)
    assert any("offsets 3 to 3" in action for action in accept(rig, topic))
    rig.restart(clean=False)
    for _ in range(4):
        leased = lease_all(rig, topic)
        if getattr(leased, "code", "") != "corrupt":
            break
    assert [run[:2] for run in leased.runs] == [(2, 1), (4, 2)]
    answer = rig.ask(m.AskTask, topic, "g", 0, 3)
    assert (answer.state, "cannot be read" in answer.reason) == ("dead", True)


def test_damage_that_came_later_is_damage_again():
    rig, topic = worked()
    stop(rig)
    spoil(rig, topic, Kind.STATE, -1)
    accept(rig, topic)
    spoil(rig, topic, Kind.STATE, -2)
    rig.restart(clean=False)
    assert lease_all(rig, topic).code == "unavailable"


def test_a_stream_that_passes_accepted_damage_stops_no_dedup_keys_and_no_schedule():
    rig = Rig(snapshot_batches=1000)
    topic = rig.topic(dedup="drop")
    for number in range(4):
        rig.produce(topic, [b"value-%d" % number], dedup=[b"key-%d" % number])
    stop(rig)
    spoil(rig, topic, Kind.RECORDS, 1)
    accept(rig, topic)
    rig.restart(clean=False)
    assert (rig.fetch(topic, 1).code, rig.fetch(topic, 1).offset) == ("accepted_loss", 2)
    assert rig.produce(topic, [b"again"], dedup=[b"key-3"]).repeats == [(0, 3)]
    assert isinstance(rig.ask(m.SetSchedule, topic, "s", "every 30s", "UTC", b"tick"), m.Schedules)


def test_a_record_whose_lease_was_lost_is_not_dead_where_it_is_untouched():
    state = PartitionState()
    state.effect(fx.QueueSet("g", parse({}).named(), 0), 1)
    state.effect(fx.LeaseGranted("g", 1, "w", 9, [(0, 2, 1)], 2), 2)
    state.effect(fx.TasksDied("g", 2, [(2, 3, 1)], "no"), 3)
    queue = state.queues.by_name["g"]
    assert (list(queue.dead_letters), queue.frontier) == ([], 2)
