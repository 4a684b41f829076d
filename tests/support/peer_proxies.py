"""Proxies between the nodes of a cluster of real processes, each of which may be cut one way.

    with PeerProxies(folder, [1, 2, 3]) as proxies, ClusterProcesses(folder, peers_of=proxies.peers_of) as cluster:
        proxies.cut(1, 2)

Idea: nodes send on connections that they made, so a proxy before each address, one for each node that connects there,
stands on one way. A cut is silent, as that of a network: nothing is answered and nothing refused. What was on its way
is lost when it heals, and both ends connect anew.

Contract: threads, which end with `close`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

Way = tuple[int, int]
"""The node that sends, and the one that hears."""


class PeerProxies:
    """Proxies on all ways between some nodes, whose sockets are `p1`, `p2` ... in a folder."""

    def __init__(self, folder: Path, numbers: Sequence[int]) -> None:
        self._folder = folder
        self._numbers = numbers
        self._cut: set[Way] = set()
        self._lock = threading.Lock()
        self._standing: dict[Way, list[socket.socket]] = {
            (sender, hearer): [] for sender in numbers for hearer in numbers if sender != hearer
        }
        self._listening: list[socket.socket] = []
        for way in self._standing:
            for suffix in ("", ".data"):
                listening = socket.socket(socket.AF_UNIX)
                listening.bind(f"{self._path(*way)}{suffix}")
                listening.listen()
                self._listening.append(listening)
                threading.Thread(target=self._accept, args=(listening, way, suffix), daemon=True).start()

    def _path(self, sender: int, hearer: int) -> Path:
        return self._folder / f"x{sender}{hearer}"

    def peers_of(self, number: int) -> dict[int, str]:
        """Where a node reaches the others, and hears them."""
        paths = {other: self._path(number, other) for other in self._numbers} | {number: self._folder / f"p{number}"}
        return {other: f"ipc://{path}" for other, path in paths.items()}

    def cut(self, sender: int, hearer: int) -> None:
        """Let nothing through from one node to another."""
        with self._lock:
            self._cut.add((sender, hearer))

    def heal(self) -> None:
        """Let everything through."""
        with self._lock:
            ways, self._cut = self._cut, set()
            for way in ways:
                self._end(way)

    def _end(self, way: Way) -> None:
        for each in self._standing[way]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._standing[way].clear()

    def _accept(self, listening: socket.socket, way: Way, suffix: str) -> None:
        target = self._folder / f"p{way[1]}{suffix}"
        with suppress(OSError):
            while True:
                here, there = listening.accept()[0], socket.socket(socket.AF_UNIX)
                try:
                    there.connect(str(target))
                except OSError:
                    here.close()
                    there.close()
                    continue
                with self._lock:
                    self._standing[way] += [here, there]
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(source, sink, way), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if way not in self._cut:
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all."""
        for listening in self._listening:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        with self._lock:
            for way in self._standing:
                self._end(way)

    def __enter__(self) -> PeerProxies:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
