"""Asks the nodes of a cluster, whether they lead or not.

Idea: a client follows the leader; what an operator wants to know comes from any node. All are asked together, each
over a connection of its own, and the newest answer counts.

Contract: `TimedOut` when none of the addresses answers in time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, Generic, TypeVar

from ..storage.errors import Error
from ..transport.codec import decode_answer, frames
from ..transport.errors import ProtocolError, Unauthenticated
from ..transport.failures import error_of
from ..transport.keys import key_of
from ..transport.messages import (
    Answer,
    AskCluster,
    ClusterState,
    Failure,
    Message,
    ReplaceNode,
    Stats,
    StatsReply,
    TransferBegun,
    TransferLead,
)
from ..transport.sent import Sent
from ..transport.sockets import Sockets
from .errors import TimedOut

A = TypeVar("A", bound=Message)

LOOK_S = 0.05

REST_S = 0.5
"""How long the others may take once a node has answered: one that is dead does not say so."""


def ask_node(url: str, message: Message, expected: type[A], timeout_s: float) -> A:
    """Ask the node at one address. Raises TimedOut, InvalidKey, Unauthenticated, and what the node refuses with.

    The key is that of the file in PENSTOCK_KEY.
    """
    deadline = time.monotonic() + timeout_s
    with closing(_asking(url, message, expected)) as looks:
        for answer in looks:
            if answer is not None:
                return answer
            if time.monotonic() >= deadline:
                break
    raise _silent(url, timeout_s)


def _asking(url: str, message: Message, expected: type[A]) -> Generator[A | None]:
    """Ask one node, over a connection of its own. Each look takes LOOK_S at most; None: it has not answered yet."""
    with Sockets(key=key_of(None) if url.startswith("tcp:") else None) as sockets:
        client, sent = sockets.client(url), False
        while True:
            client.poll(LOOK_S)
            if client.refusal:
                raise Unauthenticated(f"{url}: {client.refusal}")
            sent = sent or (client.connected and client.send(frames(message)) is Sent.TAKEN)
            while (received := client.receive()) is not None:
                answer = _answer(received)
                if isinstance(answer, Failure):
                    raise error_of(answer)
                if isinstance(answer, expected):
                    yield answer
            yield None


def _silent(url: str, timeout_s: float) -> TimedOut:
    return TimedOut(f"{url} does not answer within {timeout_s:g} s: is the node started?")


class _AskedNodes(Generic[A]):
    """Nodes that are asked the same. `waiting`: those that have not answered yet, by address."""

    def __init__(self, message: Message, expected: type[A]) -> None:
        self.waiting: dict[str, Generator[A | None]] = {}
        self._message = message
        self._expected = expected

    def ask(self, url: str) -> None:
        """Ask one more."""
        self.waiting[url] = _asking(url, self._message, self._expected)

    def look(self) -> Iterator[A | Error]:
        """What comes of one look at each."""
        for url, looks in list(self.waiting.items()):
            try:
                answer = next(looks)
            except (Error, OSError) as error:
                answer = error if isinstance(error, Error) else TimedOut(f"{url}: {error}")
            if answer is not None:
                self.waiting.pop(url).close()
                yield answer

    def close(self) -> None:
        """Ask no longer."""
        for looks in self.waiting.values():
            looks.close()


def node_stats(url: str, timeout_s: float) -> dict[str, Any]:
    """The counters of the node at one address. Raises as `ask_node`."""
    return ask_node(url, Stats(1), StatsReply, timeout_s).values


def _answer(received: list) -> Answer | None:
    with suppress(ProtocolError):
        return decode_answer(received)[0]
    return None


def cluster_state(urls: Iterable[str], timeout_s: float) -> ClusterState:
    """What the cluster is, as its leader says where that can be asked, else as the node with the highest term does.

    Raises TimedOut when none answers; else what the first refused with: Unauthenticated, InvalidRequest for a broker
    that is alone.
    """
    given = list(urls)
    found, refused = _states(given, timeout_s)
    if not found:
        raise next((error for error in refused if not isinstance(error, TimedOut)), refused[0])
    newest = _newest(found)
    if newest.leader and newest.node != newest.leader:
        asked = [each for each in _addresses(newest) if each not in given]
        found += _states(asked[:1], min(timeout_s, REST_S))[0]
    return _newest(found)


def _states(urls: Iterable[str], timeout_s: float) -> tuple[list[ClusterState], list[Error]]:
    """What nodes that are asked together answer, and why others do not."""
    found: list[ClusterState] = []
    refused: list[Error] = []
    deadline = time.monotonic() + timeout_s
    with closing(_AskedNodes(AskCluster(1), ClusterState)) as asked:
        for url in urls:
            asked.ask(url)
        while asked.waiting and time.monotonic() < deadline:
            for answer in asked.look():
                if isinstance(answer, Error):
                    refused.append(answer)
                else:
                    found.append(answer)
                    deadline = min(deadline, time.monotonic() + REST_S)
        return found, refused + [_silent(url, timeout_s) for url in asked.waiting]


def transfer_lead(urls: Iterable[str], node: int, timeout_s: float) -> TransferBegun:
    """Have the leader hand the lead over to a node, 0 for the furthest. Raises TimedOut, InvalidRequest, NoLeader."""
    return _ask_leader(urls, TransferLead(1, node), TransferBegun, timeout_s)


def replace_node(urls: Iterable[str], node: int, timeout_s: float) -> ClusterState:
    """Have the leader take the directory that a node was refused with for the node's. Raises as `transfer_lead`."""
    return _ask_leader(urls, ReplaceNode(1, node), ClusterState, timeout_s)


def _ask_leader(urls: Iterable[str], message: Message, expected: type[A], timeout_s: float) -> A:
    """Ask the node that is said to lead, and the next whenever none has answered for REST_S: only a leader does it."""
    given, deadline = list(urls), time.monotonic() + timeout_s
    left = deque(dict.fromkeys([*_addresses(cluster_state(given, timeout_s)), *given]))
    error: Error = TimedOut("the cluster has no leader now: ask again")
    next_at = time.monotonic()
    with closing(_AskedNodes(message, expected)) as asked:
        while (asked.waiting or left) and time.monotonic() < deadline:
            if left and (not asked.waiting or time.monotonic() >= next_at):
                asked.ask(left.popleft())
                next_at = time.monotonic() + REST_S
            for answer in asked.look():
                if not isinstance(answer, Error):
                    return answer
                if answer.code not in ("not_leader", "no_leader", TimedOut.code):
                    raise answer
                error = answer
        raise _silent(next(iter(asked.waiting)), timeout_s) if asked.waiting else error


def _newest(found: list[ClusterState]) -> ClusterState:
    """Of the highest term; in it the word of the node that the others follow, which may say that it does not serve."""
    followed = {(each.term, each.leader) for each in found}
    return max(found, key=lambda each: (each.term, (each.term, each.node) in followed, bool(each.leader), each.entry))


def _addresses(state: ClusterState) -> list[str]:
    """Where clients reach the leader, as far as the node knows."""
    return [address for each in state.members if each.node == state.leader for address in each.addresses]
