"""`penstock cluster`: what a cluster is, handing the lead over, and replacing a lost disk.

Contract for programs: `status --json` is one line {"cluster", "leader": number or null, "term", "entry", "members":
[{"id", "role", "state", "lag", "free_bytes", "clock_ms", "clock_off_ms", "addresses", "progress"}, ...]}, in which null
is what the answering node does not know. Exit code 4 while no node leads.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ..storage.units import size_text
from ..transport.url import addresses
from . import exits
from .options import Invocation, with_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.messages import ClusterMember, ClusterState

ASK_S = 2.0
"""How long one node may take to answer: others are asked then."""

LOOK_S = 0.1


@click.group
def command() -> None:
    """Show a cluster's nodes, hand the lead over, and replace a lost disk."""


@command.command(short_help="Show the nodes and which leads.")
@with_session
def status(session: Invocation) -> int:
    """Show the nodes, which of them leads, and how far the others are behind. --url names one node or several."""
    from ..clients.cluster import cluster_state

    state = cluster_state(addresses(session.url), min(ASK_S, session.config.timeout_s))
    if session.output.as_json:
        session.output.json(_fields(state))
    else:
        leader = f"node {state.leader}" if state.leader else "none now"
        session.output.fields([("cluster", state.cluster), ("leader", leader), ("term", state.term)])
        columns = ["node", "role", "state", ">lag", ">free", "clock", ">off by ms", "addresses", "progress"]
        session.output.table(columns, map(_row, _members(state)))
    return exits.OK if state.leader else exits.UNAVAILABLE


@command.command(short_help="Hand the lead over.")
@click.option("--to", "node", type=click.IntRange(1, 255), metavar="NUMBER", help="Default: the one that has the most.")
@with_session
def transfer(node: int | None, session: Invocation) -> None:
    """Hand the lead over to another node, and wait until it leads. Clients follow; nothing is lost. To the node
    that leads there is nothing to do."""
    from ..clients.cluster import cluster_state, transfer_lead
    from ..clients.errors import TimedOut

    urls, deadline = addresses(session.url), time.monotonic() + session.config.timeout_s
    begun = transfer_lead(urls, node or 0, min(ASK_S, session.config.timeout_s))
    while time.monotonic() < deadline:
        state = cluster_state(urls, min(ASK_S, session.config.timeout_s))
        if state.leader and (state.term > begun.term or state.leader == begun.node):
            leads = "leads" if state.term > begun.term else "leads already,"
            session.output.say(
                "transferred", f"node {state.leader} {leads} in term {state.term}",
                leader=state.leader, term=state.term,
            )  # fmt: skip
            return
        time.sleep(LOOK_S)
    raise TimedOut(
        f"node {begun.node} does not lead within {session.config.timeout_s:g} s: see penstock cluster status, and ask "
        "again"
    )


@command.command(short_help="Replace a node's lost disk.")
@click.argument("node", type=click.IntRange(1, 255), metavar="NUMBER")
@with_session
def replace(node: int, session: Invocation) -> None:
    """Let a node that lost its disk join again. Start it with an empty directory and the options that it had: the
    others refuse it. Then this makes the directory the node's, and waits until it has fetched everything and votes."""
    from ..broker.errors import NoLeader, NotLeader, Unavailable
    from ..clients.cluster import cluster_state, replace_node
    from ..clients.errors import TimedOut

    passing = (Unavailable, NoLeader, NotLeader, TimedOut)  # another change goes on, or no node leads for a while
    urls, deadline = addresses(session.url), time.monotonic() + session.config.timeout_s
    while True:
        try:
            replace_node(urls, node, min(ASK_S, session.config.timeout_s))
            break
        except passing:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOOK_S)
    while time.monotonic() < deadline:
        state = None
        with suppress(TimedOut):
            state = cluster_state(urls, min(ASK_S, session.config.timeout_s))
        if state is not None and _has_caught_up(state, node):
            session.output.say("replaced", f"node {node} is a member again", node=node, term=state.term)
            return
        time.sleep(LOOK_S)
    raise TimedOut(
        f"node {node} has not fetched everything within {session.config.timeout_s:g} s, and goes on: see penstock "
        "cluster status"
    )


def _has_caught_up(state: ClusterState, node: int) -> bool:
    """Whether a leader says that a node votes and has nearly everything."""
    found = [each for each in state.members if each.node == node and state.leader == state.node]
    return bool(found) and found[0].role == "follower" and found[0].state == "replicating"


def _fields(state: ClusterState) -> dict[str, Any]:
    return {
        "cluster": state.cluster,
        "leader": state.leader or None,
        "term": state.term,
        "entry": state.entry,
        "members": _members(state),
    }


def _members(state: ClusterState) -> list[dict[str, Any]]:
    median_us = _median_us(state.members)
    return [_member(each, median_us) for each in state.members]


def _median_us(members: Sequence[ClusterMember]) -> int:
    """The clock that a leader goes by, of two in the middle the earlier; 0 where less than a majority is known."""
    known = sorted(each.clock_us for each in members if each.clock_us)
    return known[(len(known) - 1) // 2] if 2 * len(known) > len(members) else 0


def _member(each: ClusterMember, median_us: int) -> dict[str, Any]:
    off_ms = (each.clock_us - median_us) // 1000 if each.clock_us and median_us else None
    return {
        "id": each.node,
        "role": each.role or None,
        "state": each.state or None,
        "lag": each.lag if each.lag >= 0 else None,
        "free_bytes": each.free_bytes if each.free_bytes >= 0 else None,
        "clock_ms": each.clock_us // 1000 if each.clock_us else None,
        "clock_off_ms": off_ms,
        "addresses": each.addresses,
        "progress": each.progress or None,
    }


def _row(member: dict[str, Any]) -> list[Any]:
    shown = {"free_bytes": size_text, "clock_ms": _clock_text, "addresses": ", ".join}
    return ["" if value is None else shown.get(name, lambda same: same)(value) for name, value in member.items()]


def _clock_text(at_ms: int) -> str:
    second, ms = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}.{ms:03} UTC"
