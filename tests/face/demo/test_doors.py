"""What redis-py and curl are given is what native readers are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import penstock
import pytest
from penstock.demo import doors
from penstock.demo.broker import Broker
from penstock.demo.doors import Pages, http_pages, redis_pages
from penstock.demo.stream import PARTITIONS
from penstock.storage.errors import MissingLibrary

CARRIERS = [b"UA", b"AA", b"B6", b"DL", b"EV"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With a topic of the demo."""
    try:
        doors.check()
    except MissingLibrary as missing:
        pytest.skip(missing.message)
    started = Broker(tmp_path_factory.mktemp("broker") / "data")
    try:
        started.wait()
        with penstock.connect(started.unix) as client:
            client.create_topic("flights", partitions=PARTITIONS)
            with client.producer("flights") as producer:
                producer.send_many([b"flight %d" % number for number in range(100)], keys=CARRIERS * 20)
        yield started
    finally:
        started.close()


@pytest.mark.parametrize("curl", [True, False])
@pytest.mark.parametrize(("door", "pages"), [("resp", redis_pages), ("http", http_pages)])
@pytest.mark.parametrize("most", [7, 10_000])
def test_a_door_gives_each_record_in_order(
    broker: Broker, door: str, pages: Callable[[str, str], Pages], curl: bool, most: int, monkeypatch
) -> None:
    monkeypatch.setattr(doors, "MOST", most)
    if not curl:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    found = list(pages(getattr(broker, door), "flights"))
    got = [(each.partition, each.offset, each.key, each.value) for page in found for each in page]
    with penstock.connect(broker.unix) as client:
        read = [record for number in range(PARTITIONS) for record in client.read("flights", number, 0, max_records=100)]
    assert got == [(each.partition, each.offset, each.key, each.value) for each in read]
    assert len(got) == 100


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_printed_can_be_typed(broker: Broker, number: int) -> None:
    command = doors.commands(broker.resp, broker.http, "flights", 3)[number]
    if not shutil.which(command.split()[0]):
        pytest.skip(f"there is no {command.split()[0]}")
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.count(b"flight ")) == (0, 3)


def test_a_demo_without_a_library_of_the_doors_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr(doors, "find_spec", lambda name: None if name == "redis" else name)
    with pytest.raises(MissingLibrary, match=r"the demo needs redis, .*pip install '\.\[demo\]'"):
        doors.check()
