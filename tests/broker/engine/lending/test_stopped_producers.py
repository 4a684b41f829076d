"""Producers that are stopped or killed in the middle of an append, and what the broker wants to do meanwhile."""

from __future__ import annotations

import pytest
from penstock.broker.engine.lending.lending import LOOK_S
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogWriter
from penstock.transport import messages as m
from support.direct import Direct, Scene

BEFORE_THE_BATCH, IN_THE_BATCH, BEFORE_THE_WORD, BEFORE_FREEING = 9, 10, 12, 14


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def topic(scene: Scene) -> bytes:
    return scene.topic()


@pytest.fixture
def direct(scene: Scene, topic: bytes) -> Direct:
    """A producer that has a grant, and one record in the log."""
    found = Direct(scene, topic)
    assert isinstance(found.ask(), m.Lent)
    assert found.append(b"first")
    return found


def commit(scene: Scene, topic: bytes, offset: int = 1) -> int:
    return scene.core.send(lambda request: m.Commit(request, 0, topic, "g", [m.Position(0, offset, 0)]), peer="reader")


def other(scene: Scene, topic: bytes, value: bytes = b"other", peer: str = "other") -> int:
    return scene.core.send(lambda request: m.Produce(request, topic, 0), bytearray(encode([value])), peer=peer)


def cursor(scene: Scene, topic: bytes) -> int:
    return scene.core.ask(lambda request: m.ListGroups(request, topic)).groups[0].partitions[0].cursor


def test_a_commit_does_not_end_a_grant(scene: Scene, topic: bytes, direct: Direct) -> None:
    for number in range(1, 4):
        request = commit(scene, topic, number)
        scene.core.turn()
        assert isinstance(scene.core.answer(request), m.Done)
        assert direct.append(b"%d" % number)
        assert cursor(scene, topic) == number
    assert scene.lent() == 1
    assert scene.read(topic) == direct.acked
    scene.restart()
    assert (scene.read(topic), cursor(scene, topic)) == (direct.acked, 3)


def test_a_cursor_may_move_to_what_was_appended_just_now(scene: Scene, topic: bytes, direct: Direct) -> None:
    direct.append(b"second")
    request = commit(scene, topic, 2)
    scene.core.turn()
    assert isinstance(scene.core.answer(request), m.Done)


