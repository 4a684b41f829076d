"""Asks the nodes of a cluster one by one, whether they lead or not.

Idea: a client follows the leader; what an operator wants to know comes from any node. Each question goes over a
connection of its own, and the newest answer counts.

Contract: `TimedOut` when none of the addresses answers in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from ..storage.errors import Error
from ..transport.codec import decode_answer, frames
from ..transport.errors import ProtocolError, TransportError, Unauthenticated
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


def ask_node(url: str, message: Message, expected: type[A], timeout_s: float) -> A:
    """Ask the node at one address. Raises TimedOut, InvalidKey, Unauthenticated, and what the node refuses with.

    The key is that of the file in PENSTOCK_KEY.
    """
    deadline = time.monotonic() + timeout_s
    with Sockets(key=key_of(None) if url.startswith("tcp:") else None) as sockets:
        client, sent = sockets.client(url), False
        while (left := deadline - time.monotonic()) > 0:
            client.poll(min(left, LOOK_S))
            if client.refusal:
                raise Unauthenticated(f"{url}: {client.refusal}")
            sent = sent or (client.connected and client.send(frames(message)) is Sent.TAKEN)
            while (received := client.receive()) is not None:
                answer = _answer(received)
                if isinstance(answer, Failure):
                    raise error_of(answer)
                if isinstance(answer, expected):
                    return answer
    raise TimedOut(f"{url} does not answer within {timeout_s:g} s: is the node started?")


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
    found: list[ClusterState] = []
    refused: list[Error] = []
    given = list(urls)
    for url in given:
        try:
            found.append(ask_node(url, AskCluster(1), ClusterState, timeout_s))
        except (Error, TransportError, OSError) as error:
            refused.append(error if isinstance(error, Error) else TimedOut(f"{url}: {error}"))
    if not found:
        raise next((error for error in refused if not isinstance(error, TimedOut)), refused[0])
    newest = _newest(found)
    if newest.leader and newest.node != newest.leader:
        with suppress(Error, OSError):
            asked = [each for each in _addresses(newest) if each not in given]
            found += [ask_node(url, AskCluster(1), ClusterState, timeout_s) for url in asked[:1]]
    return _newest(found)


def transfer_lead(urls: Iterable[str], node: int, timeout_s: float) -> TransferBegun:
    """Have the leader hand the lead over to a node, 0 for the furthest. Raises TimedOut, InvalidRequest, NoLeader."""
    return _ask_leader(urls, TransferLead(1, node), TransferBegun, timeout_s)


def replace_node(urls: Iterable[str], node: int, timeout_s: float) -> ClusterState:
    """Have the leader take the directory that a node was refused with for the node's. Raises as `transfer_lead`."""
    return _ask_leader(urls, ReplaceNode(1, node), ClusterState, timeout_s)


def _ask_leader(urls: Iterable[str], message: Message, expected: type[A], timeout_s: float) -> A:
    given = list(urls)
    state = cluster_state(given, timeout_s)
    last: Error = TimedOut("the cluster has no leader now: ask again")
    for url in [*_addresses(state), *given]:
        try:
            return ask_node(url, message, expected, timeout_s)
        except Error as error:
            if error.code not in ("not_leader", "no_leader", TimedOut.code):
                raise
            last = error
    raise last


def _newest(found: list[ClusterState]) -> ClusterState:
    """Of the highest term; in it the word of the node that the others follow, which may say that it does not serve."""
    followed = {(each.term, each.leader) for each in found}
    return max(found, key=lambda each: (each.term, (each.term, each.node) in followed, bool(each.leader), each.entry))


def _addresses(state: ClusterState) -> list[str]:
    """Where clients reach the leader, as far as the node knows."""
    return [address for each in state.members if each.node == state.leader for address in each.addresses]
