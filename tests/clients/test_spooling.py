"""Spools: records are accepted without a broker, and each is stored by it once, in order, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from penstock import Spool
from penstock.broker.errors import UnknownTopic
from penstock.clients import InvalidArgument, TimedOut, connect
from penstock.clients.connection.steps import FOREVER, Pause
from penstock.clients.spooling import forwarding, spooled
from penstock.clients.spooling import spool as spool_module
from penstock.clients.spooling.forwarding import Forwarder, keep_forwarding
from penstock.storage import rolling_logs
from penstock.storage.errors import AlreadyOpen, Closed, Corrupt, RecordTooLarge
from support.interrupts import interrupts
from support.spools import forward_all, stands


def until(condition: Callable[[], bool]) -> None:
    """Wait for a thread, with a bound."""
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it never came")


NAME = f"spool-{'0' * 24}"
DAMAGES = [
    b"", b"\0" * 64, b"[]", b'{"name": 7}', b"{" * 5000,
    *(
        json.dumps({"name": name, "stored": stored, "ahead": ahead}).encode()
        for name, stored, ahead in [
            (NAME, -5, 0), (NAME, 2, 1), (NAME, 0, 1 << 60), (NAME, 1 << 60, 1 << 60), (NAME, 1 << 70, 1 << 70),
            (NAME, 0, (1 << 32) + 2), ("", 0, 0), ("a/b c", 0, 0),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_spool_whose_progress_is_damaged_says_so_and_is_let_go(damage, tmp_path):
    path = tmp_path / "s"
    with Spool(path) as spool:
        spool.send("t", b"waits")
    good = (path / spooled.PROGRESS).read_bytes()
    (path / spooled.PROGRESS).write_bytes(damage)
    for open_it in (Spool, lambda path: Forwarder(str(path))):
        with pytest.raises(Corrupt, match=r"forwarded\.json does not say .* restore it from a copy, or remove it"):
            open_it(path)
    (path / spooled.PROGRESS).write_bytes(good)
    with Forwarder(str(path)), Spool(path) as spool:
        assert spool.status().waiting == 1


def test_what_is_accepted_without_a_broker_is_stored_later(url, topic, tmp_path):
    with Spool(tmp_path / "s") as spool:
        spool.send(topic, b"0", key=b"k", headers={"h": b"v"}, timestamp=1_700_000_000_000_000)
        spool.send_many(topic, [b"1", b"2"], keys=[b"k", None], partition=1)
        assert spool.status().waiting == 3
        with connect(url) as client:
            client.create_topic(topic, partitions=2)
            assert forward_all(tmp_path / "s", client) == 3
            assert spool.status().waiting == 0
            spool.flush(timeout=0)
            found = [*client.read(topic, 0, 0), *client.read(topic, 1, 0)]
    assert {record.value for record in found} == {b"0", b"1", b"2"}
    first = next(record for record in found if record.value == b"0")
    assert (first.key, first.headers, first.timestamp) == (b"k", {"h": b"v"}, 1_700_000_000_000_000)
    assert [record.partition for record in found if record.value != b"0"] == [1, 1]


def test_the_time_of_a_record_is_when_it_was_accepted(penstock_client, tmp_path):
    penstock_client.create_topic("t")
    with Spool(tmp_path / "s") as spool:
        spool.send("t", b"v")
        accepted = spool._logs._logs[1].read(1, 1)[0].timestamp
        forward_all(tmp_path / "s", penstock_client)
    assert penstock_client.read("t", 0, 0)[0].timestamp == accepted


def test_a_forwarder_of_the_same_process_waits_for_its_broker(penstock_broker, tmp_path):
    with penstock_broker.connect() as client, Spool(tmp_path / "s", to=penstock_broker.url) as spool:
        spool.send("t", b"0")
        with pytest.raises(TimedOut, match=r"forwarding the spool .*: "):
            spool.flush(timeout=0.3)
        until(lambda: "topic" in spool.status().trouble)
        client.create_topic("t")
        spool.send("t", b"1")
        spool.flush(timeout=60)
        assert stands(client, "t") == [b"0", b"1"]
        assert spool.status().trouble == ""


@pytest.fixture
def impatient(monkeypatch):
    """The wait before a broker is said to be away, and that of `close`, are short; that for the broker is long."""
    monkeypatch.setattr(forwarding, "REACH_S", 0.01)
    monkeypatch.setattr(spool_module, "CLOSING_S", 0.01)
    monkeypatch.setattr(spool_module, "FORWARDER_TIMEOUT_S", 3600.0)


def test_a_spool_says_at_once_that_its_broker_is_away_and_closes_while_it_connects(impatient, tmp_path):
    nowhere = f"unix://{tmp_path}/nosuch.sock"
    with Spool(tmp_path / "s", to=nowhere) as spool:
        spool.send("t", b"0")
        until(lambda: spool.status().trouble != "")
        assert f"no connection to {nowhere}; is a broker running there?" in spool.status().trouble
        with pytest.raises(TimedOut, match="is a broker running there"):
            spool.flush(timeout=0.01)
    assert spool.closed
    with Spool(tmp_path / "s") as spool:
        assert spool.status().waiting == 1


def test_a_spool_closes_while_its_broker_owes_an_answer(penstock_broker, impatient, tmp_path, monkeypatch):
    asked = threading.Event()
    commit = forwarding.Forwarder._publish

    def silent(forwarder: Any, client: Any, end: int) -> None:
        asked.set()
        client._driver.run(_forever())
        commit(forwarder, client, end)

    monkeypatch.setattr(forwarding.Forwarder, "_publish", silent)
    with penstock_broker.connect() as client:
        client.create_topic("t")
        with Spool(tmp_path / "s", to=penstock_broker.url) as spool:
            spool.send("t", b"0")
            assert asked.wait(60)
        monkeypatch.undo()
        assert forward_all(tmp_path / "s", client) == 1
        assert stands(client, "t") == [b"0"]


def _forever() -> Any:
    while True:
        yield Pause(FOREVER)


def test_reaching_ends_with_its_timeout_and_when_it_is_stopped(impatient, tmp_path):
    told: list[Any] = []
    for timeout, stops in [(0.05, False), (3600.0, True)]:
        with pytest.raises(TimedOut):
            forwarding.reach(f"unix://{tmp_path}/n", timeout, stopping=lambda stops=stops: stops, troubled=told.append)
    assert len(told) >= 2


def test_the_command_waits_for_its_directory_unless_it_is_to_end(penstock_client, tmp_path, monkeypatch):
    from penstock.cli import forward

    args = [str(tmp_path / "s"), "--to", penstock_client.url]
    refused = CliRunner().invoke(forward.command, [*args, "--until-empty"])
    assert (refused.exit_code, "there is no directory" in refused.output) == (2, True)
    assert not (tmp_path / "s").exists()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            with Spool(tmp_path / "s") as spool:
                spool.send("t", b"0")
                penstock_client.create_topic("t")
        if len(waits) > 3:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(forward, "time", SimpleNamespace(sleep=sleep))
    done = CliRunner().invoke(forward.command, args)
    assert done.exit_code == 0, done.output
    assert done.output.count("waiting: there is no directory") == 1
    assert "1 record forwarded" in done.output


def test_the_command_says_once_that_its_broker_is_away(impatient, tmp_path, monkeypatch):
    from penstock.cli import forward

    Spool(tmp_path / "s").close()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(forward, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setenv("PENSTOCK_TIMEOUT_S", "50ms")
    done = CliRunner().invoke(forward.command, [str(tmp_path / "s"), "--to", f"unix://{tmp_path}/n"])
    assert done.exit_code == 0, done.output
    assert done.output.count("waiting: ") == 1, done.output


def test_a_record_that_the_broker_refuses_stops_forwarding_and_is_not_skipped(penstock_client, tmp_path):
    with Spool(tmp_path / "s") as spool:
        spool.send("t", b"0")
        spool.send("u", b"1")
        penstock_client.create_topic("t")
        with pytest.raises(UnknownTopic):
            forward_all(tmp_path / "s", penstock_client)
        assert stands(penstock_client, "t") == []
        penstock_client.create_topic("u")
        forward_all(tmp_path / "s", penstock_client)
    assert (stands(penstock_client, "t"), stands(penstock_client, "u")) == ([b"0"], [b"1"])


class Died(BaseException):
    """Ends a forwarder wherever it is."""


@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_stored_once_and_in_order_wherever_forwarders_die(penstock_client, tmp_path, monkeypatch, seed):
    """Random lives: deaths before and after each step with an effect, so also commits whose answer is lost."""
    choose = random.Random(seed)
    monkeypatch.setattr(rolling_logs, "FULL_RECORDS", 15)
    monkeypatch.setattr(forwarding, "CHUNK_RECORDS", 7)
    penstock_client.create_topic("t", partitions=2)
    transaction = type(penstock_client.transaction())
    steps = [(forwarding.spooled, "save"), (transaction, "commit"), (rolling_logs.RollingLogs, "remove")]

    def deadly(step: Any) -> Any:
        def run(*args: Any, **how: Any) -> Any:
            if choose.random() < 0.1:
                raise Died
            found = step(*args, **how)
            if choose.random() < 0.1:
                raise Died
            return found

        return run

    accepted: list[tuple[bytes, int]] = []
    for number in range(60):
        with Spool(tmp_path / "s") as spool:
            for each in range(choose.randint(0, 4)):
                value, partition = b"%d.%d" % (number, each), choose.randint(0, 1)
                spool.send("t", value, partition=partition)
                accepted.append((value, partition))
        with monkeypatch.context() as dying:
            for owner, name in steps:
                dying.setattr(owner, name, deadly(getattr(owner, name)))
            with contextlib.suppress(Died):
                forward_all(tmp_path / "s", penstock_client)
    forward_all(tmp_path / "s", penstock_client)
    for partition in (0, 1):
        assert stands(penstock_client, "t", partition) == [value for value, to in accepted if to == partition]
    assert len(list((tmp_path / "s/records").glob("0*"))) <= 2


def test_a_commit_that_is_late_stores_nothing_twice(penstock_client, tmp_path):
    """A request of a forwarder that died may arrive after the next forwarder asked for the same chunk, or more."""
    penstock_client.create_topic("t")
    with Spool(tmp_path / "s") as spool:
        spool.send("t", b"0")
        with Forwarder(str(tmp_path / "s")) as died:
            died._gather()
            end = died._chunk[-1][0]
            died._save(spooled.SpoolProgress(died._progress.name, 0, end))
            late = penstock_client.transaction(died._progress.name, end)
            late.producer("t").send(b"0")
        spool.send("t", b"1")
        assert forward_all(tmp_path / "s", penstock_client) == 2
    assert not late.commit()
    assert stands(penstock_client, "t") == [b"0", b"1"]


def test_one_process_accepts_and_one_forwards(tmp_path):
    with Spool(tmp_path / "s"), Forwarder(str(tmp_path / "s")):
        with pytest.raises(AlreadyOpen):
            Spool(tmp_path / "s")
        with pytest.raises(AlreadyOpen):
            Forwarder(str(tmp_path / "s"))


def test_what_cannot_be_a_record_is_refused_at_once(tmp_path):
    with Spool(tmp_path / "s") as spool:
        for wrong, error in [
            (lambda: spool.send("t", "text"), InvalidArgument),
            (lambda: spool.send_many("t", [b"v", "text"]), InvalidArgument),
            (lambda: spool.send("no topic", b"v"), InvalidArgument),
            (lambda: spool.send("t", b"v", headers={"h": 5}), InvalidArgument),
            (lambda: spool.send("t", bytes((16 << 20) + 1)), RecordTooLarge),
            (lambda: spool.send_many("t", [b"v"], keys=[]), InvalidArgument),
        ]:
            with pytest.raises(error):
                wrong()
        assert spool.send_many("t", []) == 0
        assert spool.status().waiting == 0
    spool.close()
    for verb in (lambda: spool.send("t", b"v"), spool.status):
        with pytest.raises(Closed):
            verb()
    with pytest.raises(InvalidArgument, match="when_full"):
        Spool(tmp_path / "s", when_full="explode")


def test_threads_accept_together(penstock_client, tmp_path, monkeypatch):
    monkeypatch.setattr(rolling_logs, "FULL_RECORDS", 20)
    penstock_client.create_topic("t")
    with Spool(tmp_path / "s") as spool:

        def send(me: int) -> None:
            for number in range(30):
                spool.send("t", b"%d.%02d" % (me, number))

        threads = [threading.Thread(target=send, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        forward_all(tmp_path / "s", penstock_client)
    found = stands(penstock_client, "t")
    assert sorted(found) == sorted(b"%d.%02d" % (me, number) for me in range(4) for number in range(30))
    for me in range(4):
        mine = [value for value in found if value.startswith(b"%d." % me)]
        assert mine == sorted(mine)


CODE = """
import sys, penstock
with penstock.Spool(sys.argv[1]) as spool:
    for number in range(10_000):
        spool.send("t", b"%d" % number)
        print(number, flush=True)
