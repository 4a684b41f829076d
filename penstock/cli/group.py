"""`penstock group`: list, show, reset and delete groups of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..storage import units
from .consent import ask, asks_first
from .names import GROUP, topic_argument
from .options import Invocation, with_session
from .output import unavailable_text
from .positions import POSITION

if TYPE_CHECKING:
    from ..clients import Group
    from ..clients.descriptions import GroupPartition


@click.group
def command() -> None:
    """List, show, reset and delete groups of consumers."""


@command.command("list")
@click.option("--topic", help="Only groups of this topic.")
@with_session
def list_(topic: str | None, session: Invocation) -> None:
    """List groups and their lag."""
    with session.connect() as client:
        groups = client.groups(topic) if topic else client.groups()
    groups = sorted(groups, key=lambda group: (group.topic, group.name))
    if session.output.as_json:
        for group in groups:
            session.output.json(_as_json(group))
        return
    session.output.table(
        ["topic", "group", ">members", ">partitions", ">lag", "state"],
        [
            (g.topic, g.name, len(g.members), len(g.partitions), g.lag, unavailable_text(g.unavailable) or _state(g))
            for g in groups
        ],
        empty="no groups yet: penstock consume TOPIC --group NAME",
    )


@command.command
@topic_argument
@click.argument("name", type=GROUP)
@with_session
def show(topic: str, name: str, session: Invocation) -> None:
    """Show group NAME of TOPIC: members, cursors, lag, and the notes beside the cursors."""
    with session.connect() as client:
        group = client.group(topic, name)
        notes = {number: place.note for number, place in client.committed(topic, name).items() if place.note}
    if session.output.as_json:
        session.output.json({**_as_json(group), "notes": {str(number): note for number, note in notes.items()}})
        return
    session.output.table(
        [">partition", ">cursor", ">end", ">lag", "member", "state", *(["note"] if notes else [])],
        [
            (
                *(p.partition, p.cursor if p.cursor >= 0 else None, p.end, p.lag, p.member or None, _state_of(p)),
                *([notes.get(p.partition)] if notes else []),
            )
            for p in group.partitions
        ]
        + [(number, *[None] * 4, "unavailable", *([None] if notes else [])) for number in group.unavailable],
    )
    session.output.console.print()
    session.output.table(
        ["member", ">last seen", ">partitions"],
        [
            (m.name, f"{units.time_text(m.idle_s)} ago", sum(p.member == m.name for p in group.partitions))
            for m in group.members
        ],
        empty="no members",
    )


@command.command(short_help="Move the cursors of a group.")
@topic_argument
@click.argument("name", type=GROUP)
@click.option("--to", "position", type=POSITION, required=True, help="earliest, latest, an offset, or a time.")
@click.option("--partition", "partitions", type=int, multiple=True, help="With an offset: only these; repeatable.")
@click.option("--note", help="Up to 4 KiB that stand beside the cursors until they move again.")
@with_session
def reset(
    topic: str, name: str, position: Any, partitions: tuple[int, ...], note: str | None, session: Invocation
) -> None:
    """Move the cursors of group NAME of TOPIC, which must have no members."""
    if partitions and not isinstance(position, int):
        raise click.UsageError("--partition goes with an offset")
    with session.connect() as client:
        if isinstance(position, int):
            chosen = partitions or range(len(client.topic(topic).partitions))
            position = dict.fromkeys(chosen, position)
        client.reset_group(topic, name, position)
        group = client.group(topic, name)
        if note is not None:
            wanted = position if isinstance(position, dict) else range(len(group.partitions))
            moved = {each.partition: each.cursor for each in group.partitions if each.partition in wanted}
            client.commit_group(topic, name, moved, note=note)
    sentence = f"group {name} of {topic} reset: {units.count_text(group.lag, 'record')} to read"
    session.output.say("reset", sentence, **_as_json(group))


@command.command(short_help="Delete a group and its cursors.")
@topic_argument
@click.argument("name", type=GROUP)
@with_session
@asks_first
def delete(topic: str, name: str, asks: bool, session: Invocation) -> None:
    """Delete group NAME of TOPIC and its cursors; it must have no members."""
    with session.connect() as client:
        if asks:
            ask(f"delete group {name} of topic {topic}?")
        client.delete_group(topic, name)
    session.output.say("deleted", f"group {name} of {topic} deleted", topic=topic, group=name)


def _state(group: Group) -> str:
    return f"{units.count_text(group.removed, 'record')} removed unread" if group.removed else "ok"


def _state_of(partition: GroupPartition) -> str:
    """Whether retention was faster than the group."""
    if not partition.removed:
        return "ok"
    return f"records {partition.cursor} to {partition.first - 1} were removed unread"


def _as_json(group: Group) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(group), "lag": group.lag, "removed": group.removed}
