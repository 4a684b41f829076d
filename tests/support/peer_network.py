"""Peers in memory: the interface of PeerLinks over a network that drops, delays, reorders, duplicates and cuts.

Everything that happens is decided by one seed. `PeerNetwork.step` moves time on by one; what is due then has arrived.
Cuts go one way: `cut(1, 2)` loses what node 1 sends to node 2.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec
from penstock.broker.peers.links import PeerArrival
from penstock.broker.raft.messages import Message
from penstock.storage.batch import batches


class PeerNetwork:
    """`drop`, `double`: how likely for each message; `delay`: in steps, at most. Equal delays keep the order."""

    def __init__(
        self, nodes: Sequence[int], seed: int, *, drop: float = 0.0, double: float = 0.0, delay: int = 0
    ) -> None:
        self.drop, self.double, self.delay = drop, double, delay
        self.now = 0
        self.lost = self.doubled = self.overtaken = 0
        self.links = {node: MemoryLinks(self, node) for node in nodes}
        self._dice = random.Random(seed)
        self._cuts: set[tuple[int, int]] = set()
        self._number = self._newest = 0  # sent last, and the highest that has arrived
        self._flying: list[tuple[int, int, int, bytes, list[bytes]]] = []  # due, number, to, message, bodies

    def cut(self, sender: int, receiver: int) -> None:
        """Lose what one node sends to another, in this direction alone."""
        self._cuts.add((sender, receiver))

    def heal(self) -> None:
        """Mend all cuts; both ends of each have a new connection."""
        for sender, receiver in self._cuts:
            self.links[sender].new.add(receiver)
            self.links[receiver].new.add(sender)
        self._cuts = set()

    def restart(self, node: int) -> None:
        """A node loses what is on its way to it, and all have new connections."""
        self._flying = [each for each in self._flying if each[2] != node]
        self.links[node] = MemoryLinks(self, node)
        for other, links in self.links.items():
            if other != node:
                links.new.add(node)
                self.links[node].new.add(other)

    def send(self, message: Message, bodies: Sequence[bytes]) -> None:
        """Take a message. What stands in it is copied, as by sockets."""
        if (message.sender, message.to) in self._cuts or self._dice.random() < self.drop:
            self.lost += 1
            return
        copies = 2 if self._dice.random() < self.double else 1
        self.doubled += copies - 1
        for _ in range(copies):
            self._number += 1
            due = self.now + 1 + self._dice.randint(0, self.delay)
            self._flying.append((due, self._number, message.to, msgspec.msgpack.encode(message), list(bodies)))

    def step(self) -> None:
        """Move on, and deliver what is due."""
        self.now += 1
        due = sorted(each for each in self._flying if each[0] <= self.now)
        self._flying = [each for each in self._flying if each[0] > self.now]
        for _, number, to, message, bodies in due:
            self.overtaken += number < self._newest
            self._newest = max(self._newest, number)
            self.links[to].arrived.append((msgspec.msgpack.decode(message, type=Message), bodies))


class MemoryLinks:
    """One node's side, as PeerLinks."""

    def __init__(self, network: PeerNetwork, node: int) -> None:
        self.new: set[int] = set()
        self.arrived: list[tuple[Message, list[bytes]]] = []
        self._network = network
        self._node = node
        self._waiting: list[tuple[Message, list[bytes]]] = []

    def put(self, message: Message, bodies: Sequence[bytes] = ()) -> bool:
        if message.to not in self._network.links:
            return False
        self._waiting.append((message, [bytes(body) for body in bodies]))
        return True

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for message, bodies in waiting:
            self._network.send(message, bodies)

    def take(self) -> Iterator[PeerArrival]:
        arrived, self.arrived = self.arrived, []
        for message, bodies in arrived:
            found = [batch for body in bodies for batch in batches(body)]
            keyed = {(batch.log_id, batch.seq, batch.header_checksum): bytes(batch.buffer) for batch in found}
            yield PeerArrival(message.sender, message, keyed)

    def renewed(self) -> set[int]:
        found, self.new = self.new, set()
        return found
