"""The supervisor's children: how they begin, and what it does when the system lets none begin."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.broker import ServeConfig, children
from penstock.broker.children import Child
from penstock.broker.supervisor import Supervisor
from support.processes import Serving
from support.servers import descendants


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    return ServeConfig(data=str(tmp_path / "data"), board_rows=32, restart_first_s=0.01, restart_most_s=0.1)


@pytest.mark.parametrize("role", ["broker", "keeper"])
@pytest.mark.parametrize("call", ["subprocess.Popen", "os.pidfd_open"])
def test_a_child_that_cannot_be_started_now_is_tried_again(
    config: ServeConfig, monkeypatch: pytest.MonkeyPatch, role: str, call: str
) -> None:
    said: list[str] = []
    supervisor = Supervisor(config, say=said.append)
    event = supervisor.start()
    others = descendants(os.getpid()) - {event["pids"][role]}
    spawn, module, name = supervisor._spawn, *call.split(".")
    refusals = [errno.EAGAIN, errno.EMFILE]

    def spawn_or_not(role_: str, descriptors: dict[str, int]) -> Child:
        with monkeypatch.context() as patched:
            if role_ == role and refusals:
                patched.setattr(getattr(children, module), name, refuse)
            return spawn(role_, descriptors)

    def refuse(*arguments: Any, **more: Any) -> Any:
        number = refusals.pop()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(supervisor, "_spawn", spawn_or_not)
    seen: list[set[int]] = []

    def on_event(found: dict[str, Any]) -> None:
        if found["pids"] != event["pids"]:
            seen.append(descendants(os.getpid()))
            supervisor.stop()

    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        os.kill(event["pids"][role], signal.SIGKILL)
        assert supervisor._supervise(event, on_event) == 0
    finally:
        supervisor._end_all()
    assert [each for each in said if each.startswith("cannot start")] == [
        f"cannot start the {role}: {os.strerror(number)}: trying again in {pause:g} s"
        for number, pause in ((errno.EMFILE, 0.02), (errno.EAGAIN, 0.04))
    ]
    assert len(seen[0]) == len(others) + 1, "none runs unwatched"
    assert len(os.listdir("/proc/self/fd")) < descriptors


def test_a_keeper_that_its_disk_holds_is_not_waited_for(config: ServeConfig) -> None:
    """It is gone when the disk answers, and its supervisor has others to see to meanwhile."""
    supervisor, ended = Supervisor(config, say=lambda sentence: None), list[str]()
    supervisor._keeper = SimpleNamespace(pid=7, kill_nowait=lambda: ended.append("killed"))
    supervisor._replace_stuck_keeper(8)
    assert not ended
    supervisor._replace_stuck_keeper(7)
    assert ended == ["killed"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_signals_to_the_whole_group_are_none_of_the_children_from_their_first_moment(
    config: ServeConfig, number: signal.Signals
) -> None:
    with Serving(config) as serving:
        for pid in serving.ready["pids"].values():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            (blocked,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
            assert blocked >> (number - 1) & 1


def test_how_a_child_ended_is_known_though_our_parent_ignores_ends(config: ServeConfig) -> None:
    """Programs hand that down to those that they start; the system forgets how a child ended then."""
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    supervisor = Supervisor(config, say=lambda sentence: None)

    def kill(event: dict[str, Any]) -> None:
        os.kill(event["pids"]["broker"], signal.SIGKILL)
        supervisor.stop()

    try:
        assert supervisor.run(kill) == 1, "a broker that was killed has not drained"
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, ignored)
