"""Directories that earlier versions wrote are opened in place by this one, with all that was in them, and written on.

`tests/golden/directories` has what `support.past` made with the code of that day; each version that is released adds
one. The clock stands where it stood then, so that nothing has expired.
"""

from __future__ import annotations

import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import penstock
import pytest
from penstock.broker.engine import Node, Now
from penstock.clients.backing_up import back_up
from penstock.clients.embedded import local
from penstock.errors import Forbidden
from penstock.storage import layout
from penstock.storage.backup_point import read_point
from penstock.storage.batch import encode
from penstock.storage.errors import NewerFormat
from penstock.storage.files import Files
from penstock.storage.restore import restore
from penstock.storage.verify import verify
from penstock.transport.messages import Stage
from support import past
from support.sources import ROOT
from xxhash import xxh3_64_intdigest

ARCHIVES = sorted((ROOT / "tests/golden/directories").glob("*.tar.xz"))


class Past(NamedTuple):
    """A directory of then, what was seen in it, and how to let time pass."""

    root: Path
    seen: dict[str, Any]
    wait: Callable[[float], None]

    def connect(self, name: str = "data") -> penstock.Client:
        return penstock.connect(f"file://{self.root}/{name}")


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def then(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Past:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    seen = json.loads((tmp_path / "seen.json").read_text())
    passed_us = 0
    system = local.system_clock
    started_us = system().wall_us

    def clock() -> Now:
        now = system()
        return Now(now.wall_us - started_us + seen["made_us"] + passed_us, now.monotonic_s + passed_us / 1e6)

    def wait(duration_s: float) -> None:
        nonlocal passed_us
        passed_us += int(duration_s * 1e6)

    monkeypatch.setattr(local, "system_clock", clock)
    return Past(tmp_path, seen, wait)


def check_contents(client: penstock.Client, seen: dict[str, Any]) -> None:
    assert {topic: past.values(client, topic) for topic in past.TOPICS} == seen["topics"]
    assert client.group("flights", "report").lag == seen["lag"]
    assert client.transaction_epoch("import") == 8
    assert [each.name for each in client.schedules("jobs")] == ["daily"]


def test_all_is_there_and_goes_on(then: Past):
    with then.connect() as client:
        check_contents(client, then.seen)
        with client.consumer("flights", group="report") as consumer:
            records = [record for _ in range(9) for record in consumer.fetch(max_records=100, wait=0.0)]
            assert len(records) == then.seen["lag"]
            assert records[0].value.split()[1].rstrip(b"\0").isdigit()
            consumer.commit()
        with client.producer("flights") as producer:
            producer.send(b"new", key=b"UA")
        assert client.commit_stages("import", 8, []) is False
    with then.connect() as client:
        assert client.group("flights", "report").lag == 1
        assert [part.count("new") for part in past.values(client, "flights")] in ([1, 0], [0, 1])
        assert past.values(client, "orders") == then.seen["topics"]["orders"]


def test_keys_of_records_meet_the_partitions_that_they_had(then: Past):
    (old,) = [number for number, part in enumerate(then.seen["topics"]["flights"]) if "UA 1545" in part]
    with then.connect() as client, client.producer("flights") as producer:
        producer.send(b"new", key=b"UA")
        assert past.values(client, "flights")[old][-1] == "new"
        first = client.read("flights", old, 0)[0]
    assert (first.value, first.key, dict(first.headers)) == (b"UA 1545", b"UA", {"day": b"1"})


def test_tasks_are_in_the_states_that_they_had(then: Past):
    with then.connect() as client:
        queue = client.queue("jobs", "work")
        assert (queue.depth, queue.delayed, queue.dead_lettered) == (6, 1, 1)
        (dead,) = client.dead_letters("jobs", "work")
        assert dead.reason == "no address"
        results = [client.task(f"jobs-0-{number}", "work") for number in range(9)]
        assert [each.result for each in results if each.state == "completed"].count(b"sent") == 1
        with client.producer("jobs") as producer:  # the key is remembered, so the record is the one of then
            assert producer.send(b"once", dedup=b"order-17") == 8
        then.wait(600)
        assert client.redrive("jobs", "work") == 1
        with client.worker("jobs", group="work") as worker:
            tasks = worker.fetch(max_records=10, wait=1.0)
            assert len(tasks) == 6
            for task in tasks:
                task.ack()
        assert client.queue("jobs", "work").depth == 1


def test_a_lease_of_a_killed_process_ends_at_its_time(then: Past):
    with then.connect("killed") as client:
        queue = client.queue("jobs", "work")
        assert (queue.ready, queue.in_flight) == (1, 1)
        then.wait(31)
        with client.worker("jobs", group="work") as worker:
            tasks = worker.fetch(max_records=10, wait=1.0)
            assert sorted(task.value for task in tasks) == [b"leased", b"ready"]


@pytest.mark.parametrize("name", ["owned", "owned-killed"])
def test_owners_are_those_of_then(then: Past, name: str, monkeypatch: pytest.MonkeyPatch):
    """From a snapshot, and from the log alone."""
    if name not in then.seen:
        pytest.skip("there were no owners then")
    (feed, epoch), stage = then.seen[name]["feed"], then.seen[name]["stage"]
    with then.connect(name) as client:
        topic = client.topic(past.OWNED).id
        stages = [Stage(bytes.fromhex(topic), 0, stage, 1)]
        batches = [
            encode([b"more"], producer_id=id_, producer_epoch=its, first_sequence=1)
            for id_, its in ((past.SENDS, 0), (feed, epoch))
        ]
        going_on: list[Callable[[], object]] = [
            *(lambda each=each: client.append_batch(past.OWNED, 0, each, id=topic) for each in batches),
            lambda: client.commit_stages("other", 1, stages),
            lambda: client.commit_stages("nightly", 2, stages),
            lambda: client.open_producer(past.OWNED, 0, "feed"),
        ]
        monkeypatch.setattr(Node, "receive", past.acting_as("bob"))
        for act in going_on:
            with pytest.raises(Forbidden):
                act()
        monkeypatch.setattr(Node, "receive", past.acting_as("ann"))
        del going_on[2]
        for act in going_on:
            act()
        assert sorted(past.values(client, past.OWNED)[0]) == ["ann's", "ann's", "more", "more", "staged"]


def test_directories_without_a_broker_go_on(then: Past):
    with penstock.Log(then.root / "log") as log:
        assert [(each.key, each.value) for each in log] == [(b"UA", b"UA 1545"), (None, b"AA 1141"), (None, b"B6 725")]
        assert log.append([b"new"]) == 3
    if (then.root / "channel").exists():
        with penstock.Channel(then.root / "channel") as channel:
            assert [channel.get(timeout=5) for _ in range(2)] == [b"two", b"three"]
            channel.put(b"new")
    address = f"mem://{then.root.name}"
    if (then.root / "spool").exists():
        with penstock.connect(address) as client:
            client.create_topic("flights")
            with penstock.Spool(then.root / "spool", to=address) as spool:
                spool.send("flights", b"new")
                spool.flush(timeout=30)
            assert past.values(client, "flights") == [["spooled", "AA 1141", "new"]]


def test_logs_have_no_damage_and_a_backup_has_it_all(then: Past):
    logs = [path.parent for path in (then.root / "data").rglob("*.segment")]
    assert not [bad for path in set(logs) for bad in verify(Files(), str(path)).damage]
    made = back_up(str(then.root / "data"), str(then.root / "backup"))
    point = read_point(Files(), str(then.root / "backup"), made.name)
    assert restore(Files(), str(then.root / "backup"), point, str(then.root / "restored")) == []
    with then.connect("restored") as client:
        check_contents(client, then.seen)


def raise_version(segment: Path) -> None:
    """Have a segment say that a later version wrote it."""
    content = bytearray(segment.read_bytes())
    struct.pack_into("<I", content, 12, layout.VERSION + 1)
    struct.pack_into("<Q", content, 0, xxh3_64_intdigest(bytes(content[8 : layout.SECTOR_BYTES])))
    segment.write_bytes(content)


def listing(root: Path) -> dict[str, bytes]:
    """Every file but locks, which name their holder."""
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


def test_a_directory_of_a_later_format_is_refused_and_left_as_it_was(then: Past):
    node = then.root / "data/node.json"
    node.write_text(node.read_text().replace('"format":1', '"format":3'))
    before = listing(then.root / "data")
    with pytest.raises(NewerFormat, match="format 3, this penstock reads up to 2: upgrade penstock"):
        then.connect()
    with pytest.raises(NewerFormat, match="upgrade penstock"):
        back_up(str(then.root / "data"), str(then.root / "backup"))
    assert listing(then.root / "data") == before


def test_a_catalogue_of_a_later_format_is_refused_and_left_as_it_was(then: Past):
    raise_version(max((then.root / "data/metadata").glob("*.segment")))
    before = listing(then.root / "data")
    with pytest.raises(NewerFormat, match="format version 2, this penstock reads 1; upgrade it"):
        then.connect().topics()
    assert listing(then.root / "data") == before


def test_a_partition_of_a_later_format_is_refused_and_left_as_it_was_while_others_work(then: Past):
    with then.connect() as client:
        directories = {topic: client.topic(topic).partitions[0].directory for topic in past.TOPICS}
    segments = sorted((then.root / "data" / directories["orders"]).glob("*.segment"))
    raise_version(segments[-1])
    before = listing(segments[-1].parent)
    with then.connect() as client:
        with pytest.raises(penstock.Error, match="upgrade it"):
            client.read("orders", 0, 0)
        assert past.values(client, "flights") == then.seen["topics"]["flights"]
    assert listing(segments[-1].parent) == before


def test_a_log_of_a_later_format_is_refused(then: Past):
    raise_version(max((then.root / "log").glob("*.segment")))
    with pytest.raises(NewerFormat, match="upgrade it"):
        penstock.Log(then.root / "log")