def test_what_was_appended_before_a_flush_stands_before_what_it_writes(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    request = commit(scene, topic)
    assert direct.append(b"between")
    scene.core.turn()
    assert isinstance(scene.core.answer(request), m.Done)
    assert direct.append(b"behind")
    assert scene.read(topic) == [b"first", b"between", b"behind"]
    partition = scene.core.node._registry.topics.partition(topic, 0)
    assert partition.proposed.end == partition.end == 3
    assert partition.proposed.seq == partition.seq


def test_a_commit_waits_for_the_byte_and_the_loop_does_not(scene: Scene, topic: bytes, direct: Direct) -> None:
    def meanwhile() -> None:
        request = commit(scene, topic)
        scene.core.turn()
        for _ in range(3):
            scene.core.turn()
            assert scene.core.node.tick(scene.core.now) == LOOK_S
        assert scene.core.answer(request) is None
        assert isinstance(scene.core.ask(lambda request: m.ListTopics(request, [])), m.Topics)
        waiting.append(request)

    waiting: list[int] = []
    assert direct.append_and(b"second", IN_THE_BATCH, meanwhile)
    assert not direct.append(b"x"), "it is paused until the broker had its turn"
    scene.wait(LOOK_S)
    scene.core.turn()
    assert isinstance(scene.core.answer(waiting[0]), m.Done)
    assert scene.lent() == 1
    assert direct.acked == [b"first", b"second"]
    assert scene.read(topic) == [b"first", b"second"]


@pytest.mark.parametrize("step", [3, BEFORE_THE_BATCH, IN_THE_BATCH, BEFORE_THE_WORD])
def test_a_stopped_producer_loses_its_log_after_a_second(scene: Scene, topic: bytes, direct: Direct, step: int) -> None:
    assert direct.stop_at(b"stopped", step)
    log = scene.core.node.logs[1]
    committed, produced = commit(scene, topic), other(scene, topic)
    scene.core.turn()
    scene.wait(0.9)
    assert (scene.core.answer(committed), scene.core.answer(produced), log.generation) == (None, None, 1)
    scene.wait(0.2)
    scene.core.turn()
    assert isinstance(scene.core.answer(committed), m.Done)
    assert isinstance(scene.core.answer(produced), m.Produced)
    assert log.generation == 2
    assert scene.read(topic) == [b"first", b"other"]
    again = Direct(scene, topic, producer=5, peer="second")
    scene.wait(20.0)
    assert "stopped producer" in again.ask().message
    direct.kill()
    assert isinstance(again.ask(), m.Lent)


def test_a_commit_alone_takes_the_log_from_a_stopped_producer(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert direct.stop_at(b"stopped", IN_THE_BATCH)
    request = commit(scene, topic)
    scene.core.turn()
    for _ in range(12):
        scene.wait(0.1)
    scene.core.turn()
    assert isinstance(scene.core.answer(request), m.Done)
    assert scene.lent() == 0


@pytest.mark.parametrize("forced", [False, True], ids=["goes on", "is stopped"])
def test_what_waits_for_a_log_is_written_when_that_is_taken_back_for_something_else(
    scene: Scene, topic: bytes, direct: Direct, forced: bool
) -> None:
    """The connection is gone, and no message waits that would write, too; a child of the producer has its byte."""
    assert direct.stop_at(b"stopped", IN_THE_BATCH)
    direct.gone()
    request = commit(scene, topic)
    scene.core.turn()
    assert scene.core.answer(request) is None
    if not forced:
        direct._end()
    scene.wait(1.1 if forced else LOOK_S)
    scene.core.turn()
    assert scene.lent() == 0
    assert isinstance(scene.core.answer(request), m.Done)
    assert cursor(scene, topic) == 1


def test_a_producer_that_asks_again_is_lent_its_log_behind_what_waited_for_it(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    assert direct.stop_at(b"second", 3)
    asked = scene.core.send(lambda request: m.Lend(request, topic, 0, 77, 0, 1), peer="direct")
    committed = commit(scene, topic)
    scene.core.turn()
    assert (scene.core.answer(asked), scene.core.answer(committed)) == (None, None)
    direct._end()
    for _ in range(3):
        scene.wait(LOOK_S)
    assert isinstance(scene.core.answer(committed), m.Done)
    assert isinstance(scene.core.answer(asked), m.Lent)


def test_a_stopped_producer_that_nothing_waits_for_keeps_its_log(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert direct.stop_at(b"stopped", IN_THE_BATCH)
    for _ in range(5):
        scene.wait(1.0)
    assert scene.read(topic) == [b"first"]
    assert scene.lent() == 1


def test_a_producer_that_goes_on_after_its_log_was_taken_is_told_nothing(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    def meanwhile() -> None:
        request = other(scene, topic)
        scene.core.turn()
        scene.wait(1.1)
        scene.core.turn()
        assert isinstance(scene.core.answer(request), m.Produced)

    assert not direct.append_and(b"second", IN_THE_BATCH, meanwhile)
    assert direct.acked == [b"first"]
    direct.produce(b"second", 1)
    scene.core.turn()
    direct.hear()
    assert scene.read(topic) == [b"first", b"other", b"second"]


def test_messages_wait_in_their_order_with_bytes_of_their_own(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert direct.stop_at(b"stopped", IN_THE_BATCH)
    for value in (b"1", b"2"):
        payload = bytearray(encode([value]))
        scene.core.send(lambda request: m.Produce(request, topic, 0), payload, peer="other")
        payload[:] = bytes(len(payload))
    other(scene, topic, b"gone", "gone")
    scene.core.node.disconnect("gone")
    direct.kill()
    other(scene, topic, b"3")
    scene.core.turn()
    assert scene.read(topic) == [b"first", b"1", b"2", b"3"]


def test_a_message_waits_for_all_grants_that_are_in_its_way(scene: Scene) -> None:
    topic = scene.topic("two", 2)
    first, second = Direct(scene, topic, 0), Direct(scene, topic, 1, producer=78, peer="second")
    first.ask()
    first.append(b"a")
    assert first.stop_at(b"stopped", IN_THE_BATCH)
    request = scene.core.send(lambda request: m.AlterTopic(request, topic, {"retention_s": 60.0}), peer="other")
    assert isinstance(second.ask(), m.Lent), "it came behind"
    scene.wait(0.1)
    assert scene.core.answer(request) is None
    for _ in range(4):
        scene.wait(0.5)
    assert isinstance(scene.core.answer(request), m.Topics)
    assert scene.lent() == 0


@pytest.mark.parametrize("step", [IN_THE_BATCH, BEFORE_THE_WORD])
def test_what_a_killed_producer_has_written_stands_if_it_is_whole(
    scene: Scene, topic: bytes, direct: Direct, step: int
) -> None:
    assert direct.stop_at(b"second", step)
    direct.kill()
    assert scene.lent() == 0
    scene.core.turn()
    found = scene.read(topic)
    assert found == ([b"first"] if step == IN_THE_BATCH else [b"first", b"second"])
    heir = Direct(scene, topic, peer="heir")
    heir.produce(b"second", 1)
    scene.core.turn()
    heir.hear()
    assert heir.acked == [b"second"]
    assert scene.read(topic) == [b"first", b"second"]


def test_a_resend_waits_until_it_is_known_whether_its_batch_stands(scene: Scene, topic: bytes, direct: Direct) -> None:
    """The producer's connection lives; one of its threads was interrupted behind the batch."""
    assert direct.stop_at(b"second", BEFORE_THE_WORD)
    direct._end()
    direct.produce(b"second", 1)
    scene.core.turn()
    direct.hear()
    assert direct.acked == [b"first", b"second"]
    assert scene.read(topic) == [b"first", b"second"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("step", [0, IN_THE_BATCH, BEFORE_THE_WORD, BEFORE_FREEING])
def test_a_node_ends_and_starts_while_lent(scene: Scene, topic: bytes, direct: Direct, step: int, clean: bool) -> None:
    if step:
        assert direct.stop_at(b"second", step)
    scene.core.send(lambda request: m.Commit(request, 0, topic, "g", [m.Position(0, 1, 0)]))
    scene.restart(clean=clean)
    found = scene.read(topic)
    assert found == [b"first", b"second"][: len(found)]
    assert len(found) == 2 if step == BEFORE_FREEING else found
    if clean:
        assert cursor(scene, topic) == 1
    request = other(scene, topic)
    scene.core.turn()
    assert isinstance(scene.core.answer(request), m.Produced)
    assert scene.read(topic) == [*found, b"other"]
    assert step or not direct.append(b"late")


def test_a_log_whose_byte_is_free_is_closed_clean(scene: Scene, topic: bytes, direct: Direct) -> None:
    direct.append(b"second")
    scene.restart(clean=True)
    assert scene.core.node.logs[1].generation == 1
    assert scene.read(topic) == [b"first", b"second"]


def test_a_log_that_is_closed_is_not_cut_for_a_producer_that_ends_its_append(
    scene: Scene, topic: bytes, direct: Direct
) -> None:
    tries: list[int] = []

    def ends(number: int) -> bool:
        tries.append(number)
        if len(tries) == 3:
            direct._end()
        return take(number)

    assert direct.stop_at(b"second", BEFORE_FREEING)
    locks = scene.core.node._lenders._locks  # type: ignore[union-attr]
    take, locks.take = locks.take, ends  # type: ignore[union-attr,method-assign]
    scene.restart(clean=True)
    assert scene.core.node.logs[1].generation == 1
    assert scene.read(topic) == [b"first", b"second"]


def test_offices_change_while_lent(scene: Scene, topic: bytes, direct: Direct) -> None:
    direct.append(b"second")
    scene.core.node.resign()
    assert scene.row().lent == 0
    scene.core.turn()
    assert scene.read(topic) == [b"first", b"second"]
    assert not direct.append(b"late")
    scene.core.node.disconnect("direct")
    direct.sequence = 2
    assert isinstance(direct.ask(), m.Lent)


def test_offices_change_while_a_producer_is_stopped(scene: Scene, topic: bytes, direct: Direct) -> None:
    assert direct.stop_at(b"second", IN_THE_BATCH)
    waiting = other(scene, topic)
    scene.core.node.resign()
    scene.core.turn()
    assert scene.core.answer(waiting) is None
    assert scene.read(topic) == [b"first"]
    assert scene.core.node.logs[1].generation == 2


def test_a_cut_that_is_not_possible_is_done_by_the_next_append(
    scene: Scene, topic: bytes, direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.storage import cutting

    def full(tail: object) -> None:
        raise StorageFull("no space is left")

    assert direct.stop_at(b"stopped", IN_THE_BATCH)
    request = other(scene, topic)
    scene.core.turn()
    with monkeypatch.context() as patched:
        patched.setattr(cutting, "cut", full)
        scene.wait(1.1)
        scene.core.turn()
        assert scene.core.answer(request).code == "storage_full"
        assert scene.lent() == 0
    request = other(scene, topic)
    scene.core.turn()
    assert isinstance(scene.core.answer(request), m.Produced)
    assert scene.core.node.logs[1].generation == 2
    assert scene.read(topic) == [b"first", b"other"]


def test_no_log_is_lent_to_a_connection_that_is_gone_before_that_can_be(scene: Scene, topic: bytes) -> None:
    """Nothing would end that grant: the end of its connection was told before."""
    asked = scene.core.send(lambda request: m.Lend(request, topic, 0, 77, 0, 0), peer="direct")
    assert scene.core.answer(asked) is None, "a term has to begin first"
    scene.core.node.disconnect("direct")
    scene.core.turn()
    assert scene.lent() == 0
    assert not isinstance(scene.core.answer(asked), m.Lent)
    assert isinstance(Direct(scene, topic, producer=5, peer="next").ask(), m.Lent)


def test_a_question_for_a_log_is_over_with_what_it_waited_for(
    scene: Scene, topic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(log: object, batches: object, now_us: int) -> None:
        raise StorageFull("no space is left")

    lending = scene.core.node._office.lending  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "append", full)
        assert Direct(scene, topic).ask().code == "storage_full"
    assert not lending._asking
    assert isinstance(Direct(scene, topic).ask(), m.Lent)
    assert not lending._asking


def test_nothing_lent_is_nothing_to_look_at(scene: Scene, direct: Direct) -> None:
    node = scene.core.node
    assert node._lent
    direct.gone()
    scene.core.turn()
    assert not node._lent
    assert node.tick(scene.core.now) > 1.0
