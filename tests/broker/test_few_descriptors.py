"""A broker that may open few files: what does not fit is refused, the rest goes on, nothing acknowledged is lost."""

from __future__ import annotations

import os
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from penstock.broker import ServeConfig, frugal_files
from penstock.broker.frugal_files import LOG_FILES, PEERS_MOST, FrugalFiles, connection_room, peer_room
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from penstock.transport.descriptors import PUSH_DESCRIPTORS
from support.processes import Serving
from support.raw_client import RawClient

BATCH = bytes(encode([b"x"]))


IN_USE = 20


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Files count from IN_USE on: this process has `shift` descriptors more, with none free below the last one."""
    last = max(map(int, os.listdir("/proc/self/fd")))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < last:
        held.append(os.dup(held[0]))
    beyond, lowest = held[-1] + 1 - IN_USE, frugal_files._lowest_free
    monkeypatch.setattr(frugal_files, "_lowest_free", lambda: (lowest() or 0) - beyond)
    yield beyond
    for descriptor in held:
        os.close(descriptor)


def test_files_stop_before_the_limit_and_go_on_when_some_are_closed(tmp_path: Path, shift: int):
    files = FrugalFiles((IN_USE + 8) * 8 // 5, always="/none/")  # three eighths are left to others
    opened = []
    with pytest.raises(StorageFull, match="ulimit"):
        opened.extend(files.create(f"{tmp_path}/{number}") for number in range(100))
    assert 0 < len(opened) < 20
    assert not (tmp_path / str(len(opened))).exists()
    opened.pop().close()
    files.create(f"{tmp_path}/again").close()
    for file in opened:
        file.close()


def test_what_is_open_for_convenience_gives_way_to_other_files(tmp_path: Path, shift: int):
    files = FrugalFiles((IN_USE + 8) * 8 // 5, always="/none/")
    convenient, opened = [], []
    with pytest.raises(StorageFull):
        convenient.extend(files.create(f"{tmp_path}/{number}") for number in range(100))

    def give_way() -> bool:
        if convenient:
            convenient.pop().close()
            return True
        return False

    files.give_way, most = give_way, len(convenient)
    with pytest.raises(StorageFull, match=r"raise its limit \(ulimit -n\), or delete topics"):
        opened.extend(files.create(f"{tmp_path}/other{number}") for number in range(100))
    assert len(opened) == most
    for file in opened:
        file.close()


def test_another_log_is_counted_beside_those_that_have_to_open_their_files_yet(shift: int):
    files = FrugalFiles(limit := (IN_USE + 20) * 2, always="/none/")
    most = limit - limit // 4 - 2 * (limit // 16)
    room = (most - IN_USE - 1) // 2
    files.check_log(room)
    with pytest.raises(StorageFull, match=f"cannot open another log: this process may have {limit} open files"):
        files.check_log(room + 1)


def test_the_metadata_log_opens_its_files_and_rolls_when_no_other_log_may_be_opened(tmp_path: Path, shift: int):
    (tmp_path / "metadata").mkdir()
    for name in ("there", "metadata/there", "metadata/index"):
        (tmp_path / name).touch()
    files = FrugalFiles((IN_USE + 20) * 2, always=f"{tmp_path}/metadata/")
    opened = []

    for write in (True, False):
        with pytest.raises(StorageFull):
            opened.extend(files.open(f"{tmp_path}/there", write=write) for _ in range(100))
    opened += [files.open(f"{tmp_path}/metadata/{name}", write=True) for name in ("there", "index")]
    opened += [files.create(f"{tmp_path}/metadata/{name}") for name in ("rolled", "its index")]
    for file in opened:
        file.close()


def test_connections_leave_the_place_of_the_metadata_log(tmp_path: Path, shift: int):
    limit = 400
    files, room = FrugalFiles(limit, always=f"{tmp_path}/"), connection_room(limit)
    last = next(number for number in range(limit, 0, -1) if room.take(number))
    held = os.open(os.devnull, os.O_RDONLY)
    opened = [held]
    while opened[-1] - shift < last:
        opened.append(os.dup(held))
    written = [files.create(f"{tmp_path}/{number}") for number in range(2 * LOG_FILES)]
    with pytest.raises(StorageFull, match="the last 40 are for"):
        files.create(f"{tmp_path}/more")
    for file in written:
        file.close()
    for descriptor in opened:
        os.close(descriptor)


@pytest.mark.parametrize(("limit", "most"), [(256, 16), (16 * PEERS_MOST, PEERS_MOST), (1 << 20, PEERS_MOST)])
def test_other_nodes_have_a_share_of_the_descriptors_that_no_client_takes(limit: int, most: int):
    room = peer_room(limit)
    assert [room.take(number) for number in range(most + 1)] == [True] * most + [False]
    assert not peer_room(limit).take(limit - 1), "the last ones are for what is in progress"


@contextmanager
def soft_limit(most: int) -> Iterator[int]:
    """What is started in the block may open so many files, unless it asks for more. Gives the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_and_its_keeper_take_the_hard_limit_whatever_the_soft_one_is(tmp_path: Path):
    with soft_limit(256) as hard:
        serving = Serving(ServeConfig(data=str(tmp_path / "data"), board_rows=64), wait=False)
    with serving:
        serving.wait_ready()
        for role in ("broker", "keeper"):
            assert resource.prlimit(serving.pid(role), resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize("limit", [80])
def test_a_broker_short_of_descriptors_refuses_what_does_not_fit_and_serves_the_rest(tmp_path: Path, limit: int):
    config = ServeConfig(data=str(tmp_path / "data"), board_rows=64, limit_files=limit)
    serving = Serving(config, wait=False)
    with serving:
        serving.wait_ready()
        with RawClient(serving.url) as client:
            acknowledged: dict[bytes, int] = {}
            refused = 0
            for number in range(60):
                created = client.try_topic(f"t{number}")
                if isinstance(created, m.Failure):
                    assert created.code == "storage_full", created
                    refused += 1
                    continue
                topic = created.topics[0].topic
                answer = client.produce(topic, bytes(encode([b"x"])))
                if isinstance(answer, m.Failure):
                    assert answer.code == "storage_full", answer
                    refused += 1
                else:
                    acknowledged[topic] = 1
            assert refused > 0
            assert len(acknowledged) > 3
            for topic in acknowledged:
                answer = client.produce(topic, bytes(encode([b"x"])))
                assert isinstance(answer, m.Produced), answer
        assert serving.end() == 0
    with Serving(ServeConfig(data=config.data, board_rows=64)) as again, RawClient(again.url) as client:
        assert {topic: len(client.read_all(topic, 0)) for topic in acknowledged} == dict.fromkeys(acknowledged, 2)


def test_a_broker_at_its_limit_starts_again_and_can_write_to_all_it_made(tmp_path: Path):
    config = ServeConfig(data=str(tmp_path / "data"), board_rows=64, limit_files=100)
    topics: list[bytes] = []
    with Serving(config) as serving, RawClient(serving.url) as client:
        while isinstance(created := client.try_topic(f"t{len(topics)}"), m.Topics):
            topics.append(created.topics[0].topic)
            assert isinstance(client.produce(topics[-1], BATCH), m.Produced)
        assert isinstance(created, m.Failure)
        assert created.code == "storage_full"
        assert len(topics) > 10
        assert serving.end() == 0
    for written in (2, 3):
        with Serving(config) as again, RawClient(again.url) as client:
            assert "unavailable" not in again.errors()
            assert isinstance(client.try_topic("another"), m.Failure), "no log is open yet, and all will be"
            for topic in topics:
                assert isinstance(client.produce(topic, BATCH), m.Produced)
            assert [len(client.read_all(topic, 0)) for topic in topics] == [written] * len(topics)


def test_a_broker_with_fewer_descriptors_than_before_serves_what_it_can_and_says_the_way_out(tmp_path: Path):
    config = ServeConfig(data=str(tmp_path / "data"), board_rows=64, limit_files=160)
    with Serving(config) as serving, RawClient(serving.url) as client:
        topics = [client.create_topic(f"t{number}") for number in range(40)]
        assert all(isinstance(client.produce(topic, BATCH), m.Produced) for topic in topics)
    fewer = msgspec.structs.replace(config, limit_files=60)
    with Serving(fewer) as serving, RawClient(serving.url) as client:
        assert [len(client.read_all(topic, 0)) for topic in topics] == [1] * len(topics)
        answers = [client.produce(topic, BATCH) for topic in topics]
        refused = [answer for answer in answers if isinstance(answer, m.Failure)]
        assert 0 < len(refused) < len(topics)
        assert {answer.code for answer in refused} == {"storage_full"}
        assert "this process may have 60 open files" in refused[0].message
        assert "raise its limit (ulimit -n), or delete topics" in refused[0].message
        taken = [topic for topic, answer in zip(topics, answers, strict=True) if isinstance(answer, m.Produced)]
        assert all(len(client.read_all(topic, 0)) == 2 for topic in taken)
        assert serving.end() == 0


@pytest.mark.parametrize("limit", [60, 61, 100])
def test_topics_can_be_deleted_when_writers_have_all_the_files_they_may(tmp_path: Path, limit: int):
    config = ServeConfig(data=str(tmp_path / "data"), board_rows=64, limit_files=160)
    with Serving(config) as serving, RawClient(serving.url) as client:
        topics = [client.create_topic(f"t{number}") for number in range(40)]
        assert all(isinstance(client.produce(topic, BATCH), m.Produced) for topic in topics)
    with Serving(msgspec.structs.replace(config, limit_files=limit)) as serving, RawClient(serving.url) as client:
        assert isinstance([client.produce(topic, BATCH) for topic in topics][-1], m.Failure)
        for topic in (topics[-2], topics[0], topics[1]):
            answer, _ = client.ask(lambda request, topic=topic: m.DeleteTopic(request, topic))
            assert isinstance(answer, m.Done), answer
        assert isinstance(client.produce(topics[-1], BATCH), m.Produced), "two of those deleted had files open"
        assert serving.end() == 0
    with Serving(config) as serving, RawClient(serving.url) as client:
        answer, _ = client.ask(lambda request: m.ListTopics(request, []))
        assert {each.topic for each in answer.topics} == set(topics[2:-2]) | {topics[-1]}


QUIET_S = 0.5
LIMIT = 256


@pytest.mark.parametrize("listen", ["unix://PATH", "ipc://PATH", "tcp://127.0.0.1:0"])
def test_connections_beyond_the_limit_are_refused_and_those_before_are_served(tmp_path: Path, listen: str):
    listen = listen.replace("PATH", f"{tmp_path}/s")
    config = ServeConfig(data=str(tmp_path / "data"), listen=(listen,), board_rows=64, limit_files=LIMIT)
    with Serving(config) as serving, RawClient(serving.url) as client:
        topic = client.create_topic("t")
        broker = serving.pid("broker")
        flood: list[socket.socket] = []
        while len(flood) < LIMIT:
            flood += [stranger(serving.url) for _ in range(16)]
            client.ask(lambda request: m.Ping(request))
        while isinstance(answer := client.produce(topic, bytes(encode([b"x"]))), m.Failure):
            assert answer.retry, "libzmq has accepted some that the broker is about to refuse"
        used = processor_s(broker)
        select.select([], [], [], QUIET_S)
        assert processor_s(broker) - used < QUIET_S / 2, "it spins"
        assert isinstance(client.try_topic("another"), m.Topics), "what is left is for files"
        for connection in flood:
            connection.close()
        with RawClient(serving.url) as late:
            assert isinstance(late.produce(topic, bytes(encode([b"x"]))), m.Produced)
        assert len(client.read_all(topic, 0)) == 2
        assert serving.process.poll() is None
        assert not serving.watch(0.0) or serving.pid("broker") == broker
        assert "raise its limit (ulimit -n)" in serving.errors()


def stranger(url: str) -> socket.socket:
    """A connection that says nothing."""
    scheme, _, place = url.partition("://")
    if scheme == "tcp":
        host, port = place.rsplit(":", 1)
        return socket.create_connection((host, int(port)))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    return connection


def processor_s(pid: int) -> float:
    """Processor time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("listen", ["ipc://PATH", "tcp://127.0.0.1:0"])
def test_push_members_beyond_the_limit_are_delivered_to_over_their_connection(tmp_path: Path, listen: str):
    listen = listen.replace("PATH", f"{tmp_path}/s")
    config = ServeConfig(data=str(tmp_path / "data"), listen=(listen,), board_rows=64, limit_files=LIMIT)
    with Serving(config) as serving, RawClient(serving.url) as client:
        topic = client.create_topic("t")
        broker = serving.pid("broker")
        for _ in range(2):
            joined = [join(client, topic) for _ in range(60)]
            ways = [session.endpoint != "" for session in joined]
            assert ways == sorted(ways, reverse=True), "those that come first have one of their own"
            assert 30 < sum(ways) <= LIMIT // 2 // PUSH_DESCRIPTORS
            assert isinstance(client.produce(topic, bytes(encode([b"x"]))), m.Produced)
            for session in joined:
                client.ask(lambda request, session=session: m.Leave(request, session.session))
        assert not serving.watch(0.0) or serving.pid("broker") == broker
        assert "no socket for a delivery" in serving.errors()


def join(client: RawClient, topic: bytes) -> m.Joined:
    answer, _ = client.ask(lambda request: m.Join(request, topic, "", "", "push", -2, [], 30_000, 1 << 20, 1000))
    return answer
