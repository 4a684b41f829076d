"""A node: everything one broker knows, driven by messages, commits and time.

Idea: `receive` turns a message into replies or into proposals; `flush` writes all proposals with one append
per partition; `advance` looks at what is committed by now and answers for it: replies, waiting fetches,
deliveries, wake-ups. `tick` is what happens because time passed.

Contract of the driver, which calls from one thread:

    node = Node(store, port, randomness=os.urandom, config=NodeConfig(...), now=now)
    loop:
        for peer, message, payload in everything that can be read: node.receive(peer, message, payload, now)
        dirty = node.flush(now)          # logs appended to: sync them, or wake the keeper
        ... a keeper's answer: log.settle(generation, seq) ...
        node.advance(now)                # after flush, and after every settle
        wait at most node.tick(now)      # seconds to the next deadline

No exception leaves `receive`, `flush`, `advance` or `tick` because of what a client sent or of a full or
failing disk: those become Failure answers. Must not know sockets, files, clocks or threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ports import NodeConfig, Now, Payload, Peer, Port, Randomness, Store

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...storage import LogWriter
    from ...transport.messages import Request


class Node:
    """One node over a store and a port. Opening it opens and replays every log of the store."""

    def __init__(
        self, store: Store, port: Port, *, randomness: Randomness, config: NodeConfig | None = None, now: Now
    ) -> None:
        """Open all logs, replay each from its newest snapshot, finish deletions that were cut short."""
        raise NotImplementedError

    def receive(self, peer: Peer, message: Request, payload: Payload, now: Now) -> None:
        """Take one request. Its answer comes through the port: at once, or from a later `advance` or `tick`."""
        raise NotImplementedError

    def flush(self, now: Now) -> list[LogWriter]:
        """Append everything proposed since the last flush, once per partition.

        Returns the logs appended to. For those with `commit="durable"` the driver now sees to a sync; those
        with "written" are committed already. Call `advance` next in any case.
        """
        raise NotImplementedError

    def advance(self, now: Now) -> None:
        """Answer for what `log.committed` has reached, fail what a poisoned log will never commit, and deliver."""
        raise NotImplementedError

    def tick(self, now: Now) -> float:
        """Do what is due by now. Returns the seconds until the next call is needed (an earlier one is harmless).

        Due work may propose effects: flush and advance afterwards, as after `receive`.
        """
        raise NotImplementedError

    def warmed(self, token: Hashable) -> None:
        """Pages that `Port.read` called COLD under this token are in memory: the next `advance` reads again."""
        raise NotImplementedError

    def disconnect(self, peer: Peer) -> None:
        """The peer's connection is gone: its waiting fetches are dropped; its sessions live on until they expire."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Counters and sizes by dotted name."""
        raise NotImplementedError

    @property
    def logs(self) -> list[LogWriter]:
        """Every open log, the metadata log first."""
        raise NotImplementedError

    def close(self, now: Now) -> None:
        """Flush, sync, answer, snapshot every log that moved, and close all cleanly. The node is then unusable."""
        raise NotImplementedError
