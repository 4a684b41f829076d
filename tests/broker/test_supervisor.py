"""The supervisor with real children: what it says, what it refuses, and what it does when one of them dies."""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from penstock.broker import ServeConfig, broker_process
from penstock.broker import supervisor as supervisor_module
from penstock.broker.children import Child
from penstock.broker.config import KeeperOptions
from penstock.broker.errors import CannotStart
from penstock.broker.poller import milliseconds
from penstock.broker.stop import SAME_STOP_S, Stop
from penstock.broker.supervisor import RestartPause, Supervisor
from penstock.clients import connect
from penstock.storage.batch import encode
from penstock.storage.errors import Error
from penstock.transport import messages as m
from support.processes import Serving
from support.raw_client import RawClient


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    return ServeConfig(
        data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/s", "tcp://127.0.0.1:0"), board_rows=32,
        restart_first_s=0.01, restart_most_s=0.1, keeper=KeeperOptions(quiet_s=0.05),
    )  # fmt: skip


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(config: ServeConfig, *, wait: bool = True) -> Serving:
        started.append(Serving(config, wait=wait))
        return started[-1]

    yield start
    for serving in started:
        serving.close()


Serve = Callable[..., Serving]


def refusal(serve: Serve, config: ServeConfig) -> str:
    """What a start that is refused says; it says one line and nothing else."""
    serving = serve(config, wait=False)
    assert serving.process.wait(20.0) == 1
    lines = serving.errors().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_a_start_that_the_system_refuses_names_the_file(serve: Serve, config: ServeConfig) -> None:
    serve(config).close()
    promises = Path(config.data) / "promises"
    promises.unlink(missing_ok=True)
    promises.mkdir()
    assert f"{promises}: is a directory where a file belongs: move it away" in refusal(serve, config)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(*pids: int) -> bool:
    """Whether these processes end soon."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended = bool(select.select([fd], [], [], 10.0)[0])
        os.close(fd)
        if not ended:
            return False
    return True


def produce_one(client: RawClient, topic: bytes, value: bytes) -> m.Produced:
    answer = client.produce(topic, bytes(encode([value])))
    assert isinstance(answer, m.Produced), answer
    return answer


# -- in good order ------------------------------------------------------------------------------------


def test_it_says_where_it_serves_and_who_does_and_ends_with_0(serve: Serve, config: ServeConfig):
    serving = serve(config)
    ready = serving.ready
    assert set(ready) == {"event", "listen", "advertise", "data", "pids"}
    assert (ready["event"], ready["data"]) == ("ready", config.data)
    assert ready["listen"][0] == config.listen[0]
    assert ready["listen"][1].startswith("tcp://127.0.0.1:")
    assert not ready["listen"][1].endswith(":0")
    assert set(ready["pids"]) == {"broker", "keeper"}
    assert all(map(is_running, ready["pids"].values()))
    assert serving.end() == 0
    assert serving.errors() == ""
    assert not any(map(is_running, ready["pids"].values()))


def test_records_are_there_after_a_restart_and_both_addresses_serve(serve: Serve, config: ServeConfig):
    first = serve(config)
    with RawClient(first.ready["listen"][1]) as client:
        topic = client.create_topic("t")
        produce_one(client, topic, b"one")
    assert first.end() == 0
    second = serve(config)
    with RawClient(second.ready["listen"][0]) as client:
        assert client.read_all(topic, 0) == [b"one"]
        assert produce_one(client, topic, b"two").offset == 1


def test_a_clean_end_leaves_no_shared_memory_no_socket_and_clean_marks(serve: Serve, config: ServeConfig):
    serving = serve(config)
    with RawClient(serving.url) as client:
        produce_one(client, client.create_topic("t"), b"one")
    board = (Path(config.data) / "board").read_text()
    assert Path(f"/dev/shm{board}").exists()
    assert serving.end() == 0
    assert not Path(f"/dev/shm{board}").exists()
    assert not Path(config.listen[0].removeprefix("unix://")).exists()
    from penstock.storage.files import Files
    from penstock.storage.verify import verify

    for log in Path(config.data).glob("topics/*/*"):
        assert verify(Files(), str(log)).clean


def test_the_default_address_is_a_socket_in_the_data_directory(serve: Serve, config: ServeConfig):
    serving = serve(ServeConfig(data=config.data, board_rows=32))
    assert serving.ready["listen"] == [f"unix://{config.data}/broker.sock"]
    assert Path(config.data).stat().st_mode & 0o777 == 0o700


def test_a_broker_that_listens_on_unix_only_does_not_load_zeromq(serve: Serve, config: ServeConfig):
    serving = serve(ServeConfig(data=config.data, board_rows=32))
    assert "libzmq" not in Path(f"/proc/{serving.pid('broker')}/maps").read_text()


# -- refusals -----------------------------------------------------------------------------------------


def test_a_directory_in_use_is_refused_and_the_endpoint_named(serve: Serve, config: ServeConfig):
    serve(config)
    said = refusal(serve, ServeConfig(data=config.data, listen=("tcp://127.0.0.1:0",), board_rows=32))
    assert config.listen[0] in said


def test_an_address_in_use_is_refused(serve: Serve, config: ServeConfig, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        assert address in refusal(serve, ServeConfig(data=config.data, listen=(address,), board_rows=32))
    serve(config)
    other = ServeConfig(data=str(tmp_path / "other"), listen=config.listen, board_rows=32)
    assert f"listens on {tmp_path}/s" in refusal(serve, other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"format": 3, "node": "a", "cluster": "b"}, "format 3"),
        ({"format": 1}, "node"),
        ("not json", "cannot be read"),
    ],
)
def test_a_foreign_or_newer_directory_is_refused_and_left_alone(
    serve: Serve, config: ServeConfig, content: object, words: str
):
    data = Path(config.data)
    data.mkdir()
    text = content if isinstance(content, str) else json.dumps(content)
    (data / "node.json").write_text(text)
    assert words in refusal(serve, config)
    assert sorted(each.name for each in data.iterdir()) == ["node.json"]
    assert (data / "node.json").read_text() == text


def test_a_directory_of_something_else_is_refused_and_left_alone(serve: Serve, config: ServeConfig):
    data = Path(config.data)
    data.mkdir()
    (data / "photo.jpg").write_text("x")
    assert "photo.jpg" in refusal(serve, config)
    assert [each.name for each in data.iterdir()] == ["photo.jpg"]


def test_a_directory_of_another_node_is_refused(serve: Serve, config: ServeConfig):
    serve(config).end()
    said = refusal(serve, ServeConfig(data=config.data, node_id="f" * 32, board_rows=32))
    assert "f" * 32 in said


def test_a_board_that_does_not_fit_into_shared_memory_is_refused_with_the_size(serve: Serve, config: ServeConfig):
    rows = 1 << 34
    said = refusal(serve, ServeConfig(data=config.data, board_rows=rows))
    assert str(rows * 256)[:5] in said
    assert "/dev/shm" in said


READ_ONLY_SHM = ["unshare", "--mount", "sh", "-c", 'mount --bind -o ro /dev/shm /dev/shm && exec "$@"', "sh"]


@pytest.fixture
def mounts() -> None:
    """Skips where a process may not mount for itself."""
    if shutil.which(READ_ONLY_SHM[0]) is None:
        pytest.skip(f"{READ_ONLY_SHM[0]} of util-linux is not installed")
    tried = subprocess.run([*READ_ONLY_SHM, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"a process may not mount for itself here: {tried.stderr.strip()}")


@pytest.mark.usefixtures("mounts")
def test_where_shared_memory_cannot_be_had_a_plain_file_serves(real_disk: Path):
    config = ServeConfig(data=f"{real_disk}/data", listen=(f"unix://{real_disk}/s",), board_rows=32)
    with closing(Serving(config, under=READ_ONLY_SHM)) as serving:
        assert (Path(config.data) / "board").read_text() == f"{config.data}/board.shared"
        with connect(serving.url) as client:
            client.create_topic("t")
            with client.consumer("t", delivery="mapped") as consumer, client.producer("t") as producer:
                producer.send(b"one")
                assert [record.value for record in consumer.fetch(wait=20)] == [b"one"]


def test_an_address_that_other_machines_reach_needs_a_word(config: ServeConfig):
    wide = ServeConfig(data=config.data, listen=("tcp://0.0.0.0:0",))
    with pytest.raises(Error, match="other machines"):
        wide.addresses()
    allowed = ServeConfig(data=config.data, listen=("tcp://0.0.0.0:0",), insecure=True)
    assert allowed.addresses() == ("tcp://0.0.0.0:0",)


# -- children that die ----------------------------------------------------------------------------------


def test_a_keeper_that_dies_is_replaced_and_the_broker_stays(serve: Serve, config: ServeConfig):
    serving = serve(config)
    broker, keeper = serving.pid("broker"), serving.pid("keeper")
    with RawClient(serving.url) as client:
        topic = client.create_topic("t")
        produce_one(client, topic, b"0")
        before = serving.ready
        os.kill(keeper, signal.SIGKILL)
        produce_one(client, topic, b"1")
        serving.wait_ready(other_than=before)
        produce_one(client, topic, b"2")
        assert client.read_all(topic, 0) == [b"0", b"1", b"2"]
        assert client.socket.connections == 1
    assert serving.pid("broker") == broker
    assert serving.pid("keeper") != keeper
    assert serving.end() == 0


def test_a_broker_that_dies_is_replaced_with_its_keeper_and_loses_nothing(serve: Serve, config: ServeConfig):
    serving = serve(config)
    before = serving.ready
    with RawClient(serving.url) as client:
        topic = client.create_topic("t")
        produce_one(client, topic, b"0")
        os.kill(serving.pid("broker"), signal.SIGKILL)
        serving.wait_ready(other_than=before)
        assert gone(*before["pids"].values())
        assert produce_one(client, topic, b"1").offset == 1
    assert serving.ready["listen"][0] == before["listen"][0]
    assert serving.end() == 0


def test_a_keeper_that_does_nothing_is_replaced_after_the_stated_time(serve: Serve, tmp_path: Path):
    config = ServeConfig(
        data=str(tmp_path / "data"), board_rows=32, keeper_timeout_s=0.3, restart_first_s=0.01, restart_most_s=0.1
    )
    serving = serve(config)
    keeper, before = serving.pid("keeper"), serving.ready
    with RawClient(serving.url) as client:
        topics = [client.create_topic(f"t{number}") for number in range(3)]
        os.kill(keeper, signal.SIGSTOP)
        requests = []
        for topic in topics * 4:  # more than an idle broker would sync by itself
            requests.append(client.next_request())
            message = m.Produce(requests[-1], topic, 0)
            client.socket.send([*_frames(message, bytes(encode([bytes(20_000)])))])
        serving.wait_ready(other_than=before)
        assert [len(client.read_all(topic, 0)) for topic in topics] == [4, 4, 4]
    assert serving.pid("keeper") != keeper
    assert not is_running(keeper)
    assert "replacing" in serving.errors()


def test_the_children_end_with_their_supervisor(serve: Serve, config: ServeConfig):
    serving = serve(config)
    with RawClient(serving.url) as client:
        topic = client.create_topic("t")
        produce_one(client, topic, b"0")
    serving.process.kill()
    serving.process.wait()
    assert gone(*serving.ready["pids"].values())
    again = serve(config)
    with RawClient(again.url) as client:
        assert client.read_all(topic, 0) == [b"0"]


def test_a_broker_that_is_busy_ends_with_its_supervisor_as_well(serve: Serve, config: ServeConfig):
    serving = serve(config)
    os.kill(serving.pid("broker"), signal.SIGSTOP)  # it gets to no signal and no message, as in a turn of minutes
    serving.process.kill()
    serving.process.wait()
    assert gone(*serving.ready["pids"].values())
    assert serve(msgspec.structs.replace(config, listen=tuple(serving.ready["listen"]))).end() == 0


def test_children_keep_freed_memory_unless_told_otherwise(serve: Serve, config: ServeConfig, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    serving = serve(config)
    found = Path(f"/proc/{serving.pid('broker')}/environ").read_bytes().split(b"\0")
    assert b"MALLOC_TRIM_THRESHOLD_=131072" in found
    assert b"MALLOC_MMAP_THRESHOLD_=%d" % (32 << 20) in found


def test_a_broker_that_cannot_come_back_ends_the_supervisor_with_the_reason(serve: Serve, config: ServeConfig):
    serving = serve(config)
    (Path(config.data) / "node.json").write_text('{"format": 9}')
    os.kill(serving.pid("broker"), signal.SIGKILL)
    assert serving.process.wait(120.0) == 1
    assert "format 9" in serving.errors().splitlines()[-1]


def test_a_stopped_broker_is_killed_when_it_does_not_drain_in_time(serve: Serve, config: ServeConfig, tmp_path: Path):
    serving = serve(ServeConfig(data=str(tmp_path / "d"), board_rows=32, drain_s=0.2, keeper_timeout_s=5.0))
    os.kill(serving.pid("broker"), signal.SIGSTOP)
    assert serving.end() == 1
    assert gone(*serving.ready["pids"].values())
    assert serve(ServeConfig(data=str(tmp_path / "d"), board_rows=32)).end() == 0


@pytest.mark.parametrize(
    ("told_at", "says"),
    [
        (
            [0.0, SAME_STOP_S],
            "told again to stop while the broker drains: killing it; the next start recovers its logs",
        ),
        ([0.0, 0.3], "the broker did not drain in 0.2 s: killing it; the next start recovers its logs"),
    ],
)
def test_a_broker_that_is_killed_in_a_drain_is_killed_for_a_stated_reason(
    tmp_path: Path, told_at: list[float], says: str
) -> None:
    said: list[str] = []
    drain_s = 0.2 if "0.2" in says else 60.0
    supervisor = Supervisor(ServeConfig(data=str(tmp_path / "d"), board_rows=32, drain_s=drain_s), say=said.append)
    broker = supervisor.start()["pids"]["broker"]
    supervisor._stop = Stop(iter(told_at).__next__)
    try:
        os.kill(broker, signal.SIGSTOP)
        for _ in told_at:
            supervisor.stop()
        assert supervisor._drain() == 1
    finally:
        supervisor._end_all()
    assert said == [says]


def test_a_directory_that_cannot_be_made_is_refused_with_the_way_out() -> None:
    for code, way_out in (
        (errno.ENOENT, "penstock doctor looks at it"),
        (errno.EMFILE, "raise the limit of open files"),
    ):
        said = broker_process._refused(OSError(code, os.strerror(code), "/d/lock"), "/d")
        assert said.startswith(f"cannot start in /d: /d/lock: {os.strerror(code).lower()}: ")
        assert way_out in said
    with pytest.raises(CannotStart, match=r"cannot start in /proc/penstock: .*penstock doctor looks at it"):
        Supervisor(ServeConfig(data="/proc/penstock")).start()


def test_a_wait_may_be_longer_than_a_poll_can_be(tmp_path: Path) -> None:
    """As of drain_s=40d."""
    supervisor = Supervisor(ServeConfig(data=str(tmp_path / "d")))
    supervisor.stop()
    supervisor._turn(40 * 86400.0)
    assert [milliseconds(each) for each in (None, 0.0, 0.0001, 2.5, 40 * 86400.0)] == [None, 0, 1, 2500, 86_400_000]


def test_companions_and_broker_share_the_time_of_a_drain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither ends by itself."""
    now, killed = [100.0], list[tuple[str, float]]()

    def child(name: str) -> Any:
        def kill() -> None:
            killed.append((name, now[0]))

        process = SimpleNamespace(terminate=lambda: None, kill=kill, close=lambda: None, exit_code=None)
        return SimpleNamespace(process=process, end=kill) if name == "gateway" else process

    supervisor = Supervisor(ServeConfig(data=str(tmp_path / "d"), drain_s=30.0), say=lambda sentence: None)
    supervisor._companions, supervisor._broker = {"gateway": child("gateway")}, child("broker")
    monkeypatch.setattr(supervisor_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(supervisor, "_turn", lambda left: now.__setitem__(0, now[0] + left))
    assert supervisor._drain() == 1
    supervisor._end_all()
    assert killed == [("gateway", 115.0), ("broker", 130.0)]


def test_pauses_double_up_to_their_bound_and_start_over_after_a_long_life():
    pause = RestartPause(0.1, 1.0)
    assert [pause.after(0.5) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert pause.after(60.0) == 0.1


def _frames(message: m.Produce, payload: bytes) -> list[bytes]:
    from penstock.transport import codec

    return [bytes(frame) for frame in codec.frames(message, payload)]


def test_a_broker_that_a_signal_ended_before_it_served_is_said_to_be(
    config: ServeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote says nothing then."""
    supervisor = Supervisor(config)
    spawn = supervisor._spawn

    def spawn_and_kill(role: str, descriptors: dict[str, int]) -> Child:
        child = spawn(role, descriptors)
        if role == "broker":
            os.kill(child.pid, signal.SIGKILL)
        return child

    monkeypatch.setattr(supervisor, "_spawn", spawn_and_kill)
    with pytest.raises(CannotStart, match="ended by signal SIGKILL before it served"):
        supervisor.start()
