"""`penstock dead`: list, redrive and discard dead-lettered tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..storage import units
from .consent import ask, asks_first
from .formats import json_fields, shown
from .names import queue_group_option, topic_argument
from .options import RATE, Invocation, with_session
from .positions import utc_text
from .task import failures

if TYPE_CHECKING:
    from ..clients import Client, DeadTask


@click.group
def command() -> None:
    """List, show, redrive and discard dead-lettered tasks."""


REASON = click.option("--reason", default="", metavar="TEXT", help="Only tasks whose reason contains this.")
IDS = click.argument("ids", nargs=-1, metavar="[ID]...")


@command.command("list")
@topic_argument
@REASON
@click.option("--partition", type=click.IntRange(0), help="Only of this partition.")
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="At most N.")
@queue_group_option
@with_session
def list_(topic: str, reason: str, partition: int | None, count: int, group: str, session: Invocation) -> None:
    """List the dead-lettered tasks of TOPIC."""
    with session.connect() as client:
        found = client.dead_letters(topic, group, partition=partition, reason=reason, max_records=count)
    if session.output.as_json:
        for task in found:
            session.output.json(_as_json(task))
        return
    session.output.table(
        ["id", ">attempts", "dead-lettered", "reason", "value"],
        [(t.id, t.attempt, utc_text(t.time), shown(t.reason.encode()), shown(t.record.value, most=40)) for t in found],
        empty="no dead-lettered tasks",
    )


@command.command(short_help="Show dead-lettered tasks.")
@topic_argument
@IDS
@queue_group_option
@with_session
def show(topic: str, ids: tuple[str, ...], group: str, session: Invocation) -> None:
    """Show dead-lettered tasks of TOPIC, those named: the record, the last failure, and those before."""
    _check_ids(topic, ids)
    with session.connect() as client:
        tasks = [_find(client, id_, group) for id_ in ids]
    for number, task in enumerate(tasks):
        if session.output.as_json:
            session.output.json(_as_json(task))
            continue
        if number:
            session.output.console.print()
        _print(task, session)


def _print(task: DeadTask, session: Invocation) -> None:
    """One dead-lettered task, for people."""
    record = task.record
    headers = [(f"header {name}", shown(value)) for name, value in record.header_list]
    key = None if record.key is None else shown(record.key)
    session.output.fields(
        [("id", task.id), ("dead-lettered", utc_text(task.time)), ("reason", task.reason), ("attempts", task.attempt),
         ("key", key), *headers, ("value", shown(record.value, most=1000))]
    )  # fmt: skip
    session.output.console.print()
    failures(session, task.history)


@command.command(short_help="Redrive dead-lettered tasks.")
@topic_argument
@IDS
@click.option("--all", "all_", is_flag=True, help="All dead letters.")
@REASON
@click.option("--rate", type=RATE, default=0.0, help="Tasks made ready per second.  [default: all at once]")
@queue_group_option
@with_session
def redrive(
    topic: str, ids: tuple[str, ...], all_: bool, reason: str, rate: float, group: str, session: Invocation
) -> None:
    """Redrive dead-lettered tasks of TOPIC, from attempt 1: those named, those of a --reason, or --all."""
    _check_choice(ids, all_, reason)
    with session.connect() as client:
        count = client.redrive(topic, group, ids=list(ids) or None, reason=reason, per_s=rate)
    _check_found(ids, count, group)
    session.output.say("redriven", f"{units.count_text(count, 'task')} to be retried", topic=topic, count=count)


@command.command(short_help="Discard dead-lettered tasks.")
@topic_argument
@IDS
@click.option("--all", "all_", is_flag=True, help="All dead letters.")
@REASON
@queue_group_option
@with_session
@asks_first
def discard(
    topic: str, ids: tuple[str, ...], all_: bool, reason: str, asks: bool, group: str, session: Invocation
) -> None:
    """Discard dead-lettered tasks of TOPIC: those named, those of a --reason, or --all."""
    _check_choice(ids, all_, reason)
    if asks:
        ask(f"discard {_which(topic, ids, reason, group, session)} of topic {topic}?")
    with session.connect() as client:
        count = client.discard(topic, group, ids=list(ids) or None, reason=reason)
    _check_found(ids, count, group)
    session.output.say("discarded", f"{units.count_text(count, 'task')} discarded", topic=topic, count=count)


def _which(topic: str, ids: tuple[str, ...], reason: str, group: str, session: Invocation) -> str:
    """The tasks that would be discarded, with their number if it is known."""
    if reason:
        return f"the dead-lettered tasks with {reason!r}"
    count = len(ids)
    if not ids:
        with session.connect() as client:
            count = client.queue(topic, group).dead_lettered
    return units.count_text(count, "dead-lettered task")


def _find(client: Client, id_: str, group: str) -> DeadTask:
    """One dead-lettered task. Raises UnknownTask, which says in which state it is."""
    from ..broker.errors import UnknownTask
    from ..clients.queues.task_ids import parse_task_id

    topic, partition, offset = parse_task_id(id_)
    found = client.dead_letters(topic, group, partition=partition, offset=offset, max_records=1)
    if not found or found[0].id != id_:
        raise UnknownTask(f"task {id_} is not dead-lettered in group {group}: {client.why(id_, group)}")
    return found[0]


def _check_found(ids: tuple[str, ...], count: int, group: str) -> None:
    """Raise UnknownTask if none of the named ids was found."""
    from ..broker.errors import UnknownTask

    if ids and not count:
        raise UnknownTask(f"group {group} has no dead-lettered task {' or '.join(ids)}: see penstock dead list")


def _check_ids(topic: str, ids: tuple[str, ...]) -> None:
    """Require ids, all of one topic, which every command of this group takes first."""
    from ..clients.errors import InvalidArgument
    from ..clients.queues.task_ids import parse_task_id

    if not ids:
        try:
            meant = parse_task_id(topic)[0]
        except InvalidArgument:
            raise click.UsageError("say which ones: ids") from None
        raise click.UsageError(f"the topic is missing before {topic}: penstock dead show {meant} {topic}")
    for id_ in ids:
        if parse_task_id(id_)[0] != topic:
            raise click.UsageError(f"{id_} is no task of topic {topic}")


def _check_choice(ids: tuple[str, ...], all_: bool, reason: str) -> None:
    """Require ids or --all: naming none must not mean all."""
    given = [name for name, is_given in (("ids", ids), ("--reason", reason), ("--all", all_)) if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    if not given:
        raise click.UsageError("say which ones: ids, --reason TEXT, or --all")


def _as_json(task: DeadTask) -> dict[str, Any]:
    import msgspec

    about = {"id": task.id, "attempt": task.attempt, "time": task.time, "reason": task.reason, "history": task.history}
    return {**msgspec.to_builtins(about), **json_fields(task.record)}
