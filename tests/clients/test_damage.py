"""What readers of every kind make of what cannot be decoded: good records come, damage is said once, with its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from penstock.clients.embedded import local
from penstock.errors import BadChecksum, Corrupt, Error, MissingCodec
from penstock.storage.files import Files
from penstock.storage.layout import mark_from_row, word
from penstock.storage.reader import LogReader
from penstock.storage.segment import NEWEST_BYTES_MAX, write_mark
from support.unjudged import hidden_codec

PATIENCE_S = 60.0

HEADER, VALUE = -100, 0
"""Where to damage a batch of one record, from its value on."""

DAMAGED = "records 1 to 1 of partition 0 of topic {} are damaged"


class World:
    """A topic of one address, with a client of each way of waiting."""

    def __init__(self, dial: Callable[..., Any], url: str, topic: str, folder: Path, delivery: str) -> None:
        self.url = url
        self.name = topic
        self.delivery = delivery
        self.client = dial(url)
        self.topic = self.client.create_topic(topic)
        self._folder = folder

    def send(self, *values: bytes, codec: str = "none") -> None:
        """Each as a batch of its own."""
        with self.client.producer(self.name, codec=codec) as producer:
            for value in values:
                producer.send(value)

    def spoil(self, value: bytes, at: int) -> None:
        """Flip a bit of the log where the batch of a value stands."""
        for path in self._segments():
            data = path.read_bytes()
            if value in data:
                with path.open("r+b") as file:
                    file.seek(data.index(value) + at)
                    file.write(bytes([data[data.index(value) + at] ^ 1]))
                return
        raise AssertionError(f"{value!r} stands in no segment")

    def mark(self) -> None:
        """Say in the log how far it is durable, as the keeper does a moment later."""
        files: Any = local._brokers[self.url]._store.files if self.url.startswith("mem") else Files()  # type: ignore
        paths = files.contents if self.url.startswith("mem") else map(str, self._folder.rglob("*.segment"))
        (path,) = (path for path in paths if path.endswith("0001.segment") and "topics" in path)
        reader = LogReader(path.rpartition("/")[0], files)
        seq, log_id = reader.limit(), reader.segment(reader.names[-1]).log_id
        row = reader.row(seq)
        assert row is not None
        assert log_id is not None
        file = files.open(path, write=True)
        write_mark(file, mark_from_row(log_id, word(1, seq), row))
        file.close()
        reader.close()

    def _segments(self) -> list[Any]:
        if self.url.startswith("mem"):
            contents = local._brokers[self.url]._store.files.contents  # type: ignore[attr-defined]
            return [InMemory(contents[name]) for name in contents if name.endswith(".segment")]
        return list(self._folder.rglob("*.segment"))

    def consumer(self, **how: Any) -> Any:
        return self.client.consumer(self.name, delivery=self.delivery, session_timeout=60, **how)


class InMemory:
    """A file of `mem://` with the manners of a path, as far as `spoil` needs."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def read_bytes(self) -> bytes:
        return bytes(self._content.data)

    def open(self, mode: str) -> InMemory:
        return self

    def __enter__(self) -> InMemory:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def seek(self, place: int) -> None:
        self._place = place

    def write(self, data: bytes) -> None:
        self._content.data[self._place : self._place + len(data)] = data


KINDS = ["mem auto", "file auto", "unix mapped", "unix push", "unix control", "ipc push"]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, dial: Callable[..., Any], topic: str, tmp_path: Path) -> World:
    """Every kind of delivery."""
    scheme, delivery = request.param.split()
    if scheme == "mem":
        return World(dial, f"mem://{topic}", topic, tmp_path, delivery)
    if scheme == "file":
        return World(dial, f"file://{tmp_path}/data", topic, tmp_path, delivery)
    serving = request.getfixturevalue("serving")
    url = next(address for address in serving.ready["listen"] if address.startswith(scheme))
    found = World(dial, url, topic, serving._data, delivery)
    found._folder = serving._data / "topics" / found.client.topic(topic).id
    return found


def by_fetch(consumer: Any) -> list[bytes]:
    return [record.value for record in consumer.fetch(100, wait=PATIENCE_S)]


def by_one(consumer: Any) -> list[bytes]:
    return [next(iter(consumer)).value]


def by_list(consumer: Any) -> list[bytes]:
    return [record.value for record in next(consumer.batches(wait=PATIENCE_S))]


def by_arrow(consumer: Any) -> list[bytes]:
    return next(consumer.batches("arrow", wait=PATIENCE_S)).column("value").to_pylist()


def by_numpy(consumer: Any) -> list[bytes]:
    return next(consumer.batches("numpy", wait=PATIENCE_S)).values()


WAYS = [by_fetch, by_one, by_list, by_arrow, by_numpy]