"""


def test_what_a_killed_process_had_accepted_is_forwarded_also_while_it_writes(penstock_client, tmp_path):
    penstock_client.create_topic("t")
    program = subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True)
    with program:
        assert program.stdout is not None, "a pipe"
        heard = [program.stdout.readline() for _ in range(20)]
        forward_all(tmp_path / "s", penstock_client)
        heard += [program.stdout.readline() for _ in range(20)]
        program.kill()
        heard += program.stdout.readlines()
    forward_all(tmp_path / "s", penstock_client)
    found = stands(penstock_client, "t")
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) >= len([line for line in heard if line.endswith("\n")])


def test_an_error_that_time_does_not_heal_ends_a_forwarder_that_is_not_patient(penstock_client, tmp_path):
    with Spool(tmp_path / "s") as spool:
        spool.send("t", b"0")
    with pytest.raises(UnknownTopic):
        keep_forwarding(
            str(tmp_path / "s"),
            lambda: penstock_client,
            stopping=lambda: False,
            pause=lambda seconds: None,
            patient=lambda error: error.retry,
        )


def test_the_command_forwards_to_a_broker(unix, topic, tmp_path):
    with Spool(tmp_path / "s") as spool:
        spool.send_many(topic, [b"0", b"1"])
    command = [sys.executable, "-m", "penstock", "forward", f"{tmp_path}/s", "--to", unix, "--until-empty", "--json"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, json.loads(refused.stderr)["error"]) == (3, "unknown_topic")
    with connect(unix) as client:
        client.create_topic(topic)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, json.loads(done.stdout)["records"]) == (0, 2), done.stderr
        assert stands(client, topic) == [b"0", b"1"]


def test_a_forked_child_is_refused(tmp_path):
    with Spool(tmp_path / "s") as spool:
        child = os.fork()
        if not child:
            refused = False
            try:
                with contextlib.suppress(Closed):
                    spool.send("t", b"v")
                refused = spool.closed
            finally:
                os._exit(not refused)
        assert os.waitpid(child, 0)[1] == 0
        spool.send("t", b"v")
        assert spool.status().waiting == 1


@pytest.mark.usefixtures("no_wait_without_end")
@pytest.mark.parametrize("to", [False, True], ids=["alone", "forwarding"])
def test_a_second_close_finishes_the_first(tmp_path, monkeypatch, to):
    """Else the directory stays locked, and the thread goes on, as long as the process lives."""
    monkeypatch.setattr(spool_module, "CLOSING_S", 0.0)
    address = f"unix://{tmp_path}/none" if to else None
    for interrupt in interrupts(("clients/spooling",), above=2):
        spool = Spool(tmp_path / "s", to=address)
        with interrupt:
            spool.close()
        spool.close()
        assert spool._forwarder is None or not spool._forwarder.is_alive()
        with pytest.raises(Closed):
            spool.send("t", b"x")
