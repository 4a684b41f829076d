"""A replicated shard as clients see it: one node behind several doors, of which one leads at a time.

The doors are real sockets, served by one thread of the test. What is behind them is one node in memory, as if every
node of the shard had everything at once. A door that does not lead greets as a follower and refuses all else.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from penstock.broker.poller import Poller
from penstock.clients.embedded.local import LocalBroker, LocalChannel
from penstock.storage.memory_files import MemoryFiles
from penstock.transport.codec import decode_request, frames
from penstock.transport.messages import Answer, Failure, Hello, LeaderMoved, Request, Welcome
from penstock.transport.sockets import Sockets

if TYPE_CHECKING:
    from penstock.transport.sockets import Server

TURN_S = 0.002


class Door:
    """Where one node listens. `stopped`: it hears and says nothing."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url: str = server.endpoints[0]
        self.stopped = False
        self.channels: dict[Any, LocalChannel] = {}  # by peer


class Shard:
    """`leader`: the number of the door that leads, or -1."""

    def __init__(self, urls: Sequence[str]) -> None:
        files = MemoryFiles()
        files.mkdir("/data")
        self.broker = LocalBroker("/data", files)
        self.term, self.leader = 1, 0
        self._turned_away: list[tuple[Door, Any]] = []
        self._elect: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._sockets = Sockets()
        self.doors = [Door(self._sockets.server(url)) for url in urls]
        self._poller = self._polling()
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        """All addresses as one."""
        scheme = self.doors[0].url.partition("://")[0]
        return f"{scheme}://" + ",".join(door.url.removeprefix(f"{scheme}://") for door in self.doors)

    def move(self, leader: int, *, aloud: bool = False) -> None:
        """Another door leads, in the next term; none for -1. `aloud`: the old one tells its clients."""
        with self._lock:
            self._move(leader, aloud=aloud)

    def elect(self, leader: int, *, after: int) -> None:
        """A door leads once so many greetings have been turned away from now on; those who sent them are told."""
        with self._lock:
            self._turned_away, self._elect = [], (leader, after)

    def _move(self, leader: int, *, aloud: bool = False) -> None:
        old, self.leader, self.term = self.leader, leader, self.term + 1
        self._drop_office()
        if old >= 0:
            self._end_channels(self.doors[old], LeaderMoved(self.term, self._hint()) if aloud else None)

    def _elect_if_due(self) -> None:
        if self._elect is not None and len(self._turned_away) >= self._elect[1]:
            self._move(self._elect[0])
            self.broker.drive(None)  # its office is open before clients are told
            self._elect = None
            for door, peer in self._turned_away:
                door.server.send(peer, frames(LeaderMoved(self.term, self._hint())))
                door.server.flush()

    def kill(self, door: int) -> None:
        """A node dies with its connections."""
        with self._lock:
            found = self.doors[door]
            self._end_channels(found, None)
            found.server.close()
            found.stopped = True
            self._poller.close()
            self._poller = self._polling()

    def _polling(self) -> Poller:
        poller = Poller()
        for door in self.doors:
            if not door.stopped:
                poller.add(door.server)
        return poller

    def _drop_office(self) -> None:
        with self.broker.lock:
            self.broker._node.resign()
            self.broker._pending = True

    def _end_channels(self, door: Door, farewell: Answer | None) -> None:
        for peer, channel in door.channels.items():
            if farewell is not None:
                door.server.send(peer, frames(farewell))
            channel.close()
        door.channels = {}

    def _hint(self) -> list[str]:
        return [self.doors[self.leader].url] if self.leader >= 0 else []

    def _run(self) -> None:
        while not self._ended:
            with self._lock:
                self._poller.poll(TURN_S)
                for number, door in enumerate(self.doors):
                    if not door.stopped:
                        self._serve(door, number == self.leader)
                self._elect_if_due()

    def _serve(self, door: Door, leads: bool) -> None:
        while (received := door.server.receive()) is not None:
            peer, found = received
            message, payload = decode_request([bytes(frame) for frame in found])
            if leads:
                if isinstance(message, Hello):
                    message = msgspec.structs.replace(message, term=0)  # the node behind is alone
                door.channels.setdefault(peer, self.broker.connect()).send(message, bytes(payload))
            elif (answer := self._refusal(message)) is not None:
                door.server.send(peer, frames(answer))
                if isinstance(message, Hello):
                    self._turned_away.append((door, peer))
        for peer in door.server.lost():
            if (channel := door.channels.pop(peer, None)) is not None:
                channel.close()
        for peer, channel in door.channels.items():
            while (answered := channel.receive()) is not None:
                answer, payload = answered
                if isinstance(answer, Welcome):
                    answer = msgspec.structs.replace(answer, role="leader", term=self.term)
                door.server.send(peer, frames(answer, bytes(payload)))
        door.server.flush()

    def _refusal(self, message: Request) -> Answer | None:
        hint = self._hint()
        if isinstance(message, Hello):
            cluster = self.broker._config.cluster
            return Welcome(
                message.request, 1, "", "", cluster, 0, 1, 1, "", "", "", role="follower", term=self.term, leader=hint
            )
        request = getattr(message, "request", 0)
        code = "not_leader" if hint else "no_leader"
        return Failure(request, code, "it follows", True, *hint, term=self.term) if request else None

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        with suppress(OSError):
            self._sockets.close()
        self._poller.close()
        self.broker.close()

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
