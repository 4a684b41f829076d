"""Any one file of a data directory zeroed or cut short: the rest serves, or the start is refused with one sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from penstock.broker.engine import NodeConfig
from penstock.storage.batch import encode
from penstock.storage.data_directory import DOUBTS
from penstock.storage.errors import Corrupt
from penstock.storage.repair import repair
from penstock.transport import messages as m
from support.core import DATA, Core
from support.writeback import WritebackFiles

LENGTHS = (0, 1, 63, 600, 4096)
CONFIG = NodeConfig(snapshot_batches=3, housekeeping_s=1.0)


def produce(core: Core, topic: bytes, size: int = 20) -> object:
    return core.ask(lambda request: m.Produce(request, topic, 0), bytes(encode([bytes(size)])))


def filled(*, snapshots: bool) -> WritebackFiles:
    """Two topics of several segments, as a kill leaves them."""
    core = Core(WritebackFiles(), config=CONFIG if snapshots else None)
    for name in ("t", "u"):
        topic = core.create_topic(name, segment_bytes=64 << 10)
        for _ in range(6):
            core.now_s += 1.0
            assert isinstance(produce(core, topic, 20_000), m.Produced)
    files = core.files.power_cut()
    files.rewrite(f"{DATA}/{DOUBTS}", b"[]")
    return files


def damages(content: bytes) -> Iterator[bytes]:
    yield bytes(len(content))
    yield bytes(8192) + content[8192:]
    yield b"/"
    for length in LENGTHS:
        if length < len(content):
            yield content[:length]


def damaged(whole: WritebackFiles) -> Iterator[tuple[str, WritebackFiles]]:
    """Every file of the directory with every damage."""
    for path in sorted(whole.contents):
        for content in damages(bytes(whole.contents[path].data)):
            files = whole.power_cut()
            files.contents[path].data[:] = content
            yield path, files


@pytest.mark.parametrize("snapshots", [False, True])
def test_one_damaged_file_takes_no_partition_with_it_but_its_own(snapshots: bool):
    whole = filled(snapshots=snapshots)
    refused: list[tuple[str, str]] = []
    for path, files in damaged(whole):
        try:
            core = Core(files)
        except Corrupt as error:
            refused.append((path, error.message))
            continue
        if len(core.ask(lambda request: m.ListTopics(request, [])).topics) < 2:
            assert path.startswith(f"{DATA}/metadata/"), path
            answer = core.ask(lambda request: m.CreateTopic(request, "v", 1, {}))
            assert (answer.code, "metadata log" in answer.message) == ("unavailable", True), path
            continue
        stats = core.node.stats()
        for name in ("t", "u"):
            topic = core.topic(name)
            answer = produce(core, topic.topic)
            if isinstance(answer, m.Produced):
                continue
            assert isinstance(answer, m.Failure)
            assert (answer.code, topic.partitions[0].state) == ("unavailable", "damaged"), (path, answer)
            assert path.startswith(topic.partitions[0].directory + "/"), path
            assert stats[f"partitions.unavailable.{name}/0"] in answer.message
        core.close()
    assert refused
    for path, reason in refused:
        assert path.startswith(f"{DATA}/metadata/")
        assert "the catalogue cannot be read" in reason
        assert path in reason or f"no segment in {DATA}/metadata" in reason


def test_a_first_segment_that_says_nothing_makes_its_partition_unavailable():
    files = filled(snapshots=False)
    path = min(path for path in files.contents if path.endswith(".segment") and "/topics/" in path)
    del files.contents[path].data[63:]
    core = Core(files)
    (reason,) = core.node.unavailable.values()
    assert f"{path} cannot be read" in reason
    assert "repair --accept-loss" in reason
    assert sorted(partition.state for name in ("t", "u") for partition in core.topic(name).partitions) == [
        "damaged",
        "ok",
    ]


@pytest.mark.parametrize("snapshots", [False, True])
def test_repair_brings_every_partition_back(snapshots: bool):
    whole = filled(snapshots=snapshots)
    refused: set[tuple[str, str]] = set()
    for path, files in damaged(whole):
        try:
            for directory in sorted({each.rpartition("/")[0] for each in files.contents if each.endswith(".segment")}):
                repair(files, directory, now_us=1, accept_loss=True)
        except Corrupt as error:
            refused.add((path.rpartition("/")[0], error.message.partition(":")[0]))
            continue
        core = Core(files)
        assert core.node.unavailable == {}, path
        listed = core.ask(lambda request: m.ListTopics(request, []))
        if path.startswith(f"{DATA}/metadata/") and len(listed.topics) < 2:
            continue  # what the metadata log and its snapshots do not hold any more is accepted as lost
        for topic in listed.topics:
            (partition,) = topic.partitions
            answer = produce(core, topic.topic)
            assert isinstance(answer, m.Produced), (path, answer)
            assert answer.offset == partition.end, path
        core.close()
        again = Core(files)
        assert again.node.unavailable == {}, path
    assert refused == {(f"{DATA}/metadata", f"nothing in {DATA}/metadata says which topics there are")}, (
        "that would give up every topic"
    )


@pytest.mark.parametrize(("code", "error"), [(errno.ENOMEM, OSError), (errno.EIO, Corrupt)])
def test_a_catalogue_is_not_called_damaged_for_an_error_that_says_nothing_of_its_bytes(code: int, error: type):
    files = filled(snapshots=False)
    for path, content in files.contents.items():
        if path.startswith(f"{DATA}/metadata/"):
            files.disk(content).unreadable = code
    with pytest.raises(error, match=f"{DATA}/metadata"):
        Core(files)
