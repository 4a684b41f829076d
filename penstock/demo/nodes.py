"""The three nodes of the demo's cluster, each `penstock serve` as a program would start it; killed and stopped on end.

Contract: `kill` and `pause` return when the cluster has another leader, or raise DemoError. They wait
for each other; what the nodes say is read by threads of this module.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from .errors import DemoError

NUMBERS = (1, 2, 3)
WAIT_S = 60.0
DRAIN_S = 30.0


class Node:
    """One node, and what it last said of itself."""

    def __init__(self, number: int, data: Path, sockets: Path) -> None:
        self.number = number
        self.pid = 0  # of its broker
        self.role = ""
        self.term = 0
        command = [sys.executable, "-m", "penstock", "serve", "--json", "--data", str(data / f"node-{number}")]
        command += ["--parent", str(os.getpid()), "--listen", f"unix://{sockets}/{number}.sock"]
        command += ["--cluster", "demo", "--node", str(number)]
        for each in NUMBERS:
            command += ["--peer", f"{each}=ipc://{sockets}/{each}.peer"]
        self.said = sockets / f"said-{number}"
        with self.said.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    def hear(self, moved: threading.Condition) -> None:
        """Take note of all that it says, until it ends."""
        assert self.process.stdout is not None, "it was asked for"
        for line in self.process.stdout:
            event = msgspec.json.decode(line)
            with moved:
                if event["event"] == "role":
                    self.role, self.term = event["role"], event["term"]
                else:
                    self.pid = event["pids"]["broker"]
                moved.notify_all()
        with moved:
            self.pid = -1
            moved.notify_all()


class Nodes:
    """All nodes. `wait` comes first."""

    def __init__(self, data: Path) -> None:
        # Not below `data`: a socket's path may have at most 107 bytes.
        self._sockets = tempfile.TemporaryDirectory(prefix="penstock-")
        self._moved = threading.Condition()
        self._acting = threading.Lock()
        self.nodes = [Node(number, data, Path(self._sockets.name)) for number in NUMBERS]
        """All of them, in the order of their numbers."""
        self._threads = [threading.Thread(target=node.hear, args=(self._moved,), daemon=True) for node in self.nodes]
        self.failovers: list[float] = []
        """Seconds from each end of a leader until another one led."""
        self.unix = "unix://" + ",".join(f"{self._sockets.name}/{number}.sock" for number in NUMBERS)
        """The addresses of all nodes, for clients."""

    def wait(self) -> None:
        """Wait until all serve and one leads. Raises DemoError with the message of the node that ended."""
        for thread in self._threads:
            thread.start()
        self.until(lambda: all(node.pid > 0 for node in self.nodes) and self._leader_above(0) is not None)

    def kill(self) -> int:
        """SIGKILL the leader, whose supervisor starts another broker. Returns the number of the next leader."""
        with self._acting:
            return self._end_leader(signal.SIGKILL).number

    def pause(self, seconds: float) -> int:
        """Stop the leader (SIGSTOP) for so long, while another leads. Returns the number of that one."""
        with self._acting:
            stopped = self.leader().pid
            try:
                following = self._end_leader(signal.SIGSTOP)
                time.sleep(seconds)
            finally:
                os.kill(stopped, signal.SIGCONT)
            return following.number

    def _end_leader(self, by: signal.Signals) -> Node:
        leader = self.leader()
        term, begun = leader.term, time.monotonic()  # the term now: it is started again, and hears of the next one
        os.kill(leader.pid, by)
        self.until(lambda: self._leader_above(term) is not None)
        self.failovers.append(time.monotonic() - begun)
        following = self._leader_above(term)
        assert following is not None, "it was waited for"
        return following

    def leader(self) -> Node:
        """The node that leads, once there is one. Raises DemoError."""
        self.until(lambda: self._leader_above(0) is not None)
        leader = self._leader_above(0)
        assert leader is not None, "it was waited for"
        return leader

    def _leader_above(self, above: int) -> Node | None:
        """The node that leads in the highest term of all, which is above `above`."""
        newest = max(self.nodes, key=lambda node: node.term)
        leading = [node for node in self.nodes if node.role == "leader" and node.term == newest.term > above]
        return leading[0] if leading else None

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what nodes say makes a condition true. Raises DemoError."""
        with self._moved:
            is_so = self._moved.wait_for(lambda: condition() or any(node.pid < 0 for node in self.nodes), WAIT_S)
        ended = [node for node in self.nodes if node.pid < 0]
        if ended:
            raise DemoError(f"node {ended[0].number} ended: {ended[0].said.read_text(errors='replace')[-500:]}")
        if not is_so:
            raise DemoError(f"the cluster has no leader after {WAIT_S:.0f} s")

    def drain(self) -> None:
        """Stop all cleanly. Raises DemoError if one does not end so."""
        for node in self.nodes:
            node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            if code := node.process.wait(DRAIN_S):
                said = node.said.read_text(errors="replace")[-500:]
                raise DemoError(f"node {node.number} ended with exit code {code}: {said}")

    def close(self) -> None:
        """Stop the processes, however the demo ended."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()
        for node, thread in zip(self.nodes, self._threads, strict=True):
            if thread.is_alive():
                thread.join()
            if node.process.stdout is not None:
                node.process.stdout.close()
        self._sockets.cleanup()