def read(consumer: Any, way: Callable[[Any], list[bytes]], last: bytes) -> list[Any]:
    """Values up to `last`, and errors in their places."""
    found: list[Any] = []
    while not found or found[-1] != last:
        try:
            found += way(consumer)
        except Error as error:
            found.append(error)
            assert len(found) < 20, "the consumer is stuck"
    return found


def told(found: list[Any]) -> list[Any]:
    """With errors about a place as that place."""
    return [each.next_offset if isinstance(each, Corrupt) else each for each in found]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [VALUE, HEADER])
def test_good_records_come_around_damage_which_is_said_once(world: World, way: Any, place: int):
    world.send(b"before", b"spoiled-" + world.name.encode(), b"behind", b"last")
    world.spoil(b"spoiled-" + world.name.encode(), place)
    with world.consumer() as consumer:
        found = read(consumer, way, b"last")
    assert told(found) == [b"before", 2, b"behind", b"last"]
    assert DAMAGED.format(world.name) in found[1].message


def test_damage_at_the_end_is_said_once_and_what_is_written_later_comes(world: World):
    spoiled = b"spoiled-" + world.name.encode()
    world.send(b"before", spoiled + bytes(NEWEST_BYTES_MAX))  # else the broker has it in memory
    world.mark()
    world.spoil(spoiled, HEADER)
    with world.consumer() as consumer:
        assert by_fetch(consumer) == [b"before"]
        with pytest.raises(Corrupt, match="damaged") as raised:
            by_fetch(consumer)
        assert raised.value.next_offset == 2
        assert consumer.fetch(100, wait=0) == []
        world.send(b"behind")
        assert by_fetch(consumer) == [b"behind"]


def test_a_commit_covers_damage_once_it_was_said_and_not_before(world: World):
    world.send(b"before", b"spoiled-" + world.name.encode(), b"behind")
    world.spoil(b"spoiled-" + world.name.encode(), VALUE)
    with world.consumer(group="g") as consumer:
        assert by_fetch(consumer) == [b"before"]
        consumer.commit()
    with world.consumer(group="g") as consumer:
        with pytest.raises(Corrupt):
            by_fetch(consumer)
        assert consumer.position == {0: 2}
        consumer.commit()
    with world.consumer(group="g") as consumer:
        assert by_fetch(consumer) == [b"behind"]


@pytest.mark.parametrize("way", WAYS)
def test_records_of_a_codec_that_is_not_installed_wait_for_it(world: World, way: Any):
    world.send(b"before")
    world.send(b"packed", codec="zstd")
    world.send(b"last")
    with world.consumer(group="g") as consumer:
        with hidden_codec():
            assert way(consumer) == [b"before"]
            for _ in range(3):
                with pytest.raises(MissingCodec, match="pip install"):
                    way(consumer)
            assert consumer.position == {0: 1}
            consumer.commit()
        assert read(consumer, way, b"last") == [b"packed", b"last"]


def test_a_consumer_that_begins_in_a_damaged_place_says_so_and_goes_on(world: World):
    world.send(b"spoiled-" + world.name.encode(), b"behind", b"last")
    world.spoil(b"spoiled-" + world.name.encode(), HEADER)
    with world.consumer() as consumer:
        assert told(read(consumer, by_fetch, b"last")) == [1, b"behind", b"last"]


def test_a_read_says_what_is_damaged_after_what_is_good(world: World):
    name, spoiled = world.name, b"spoiled-" + world.name.encode()
    world.send(b"before", spoiled, b"behind")
    world.send(b"packed", codec="zstd")
    world.spoil(spoiled, VALUE)
    assert [record.value for record in world.client.read(name, 0, 0)] == [b"before"]
    for offset in (1, 1):
        with pytest.raises(BadChecksum, match=DAMAGED.format(name)) as caught:
            world.client.read(name, 0, offset)
        assert caught.value.next_offset == 2
    with hidden_codec():
        assert [record.value for record in world.client.read(name, 0, 2)] == [b"behind"]
        with pytest.raises(MissingCodec):
            world.client.read(name, 0, 3)
    assert [record.value for record in world.client.read(name, 0, 2)] == [b"behind", b"packed"]


def test_a_read_says_what_the_broker_cannot_read(world: World):
    name, spoiled = world.name, b"spoiled-" + world.name.encode()
    world.send(b"before", spoiled, b"behind", b"last")
    world.spoil(spoiled, HEADER)
    assert [record.value for record in world.client.read(name, 0, 0)] == [b"before"]
    with pytest.raises(Corrupt) as caught:
        world.client.read(name, 0, 1)
    assert [record.value for record in world.client.read(name, 0, caught.value.next_offset)] == [b"behind", b"last"]
