"""A cluster of real processes for tests: one supervisor with its broker and keeper for each node, over sockets in a
folder.

Contract: as `support.processes`. Nothing waits for a time: `leader` waits for what the nodes say of their roles.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.broker import ServeConfig
from penstock.broker.cluster_config import ClusterConfig
from support.processes import Serving


class ClusterProcesses:
    """Three nodes, or five. `nodes`: those that run, by number; `peers`: where each is reached by the others, or
    `peers_of`, where a node reaches them."""

    def __init__(
        self, folder: Path, size: int = 3, *, name: str = "shard", peers: dict[int, str] | None = None,
        listen_of: Callable[[int], tuple[str, ...]] | None = None,
        peers_of: Callable[[int], dict[int, str]] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.name = name
        self.numbers = list(range(1, size + 1))
        common = peers or {each: f"ipc://{folder}/p{each}" for each in self.numbers}
        self._peers_of = peers_of or (lambda number: common)
        self.nodes: dict[int, Serving] = {}
        self._settings = settings
        self._listen_of = listen_of or (lambda number: (f"unix://{folder}/n{number}",))
        try:
            for number in self.numbers:
                self.start(number)
            for node in self.nodes.values():
                node.wait_ready()
        except BaseException:
            self.close()
            raise

    def config(self, number: int) -> ServeConfig:
        """Of one node."""
        return ServeConfig(**{
            "data": str(self.folder / f"data{number}"),
            "listen": self._listen_of(number),
            "board_rows": 64,
            "restart_most_s": 0.2,
            "cluster": ClusterConfig(
                name=self.name,
                node=number,
                peers=self._peers_of(number),
            ),
            **self._settings,
        })  # fmt: skip

    def start(self, number: int, *, wait: bool = False) -> Serving:
        """Start a node that does not run."""
        self.nodes[number] = Serving(self.config(number), wait=wait)
        return self.nodes[number]

    @property
    def urls(self) -> list[str]:
        """The addresses of all nodes."""
        return [f"unix://{self.folder}/n{number}" for number in self.numbers]

    @property
    def url(self) -> str:
        """The addresses of all nodes as one."""
        return "unix://" + ",".join(f"{self.folder}/n{number}" for number in self.numbers)

    def leader(self, timeout_s: float = 30.0, *, above: int = 0) -> int:
        """The node that leads in the highest term, which is above `above`, once one says so."""
        deadline = time.monotonic() + timeout_s
        while True:
            leading = [
                (node.roles[-1][1], number)
                for number, node in self.nodes.items()
                if node.roles and node.roles[-1][0] == "leader" and node.roles[-1][1] > above
            ]
            if leading:
                return max(leading)[1]
            assert time.monotonic() < deadline, f"no leader above term {above}: {self.describe()}"
            self._hear(deadline - time.monotonic())

    def term(self) -> int:
        """The highest term that a node has led in."""
        return max((term for node in self.nodes.values() for role, term in node.roles if role == "leader"), default=0)

    def _hear(self, timeout_s: float) -> None:
        """Take note of what any node says."""
        outputs = {
            node.process.stdout.fileno(): node
            for node in self.nodes.values()
            if node.process.stdout is not None and node.process.poll() is None
        }
        for descriptor in select.select(list(outputs), [], [], min(timeout_s, 1.0))[0]:
            outputs[descriptor].watch(0.0)

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to a node's broker."""
        os.kill(self.nodes[number].pid("broker"), what)

    def kill(self, number: int) -> None:
        """End a node at once, with all of its processes."""
        node = self.nodes.pop(number)
        node.process.kill()  # first, as it would end the keeper of a broker that is gone, and start both again
        for role in ("broker", "keeper"):
            with suppress(ProcessLookupError):
                os.kill(node.pid(role), signal.SIGKILL)
        node.process.wait()
        node.close()

    @contextmanager
    def without_leader(self) -> Iterator[None]:
        """The leader is killed, and another node leads; it is started again behind the block."""
        leader, term = self.leader(), self.term()
        self.kill(leader)
        self.leader(above=term)
        yield
        self.start(leader, wait=True)

    def kill_all(self) -> None:
        """End all nodes as a power failure would, but for what the disks have."""
        for number in list(self.nodes):
            self.kill(number)

    def describe(self) -> str:
        """Roles and complaints of all nodes."""
        return "\n".join(f"{number}: {node.roles} {node.errors()}" for number, node in self.nodes.items())

    def close(self) -> None:
        """End all."""
        for node in self.nodes.values():
            node.close()
        self.nodes.clear()

    def __enter__(self) -> ClusterProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
