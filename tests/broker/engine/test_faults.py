"""Full disks, failed syncs and damage: nothing acknowledged is lost, nothing lost is acknowledged, the rest goes on."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from penstock.broker.engine import TopicSettings
from penstock.broker.errors import UnknownEffect
from penstock.storage import plan
from penstock.storage.batch import Kind, encode, encode_state
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import partition_of


def failure(answer: object) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def fill_disk(rig: Rig, index: int = 1, *, records_only: bool = False) -> Any:
    """Make the log at `index` fail to append. Returns what makes it work again."""
    log = rig.node.logs[index]
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        if records_only and all(len(batch) < 300 for batch in batches):
            return append(batches, now_us)
        raise StorageFull("no space left for 1 batch")

    log.append = full

    def empty() -> None:
        log.append = append

    return empty


# -- full disk --------------------------------------------------------------------------------------


def test_a_full_disk_refuses_all_of_a_turn_and_a_resend_succeeds_when_there_is_room():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"], producer_id=1)
    empty = fill_disk(rig)
    requests = []
    batches = [bytes(encode([b"%d" % n], producer_id=1, first_sequence=n)) for n in (1, 2, 3)]
    for batch in batches:
        requests.append(rig.next_request())
        rig.send(m.Produce(requests[-1], topic, 0), batch)
    rig.turn()
    assert [(rig.answers(r)[0].code, rig.answers(r)[0].retry) for r in requests] == [("storage_full", True)] * 3
    assert rig.read(topic) == [b"a"], "reads go on"
    later = rig.produce(topic, [b"x"], producer_id=1, first_sequence=4)
    assert failure(later) == "sequence_gap", "what was refused is not taken as received"
    empty()
    for batch in batches:
        assert rig.ask(m.Produce, topic, 0, payload=batch).request
    assert rig.read(topic) == [b"a", b"1", b"2", b"3"]


def test_a_full_disk_forgets_a_producer_that_only_it_has_seen():
    rig = Rig()
    topic = rig.topic()
    empty = fill_disk(rig)
    assert failure(rig.produce(topic, [b"a"], producer_id=1)) == "storage_full"
    assert failure(rig.produce(topic, [b"b"], producer_id=1, first_sequence=1)) == "unknown_producer"
    empty()
    assert rig.produce(topic, [b"a"], producer_id=1).offset == 0


def test_cursors_move_on_a_disk_that_is_too_full_for_records():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    joined = rig.join(topic, "g", "a")
    fill_disk(rig, records_only=True)
    produce, commit = rig.next_request(), rig.next_request()
    rig.send(m.Produce(produce, topic, 0), bytes(encode([b"x" * 1000])))
    rig.send(m.Commit(commit, joined.session, topic, "g", [m.Position(0, 1, 1)]))
    rig.turn()
    assert failure(rig.answers(produce)[0]) == "storage_full"
    assert rig.answers(commit) == [m.Done(commit)]
    assert rig.ask(m.ListGroups, topic).groups[0].partitions[0].cursor == 1


def test_ownership_that_could_not_be_logged_is_tried_again():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    empty = fill_disk(rig)
    joined = rig.join(topic, "g", "a")
    assert joined.assignments == [], "the member is answered, with nothing yet"
    rig.pass_time(1)
    assert rig.assigned(joined) == {}
    empty()
    rig.pass_time(1)
    assert (rig.assigned(joined), rig.received(joined)) == ({0: (1, 0)}, [b"a"])


def test_a_seek_that_could_not_be_logged_is_answered_and_changes_nothing():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b"])
    joined = rig.join(topic, "g", "a")
    empty = fill_disk(rig)
    assert failure(rig.ask(m.SeekTo, joined.session, 0, 1)) == "storage_full"
    empty()
    assert rig.ask(m.Commit, joined.session, topic, "g", [m.Position(0, 1, 1)]) == m.Done(rig._request)


def test_a_snapshot_that_does_not_fit_does_no_harm():
    rig = Rig(snapshot_batches=2)
    topic = rig.topic()

    def full(*_: Any) -> None:
        raise StorageFull("no space")

    rig.store.save_snapshot = full
    for number in range(6):
        assert rig.produce(topic, [b"%d" % number]).offset == number
    assert rig.node.stats()["snapshots.failed"] > 0
    rig.restart()
    assert len(rig.read(topic)) == 6


@pytest.mark.parametrize("verb", ["create", "alter", "delete"])
def test_a_full_disk_under_the_catalogue_refuses_and_leaves_things_as_they_were(verb: str):
    rig = Rig()
    topic = rig.topic()
    empty = fill_disk(rig, 0)
    requests = {
        "create": (m.CreateTopic, "new", 2, {}),
        "alter": (m.AlterTopic, topic, {"codec": "lz4"}, 3),
        "delete": (m.DeleteTopic, topic),
    }
    assert failure(rig.ask(*requests[verb])) == "storage_full"
    (kept,) = rig.ask(m.ListTopics, []).topics
    assert (kept.topic, len(kept.partitions), kept.settings["codec"]) == (topic, 1, "none")
    assert len(rig.node.logs) == 2
    empty()
    assert not isinstance(rig.ask(*requests[verb]), m.Failure)


def test_a_log_that_the_catalogue_does_not_know_is_never_taken_over_with_what_it_holds():
    rig = Rig()
    topic = rig.topic()
    log = rig.store.create(topic, 1, TopicSettings())
    log.append([encode([b"whose?"])], rig.now.wall_us)
    log.close()
    answer = rig.ask(m.AlterTopic, topic, {}, 2)
    assert (failure(answer), "holds batches" in answer.message) == ("unavailable", True)
    assert len(rig.ask(m.ListTopics, []).topics[0].partitions) == 1


def test_a_disk_that_cannot_be_read_stops_one_reader_and_not_the_node():
    rig = Rig()
    topic = rig.topic(partitions=2)
    rig.produce(topic, [b"a"], 0), rig.produce(topic, [b"b"], 1)
    read = rig.port.read

    def fails_on_first(cursor: Any, max_bytes: int, limit_seq: int, token: Any) -> Any:
        if cursor.path.endswith("/0"):
            raise OSError(5, "Input/output error")
        return read(cursor, max_bytes, limit_seq, token)

    rig.port.read = fails_on_first
    assert rig.received(rig.join(topic)) == [b"b"]
    refused = rig.fetch(topic, 0)
    assert (failure(refused), refused.retry) == ("read_failed", True)
    assert [p.state for p in rig.ask(m.ListTopics, []).topics[0].partitions] == ["damaged", "ok"]
    rig.port.read = read
    assert rig.received(rig.join(topic)) == [b"a", b"b"]


def test_what_the_disk_did_not_give_once_is_no_damage(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    requests = [
        (m.Fetch, topic, 0, 0, -1, 1000, 0, None),
        (m.Measure, topic, [m.Span(0, 0, 1)], 1000),
        (m.FindOffsets, topic, rig.now.wall_us),
    ]
    with monkeypatch.context() as patched:
        for name in ("cursor", "place_of", "offset_at"):
            patched.setattr(partition_of(rig, topic).reader, name, fails)
        refused = [rig.ask(*request) for request in requests]
        assert [(failure(each), each.retry) for each in refused] == [("read_failed", True)] * 3
    assert not any(isinstance(rig.ask(*request), m.Failure) for request in requests)
    assert rig.partition(topic).state == "ok"


def test_a_term_that_cannot_be_read_stops_no_reader_and_not_the_node(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b"])

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    reader = partition_of(rig, topic).reader
    monkeypatch.setattr(reader, "term_at", fails)
    joined = rig.join(topic, "g", "m", start=m.LATEST)
    assert [(each.offset, each.term) for each in joined.assignments] == [(2, 0)]


def test_one_batch_that_does_not_fit_the_log_does_not_take_others_down_with_it():
    rig = Rig()
    topic = rig.topic()
    log = rig.node.logs[1]
    log.options = msgspec.structs.replace(log.options, max_batch_bytes=1000)
    big, small = rig.next_request(), rig.next_request()
    rig.send(m.Produce(big, topic, 0), bytes(encode([b"x" * 2000])))
    rig.send(m.Produce(small, topic, 0), bytes(encode([b"y"])))
    rig.turn()
    assert failure(rig.answers(big)[0]) == "batch_too_large"
    assert rig.answers(small)[0].offset == 0


# -- failed syncs -----------------------------------------------------------------------------------


def poison(rig: Rig, index: int = 1) -> None:
    """What a failed sync does to a log."""
    rig.node.logs[index].poison("fdatasync: I/O error")


def test_what_was_waiting_for_a_sync_that_failed_is_refused_and_never_committed():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"], producer_id=1)
    joined = rig.join(topic, "g", "a")
    rig.store.hold = True
    produce, commit = rig.next_request(), rig.next_request()
    rig.send(m.Produce(produce, topic, 0), bytes(encode([b"b"], producer_id=1, first_sequence=1)))
    rig.send(m.Commit(commit, joined.session, topic, "g", [m.Position(0, 1, 1)]))
    rig.turn()
    poison(rig)
    rig.turn()
    assert [failure(rig.answers(request)[0]) for request in (produce, commit)] == ["poisoned", "poisoned"]
    assert rig.read(topic) == [b"a"], "reads go on"


def test_a_poisoned_partition_refuses_writes_and_the_others_serve():
    rig = Rig()
    topic = rig.topic(partitions=2)
    rig.produce(topic, [b"a"])
    joined = rig.join(topic, "g", "a")
    poison(rig)
    answer = rig.produce(topic, [b"b"])
    assert (failure(answer), answer.retry, "reads go on" in answer.message) == ("poisoned", False, True)
    assert failure(rig.ask(m.OpenProducer, topic, 0, "n")) == "poisoned"
    both = [m.Position(1, 0, 1), m.Position(0, 1, 1)]
    assert failure(rig.ask(m.Commit, joined.session, topic, "g", both)) == "poisoned"
    assert rig.produce(topic, [b"b"], 1).offset == 0
    assert [p.state for p in rig.ask(m.ListTopics, []).topics[0].partitions] == ["poisoned", "ok"]
    assert rig.ask(m.Commit, joined.session, topic, "g", [m.Position(1, 1, 1)]).request
    assert (rig.read(topic, 0), rig.received(rig.join(topic))) == ([b"a"], [b"a", b"b"])
    assert rig.ask(m.Stats).values["partitions.poisoned"] == 1


def test_a_poisoned_log_that_is_opened_anew_has_what_was_acknowledged():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"], producer_id=1)
    rig.store.hold = True
    rig.produce(topic, [b"lost"], producer_id=1, first_sequence=1)
    poison(rig)
    rig.turn()
    rig.store.hold = False
    rig.restart()
    assert rig.produce(topic, [b"b"], producer_id=1, first_sequence=1).offset == 1
    assert rig.read(topic) == [b"a", b"b"]
    assert rig.partition(topic).state == "ok"


# -- damage -----------------------------------------------------------------------------------------


def damage(rig: Rig, topic: bytes, needle: bytes, *, back: int = 0) -> None:
    """Flip a byte at `needle` (or some bytes before it) in the partition's segment."""
    path = rig.store.directory(topic, 0)
    (name,) = [name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")]
    data = rig.store.files.contents[name].data
    data[data.index(needle) - back] ^= 0xFF


def damaged(back: int) -> tuple[Rig, bytes]:
    """A topic of five records of which the header of the third is damaged."""
    rig = Rig()
    topic = rig.topic()
    for number in range(5):
        rig.produce(topic, [b"value-%d" % number])
    rig.node.logs[1].close(clean=False)
    damage(rig, topic, b"value-2", back=back)
    return rig, topic


def test_readers_go_on_around_damage_and_the_partition_says_so():
    rig, topic = damaged(back=100)
    rig.restart(clean=False)
    joined = rig.join(topic)
    assert rig.received(joined) == [b"value-0", b"value-1", b"value-3", b"value-4"]
    assert rig.partition(topic).state == "damaged"
    assert rig.produce(topic, [b"new"]).offset == 5
    assert rig.received(joined)[-1] == b"new"
    said = [(message.offset, "checksum" in message.damage) for message, _ in rig.deliveries(joined) if message.damage]
    assert said == [(3, True)], "once, with what comes behind it"


def test_a_fetch_of_a_damaged_place_says_where_good_records_go_on():
    rig, topic = damaged(back=100)
    rig.restart(clean=False)
    assert rig.fetch(topic, 0).next_offset == 2
    answer = rig.fetch(topic, 2)
    assert (failure(answer), answer.offset) == ("corrupt", 3)
    assert rig.fetch(topic, 3).next_offset == 5
    assert rig.partition(topic).state == "damaged"


def test_effects_behind_damage_are_applied_and_damaged_effects_are_not():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b", b"c"])
    for group, offset in (("group-one", 1), ("group-two", 2), ("group-three", 3)):
        rig.ask(m.Commit, 0, topic, group, [m.Position(0, offset, 0)])
    rig.node.logs[1].close(clean=False)
    damage(rig, topic, b"group-two")
    rig.restart(clean=False)
    groups = {each.group: each.partitions[0].cursor for each in rig.ask(m.ListGroups, b"").groups}
    assert groups == {"group-one": 1, "group-three": 3}
    assert rig.partition(topic).state == "damaged"


LATER = 99
"""An unknown kind of batch."""


def later(what: str) -> bytes:
    """A batch that only a later version understands."""
    if what == "effect":
        return bytes(encode_state(bytes.fromhex("9192cd03e801")))
    batch = bytearray(encode([b"later"]))
    batch[13] = LATER  # the writer stamps a new checksum over it
    return bytes(batch)


@pytest.fixture
def _later_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log writer that takes the batches of a later version."""
    monkeypatch.setattr(plan, "_APPENDABLE", frozenset({*Kind, LATER}))


@pytest.mark.usefixtures("_later_writer")
@pytest.mark.parametrize(("what", "named"), [("kind", f"kind {LATER}"), ("effect", "upgrade")])
def test_what_a_later_version_wrote_makes_the_partition_unavailable_and_not_guessed_at(what: str, named: str):
    rig = Rig()
    topic = rig.topic(partitions=2)
    log = rig.node.logs[1]
    log.append([later(what)], rig.now.wall_us)
    log.sync()
    rig.restart(clean=False)
    answer = rig.produce(topic, [b"x"])
    assert (failure(answer), named in answer.message) == ("unavailable", True)
    assert rig.produce(topic, [b"x"], 1).offset == 0


@pytest.mark.usefixtures("_later_writer")
@pytest.mark.parametrize("what", ["kind", "effect"])
def test_a_catalogue_of_a_later_version_does_not_open(what: str):
    rig = Rig()
    rig.topic()
    log = rig.node.logs[0]
    log.append([later(what)], rig.now.wall_us)
    log.sync()
    with pytest.raises(UnknownEffect, match="upgrade"):
        rig.restart(clean=False)


def test_a_partition_that_lost_its_marks_and_first_batches_is_damaged_and_not_empty() -> None:
    rig = Rig()
    topic = rig.topic()
    for number in range(20):
        rig.produce(topic, [b"%d" % number * 50])
    (partition,) = rig.node._registry.partitions.values()
    rig.node._upkeep.snapshot(partition.history)
    rig.node.close(rig.now)
    (path,) = (name for name in rig.store.files.contents if "topics" in name and name.endswith(".segment"))
    rig.store.files.contents[path].data[1204 : 1204 + 4096] = random.Random(1).randbytes(4096)
    rig.restart(clean=False)
    (partition,) = rig.node._registry.partitions.values()
    assert (partition.state, partition.end) == ("damaged", 20)
