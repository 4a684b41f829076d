"""What a full, failing or damaged disk must not do: to producers' names, to mapped readers, to the broker, to state."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine import NodeConfig
from penstock.broker.keeper import messages
from penstock.storage import cutting
from penstock.storage.batch import encode
from penstock.storage.board import split
from penstock.storage.errors import StorageFull
from penstock.storage.repair import repair
from penstock.transport import messages as m
from support.core import DATA, Core
from support.engine import Rig
from support.writeback import WritebackFiles


def refuse_once(owner: Any, name: str, *, after: bool = False) -> None:
    """The next call of a method or function of `owner` finds the disk full, before or after it did its work."""
    method = getattr(owner, name)

    def refuse(*arguments: Any, **named: Any) -> None:
        setattr(owner, name, method)
        if after:
            method(*arguments, **named)
        raise StorageFull("no space is left on the device")

    setattr(owner, name, refuse)


def produce(core: Core, topic: bytes) -> Any:
    return core.ask(lambda request: m.Produce(request, topic, 0), bytes(encode([b"a"])))


def test_a_name_claimed_while_its_batches_are_refused_goes_on_where_the_log_is():
    rig = Rig()
    topic = rig.topic()
    opened = rig.ask(m.OpenProducer, topic, 0, "p")
    refuse_once(rig.node.logs[1], "append")
    refused, again = rig.next_request(), rig.next_request()
    batch = encode([b"x", b"y"], producer_id=opened.producer_id, producer_epoch=opened.epoch)
    rig.send(m.Produce(refused, topic, 0), bytes(batch))
    rig.send(m.OpenProducer(again, topic, 0, "p"))
    rig.turn()
    assert [answer.code for answer in rig.answers(refused)] == ["storage_full"]
    (claim,) = rig.answers(again)
    assert (claim.epoch, claim.next_sequence) == (2, 0)
    answer = rig.produce(topic, [b"x"], producer_id=claim.producer_id, producer_epoch=2, first_sequence=0)
    assert isinstance(answer, m.Produced), answer


def test_what_a_cut_has_synced_is_published_though_nothing_could_be_appended_after_it():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    core.hold = True
    waiting = core.send(lambda request: m.Produce(request, topic, 0), bytes(encode([b"b"])))
    core.turn()
    log = core.node.logs[1]
    log.must_cut, log.ready = True, False  # as a write that failed half-way leaves it
    refuse_once(cutting, "cut", after=True)
    assert produce(core, topic).code == "storage_full"
    core.hold = False
    core.turn()
    assert isinstance(core.answer(waiting), m.Produced)
    row = core.board.row(core.watermarks.number_of(log))
    assert split(row.durable) == (log.generation, 1)


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_a_topic_on_a_failing_disk_can_be_deleted(commit: str):
    core = Core(WritebackFiles())
    topic = core.create_topic("t", commit=commit)
    core.hold = True
    produce(core, topic)
    log = core.node.logs[1]
    core.files.fail_next(next(ref.path for ref in log.dirty_segments()))
    core.hold = False
    deleted = core.send(lambda request: m.DeleteTopic(request, topic))
    core.turn()
    core.turn()
    assert isinstance(core.answer(deleted), m.Done)


class NoDirectories(WritebackFiles):
    """A disk without room for another directory."""

    full = False

    def mkdir(self, path: str) -> None:
        if self.full and path not in self.directories:
            raise StorageFull(f"cannot create {path}: no space is left on the device")
        super().mkdir(path)


def test_a_topic_is_deleted_from_a_disk_too_full_for_the_trash_and_forgotten_at_the_next_start():
    files = NoDirectories()
    core = Core(files)
    topic = core.create_topic("t")
    produce(core, topic)
    files.full = True
    assert isinstance(core.ask(lambda request: m.DeleteTopic(request, topic)), m.Done)
    assert core.jobs._trees == [f"{DATA}/topics/{topic.hex()}"]
    again = Core(files)  # the removal did not happen, and there is no more room than before: it starts all the same
    assert again.ask(lambda request: m.ListTopics(request, [])).topics == []
    files.full = False
    Core(files).turn()
    assert files.listdir(f"{DATA}/topics") == []


def test_one_log_that_cannot_be_closed_cleanly_keeps_no_other_from_it():
    core = Core(WritebackFiles())
    names = {name: core.create_topic(name) for name in "abc"}
    for topic in names.values():
        assert isinstance(produce(core, topic), m.Produced)
    for log in core.node.logs[:2]:
        log._leave_clean_mark = lambda: (_ for _ in ()).throw(StorageFull("no space is left on the device"))
    core.close()
    after = Core(core.files.power_cut())
    assert [not log.must_cut for log in after.node.logs] == [False, False, True, True]
    assert [after.topic(name).partitions[0].end for name in names] == [1, 1, 1]


def test_a_snapshot_of_batches_that_were_given_up_does_not_come_back_when_others_get_their_seqs():
    config = NodeConfig(snapshot_batches=8)

    def send(core: Core, producer: int, number: int) -> None:
        batch = encode([bytes(9000)], producer_id=producer, first_sequence=number)
        assert isinstance(core.ask(lambda request: m.Produce(request, topic, 0), bytes(batch)), m.Produced)

    core = Core(WritebackFiles(), config=config)
    topic = core.create_topic("t", segment_bytes=64 << 10)
    for number in range(14):
        send(core, 5, number)
    log = core.node.logs[1]
    core.close()  # with a snapshot of all 14
    last = max(name for name in core.files.listdir(log.path) if name.endswith(".segment"))
    core.files.rename(f"{log.path}/{last}", f"{log.path}/{last}.lost")
    repair(core.files, log.path, now_us=1, accept_loss=True)
    core = Core(core.files, config=config)
    for number in range(3):
        send(core, 6, number)
    (before,) = core.node._registry.partitions
    (after,) = Core(core.files.power_cut(), config=config).node._registry.partitions
    assert before.log.written == 15
    assert after.committed.encode() == before.committed.encode()


def test_segments_that_could_not_be_unlinked_are_tried_again():
    core = Core(WritebackFiles(), config=NodeConfig(snapshot_batches=2, housekeeping_s=1.0))
    topic = core.create_topic("t", segment_bytes=64 << 10, retention_bytes=64 << 10)
    unlink, refused = core.files.unlink, list[str]()

    def failing(path: str) -> None:
        if path.endswith(".segment") and len(refused) < 3:
            refused.append(path)
            raise OSError(5, "Input/output error")
        unlink(path)

    core.files.unlink = failing
    core.idle_hands = True
    for number in range(40):
        core.now_s += 1.0
        batch = encode([bytes(9000)], producer_id=5, first_sequence=number)
        assert isinstance(core.ask(lambda request: m.Produce(request, topic, 0), bytes(batch)), m.Produced)
        for job in [job for job, *_ in core.jobs._open.values()]:
            try:
                core.jobs._done(job.job, core.jobs._do(job))
            except OSError as error:
                core.jobs.answered(messages.Refused(-1, job.job, str(error)))
    assert len(refused) == 3
    assert len(core.node.logs[1].segments()) <= 3
