"""`penstock task`: lease and settle tasks by hand, and show the status of a task."""

from __future__ import annotations

import getpass
import os
import sys
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ..broker.errors import UnknownTask
from ..storage import units
from ..storage.errors import OutOfBounds
from .consent import YES, ask, asks_first, has_to_ask
from .formats import json_bytes, json_fields, shown
from .names import TOPIC, WORKER, queue_group_option, topic_argument
from .options import DURATION, HEADER, TYPED, Invocation, with_session
from .positions import MOMENT, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..clients import Client, Failure, TaskInfo
    from ..clients.queues.outcomes import Outcome

STATES = ("pending", "delayed", "leased", "retrying", "completed", "dead-lettered", "discarded", "cancelled")

LOOKED_AT = 1000
"""Tasks of each partition whose states are asked for where only some are wanted: each is a request."""


@click.group
def command() -> None:
    """Enqueue, lease and settle tasks by hand; ask what became of one.

    A task is named by its id, TOPIC-PARTITION-OFFSET. One that was leased by hand is ID@TOKEN, and settled under that
    lease alone. By its id, a task is settled whichever worker holds it.
    """


@command.command(short_help="Put tasks into a queue.")
@topic_argument
@click.argument("values", nargs=-1, type=TYPED, metavar="[VALUE]...")
@click.option("--key", type=TYPED, help="Key of the tasks; tasks of one key go to one partition.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="Header of all of them; repeatable.")
@click.option("--delay", "delay_s", type=DURATION, help="Deliver them after this delay, e.g. 10m.")
@click.option("--at", "moment", type=MOMENT, help="Deliver them no earlier than this time, e.g. 2026-01-31T12:00.")
@click.option("--priority", type=click.IntRange(0, 255), default=0, show_default=True, help="0 to 255, higher first.")
@click.option("--dedup", type=TYPED, help="Dedup key: repeats within the topic's window are skipped.")
@with_session
def enqueue(
    topic: str, values: tuple[bytes, ...], key: bytes | None, headers: tuple[tuple[str, bytes], ...],
    delay_s: float | None, moment: datetime | None, priority: int, dedup: bytes | None, session: Invocation,
) -> None:  # fmt: skip
    """Put a task into the queue of TOPIC for each VALUE, or for each line of standard input; writes their ids.

    They are plain records: calls of the functions of penstock.Tasks are sent from Python.
    """
    from ..clients.queues.task_ids import task_id

    if delay_s is not None and moment is not None:
        raise click.UsageError("--delay and --at say the same: give one of them")
    lines = list(values) or sys.stdin.buffer.read().splitlines()
    common: dict[str, Any] = {
        "key": key,
        "headers": dict(headers) or None,
        "delay": delay_s,
        "at": moment,
        "priority": priority,
        "dedup": dedup,
    }
    with session.connect() as client, client.producer(topic) as producer:
        for future in [producer.send_nowait(line, **common) for line in lines]:
            id_ = task_id(topic, future.partition, future.result())
            session.output.say("enqueued", id_, id=id_)


@command.command(short_help="Lease tasks by hand.")
@topic_argument
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="At most N.")
@click.option("--lease", "lease_s", type=DURATION, help="Length of the lease; default: the queue's setting.")
@click.option("--wait", "wait_s", type=DURATION, default="0s", show_default=True, help="Wait for the first task.")
@queue_group_option
@with_session
def lease(topic: str, count: int, lease_s: float | None, wait_s: float, group: str, session: Invocation) -> None:
    """Lease tasks of TOPIC, without extending the lease later. Writes ID@TOKEN, attempt and value of each."""
    from ..clients.by_hand import ByHand

    with session.connect() as client:
        worker = _person()
        tasks = ByHand(client, group).lease(topic, worker, max_records=count, lease=lease_s, wait=wait_s)
    if session.output.as_json:
        for task in tasks:
            about = {"id": task.id, "leased": task.name, "attempt": task.attempt, "until": task.until}
            session.output.json({**about, **json_fields(task.record)})
        return
    rows = [(task.name, task.attempt, shown(task.record.value)) for task in tasks]
    session.output.table(["leased", ">attempt", "value"], rows, empty="nothing to lease now")


def _person() -> str:
    """The name of a worker that is a person. In containers, a user may have none."""
    try:
        return f"{getpass.getuser()}, by hand"
    except (KeyError, OSError):
        return f"user {os.getuid()}, by hand"


LEASED = click.argument("names", nargs=-1, required=True, metavar="ID[@TOKEN]...")


@command.command(short_help="Ack leased tasks.")
@LEASED
@click.option("--result", type=TYPED, help="Stored with the task; `penstock task status` prints it.")
@queue_group_option
@with_session
def ack(names: tuple[str, ...], result: bytes | None, group: str, session: Invocation) -> None:
    """Say that leased tasks are done."""
    _settle(session, group, names, "ack", result=result)


@command.command(short_help="Nack leased tasks: retry later, or dead-letter.")
@LEASED
@click.option("--delay", "delay_s", type=DURATION, help="Retry after this delay; default: the queue's back-off.")
@click.option("--reason", default="", help="Reason, for the task's history.")
@queue_group_option
@with_session
def nack(names: tuple[str, ...], delay_s: float | None, reason: str, group: str, session: Invocation) -> None:
    """Say that leased tasks failed: they are retried, or dead-lettered when this was the last attempt."""
    _settle(session, group, names, "nack", delay=delay_s, reason=reason)


@command.command(short_help="Reject leased tasks: dead-letter them.")
@LEASED
@click.option("--reason", default="", help="Reason, for the task's history.")
@queue_group_option
@with_session
def reject(names: tuple[str, ...], reason: str, group: str, session: Invocation) -> None:
    """Say that leased tasks failed for good: they are dead-lettered."""
    _settle(session, group, names, "reject", reason=reason)


@command.command(short_help="Release leased tasks, without counting an attempt.")
@LEASED
@queue_group_option
@with_session
def release(names: tuple[str, ...], group: str, session: Invocation) -> None:
    """Release leased tasks: they can be leased again at once, and the attempt does not count."""
    _settle(session, group, names, "release")


def _settle(session: Invocation, group: str, names: Sequence[str], verb: Outcome, **how: Any) -> None:
    from ..clients.by_hand import ByHand, is_leased
    from ..clients.queues.task_ids import parse_task_id
    from ..transport.queue_messages import Verb

    leased = [name for name in names if is_leased(name)]
    topics: dict[str, list[str]] = {}
    for id_ in dict.fromkeys(name for name in names if not is_leased(name)):
        topics.setdefault(parse_task_id(id_)[0], []).append(id_)
    with session.connect() as client:
        ByHand(client, group).settle(leased, Verb[verb.upper()], **how)
        count = len(leased) + sum(client.settle(topic, group, ids, verb, **how) for topic, ids in topics.items())
    others = len(leased) + sum(map(len, topics.values())) - count
    left = f"; {units.count_text(others, 'other')} not leased" if others else ""
    session.output.say(verb, f"{verb}: {units.count_text(count, 'task')}{left}", tasks=list(names), count=count)


@command.command(short_help="Give leased tasks to another worker.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--worker", type=WORKER, help="Name of the worker; default: by hand.")
@click.option("--idle", "idle_s", type=DURATION, default="0s", help="Only what was given out at least so long ago.")
@click.option("--lease", "lease_s", type=DURATION, help="Length of the lease; default: the queue's setting.")
@click.option("--force", is_flag=True, help="Also tasks that are not leased, but ready or retrying.")
@queue_group_option
@with_session
def claim(
    ids: tuple[str, ...], worker: str | None, idle_s: float, lease_s: float | None, force: bool, group: str,
    session: Invocation,
) -> None:  # fmt: skip
    """Take leased tasks from their workers. Writes ID@TOKEN and attempt of each."""
    from ..clients.queues.task_ids import parse_task_id

    name = worker or _person()
    topics: dict[str, list[str]] = {}
    for id_ in ids:
        topics.setdefault(parse_task_id(id_)[0], []).append(id_)
    with session.connect() as client:
        tasks = [
            task
            for topic, some in topics.items()
            for task in client.claim(
                topic, group, name, some, idle=idle_s, lease=lease_s, force=force, records=False
            ).tasks
        ]
    if session.output.as_json:
        for task in tasks:
            leased = f"{task.id}@{task.token}"
            session.output.json({"id": task.id, "leased": leased, "attempt": task.attempt, "until": task.until})
        return
    rows = [(f"{task.id}@{task.token}", task.attempt) for task in tasks]
    session.output.table(["leased", ">attempt"], rows, empty="nothing was claimed")


@command.command(short_help="List the tasks that workers hold.")
@topic_argument
@click.option("--worker", type=WORKER, help="Only what this worker holds.")
@click.option("--idle", "idle_s", type=DURATION, default="0s", help="Only what was given out at least so long ago.")
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="At most N.")
@queue_group_option
@with_session
def pending(topic: str, worker: str | None, idle_s: float, count: int, group: str, session: Invocation) -> None:
    """List the leased tasks of TOPIC: the worker of each, since when, and until when."""
    import msgspec

    with session.connect() as client:
        tasks = client.pending(topic, group, worker=worker, idle=idle_s, max_records=count)
    if session.output.as_json:
        for task in tasks:
            session.output.json({"id": task.id, **msgspec.to_builtins(task)})
        return
    rows = [
        (task.id, task.worker, task.attempt, task.given and utc_text(task.given), task.until and utc_text(task.until))
        for task in tasks
    ]
    session.output.table(["task", "worker", ">attempt", "given", "until"], rows, empty="no task is leased")


@command.command("list", short_help="List the newest tasks of a queue.")
@topic_argument
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only in this state; repeatable.")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="At most N of each partition.")
@queue_group_option
@with_session
def list_(topic: str, states: tuple[str, ...], count: int, group: str, session: Invocation) -> None:
    """List the newest tasks of TOPIC, by partition, with the state of each and why it is in it.

    With --state, it looks at the newest 1,000 of each partition.
    """
    looks = max(count, LOOKED_AT) if states else count
    with session.connect() as client:
        found: list[TaskInfo] = []
        for ids in _newest(client, topic, looks):
            infos = (info for id_ in ids if (info := _info(client, id_, group)) is not None)
            found += islice((info for info in infos if not states or info.state in states), count)
    if session.output.as_json:
        for info in found:
            session.output.json(_as_json(info))
        return
    rows = [(info.id, info.state, info.attempt or "", info.worker, info.why) for info in found]
    session.output.table(["task", "state", ">attempt", "worker", "why"], rows, empty="no such task")


@command.command(short_help="Skip the tasks that no worker has begun.")
@topic_argument
@queue_group_option
@with_session
@asks_first
def purge(topic: str, asks: bool, group: str, session: Invocation) -> None:
    """Skip the tasks of TOPIC that no worker has begun: no worker of the group gets them.

    Tasks that are leased, retrying or dead-lettered stay: see `penstock task cancel` and `penstock dead discard`. The
    records stay, too, for other groups and readers: `penstock topic trim` removes them.
    """
    with session.connect() as client:
        queue = client.queue(topic, group)
        count = queue.ready + queue.delayed
        if asks:
            ask(f"skip {units.count_text(count, 'task')} of queue {group} of topic {topic}?")
        client.reset_queue(topic, group, "latest")
    sentence = f"skipped: {units.count_text(count, 'task')} of queue {group} of {topic} that were not begun"
    session.output.say("purged", sentence, topic=topic, group=group, count=count)


def _newest(client: Client, topic: str, count: int) -> Iterator[list[str]]:
    """The ids of the newest records of each partition, the newest first."""
    from ..clients.queues.task_ids import task_id

    for each in client.topic(topic).partitions:
        first = max(each.first, each.end - count)
        yield [task_id(topic, each.partition, offset) for offset in range(each.end - 1, first - 1, -1)]


def _info(client: Client, id_: str, group: str) -> TaskInfo | None:
    """The task; None for a record that is gone meanwhile, or that is before those of the group."""
    try:
        return client.task(id_, group)
    except (OutOfBounds, UnknownTask):
        return None


# -- asking ----------------------------------------------------------------------------------------


@command.command
@click.argument("id_", metavar="ID")
@click.option("--wait", "wait_s", type=DURATION, help="Wait so long until it is in a final state.")
@queue_group_option
@with_session
def status(id_: str, wait_s: float | None, group: str, session: Invocation) -> None:
    """Show what became of a task."""
    with session.connect() as client:
        info = client.wait_task(id_, group=group, timeout=wait_s) if wait_s else client.task(id_, group=group)
    _show(session, info)


@command.command
@click.argument("id_", metavar="ID")
@queue_group_option
@with_session
def why(id_: str, group: str, session: Invocation) -> None:
    """Say in a sentence what holds a task back, or what became of it."""
    with session.connect() as client:
        sentence = client.why(id_, group=group)
    session.output.say("why", sentence, id=id_, why=sentence)


@command.command(short_help="List callbacks that wait for their tasks.")
@click.argument("topic", type=TOPIC, required=False)
@click.option("--count", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most N.")
@click.option("--delete", "ids", metavar="BARRIER", multiple=True, help="Delete this one of TOPIC; repeatable.")
@YES
@with_session
def barriers(topic: str | None, count: int, ids: tuple[str, ...], yes: bool, session: Invocation) -> None:
    """List callbacks that wait for tasks to end, of TOPIC or of all: which, and for what each waits.

    They are those of `then=` and of groups, listed by the queue of the callback. One that is deleted never comes; the
    tasks that it waits for go on.
    """
    import msgspec

    if ids:
        _delete_barriers(topic, ids, yes, session)
        return
    with session.connect() as client:
        found = client.barriers(topic, most=count)
    if session.output.as_json:
        for each in found:
            headers = {name: shown(value) for name, value in each.headers.items()}
            plain = msgspec.to_builtins(msgspec.structs.replace(each, headers={}))
            session.output.json({**plain, "headers": headers, "why": each.why})
        return
    rows = [
        (
            each.id,
            each.topic,
            shown(each.headers.get("penstock-task", b"")),
            each.members,
            each.why,
            utc_text(each.until),
        )
        for each in found
    ]
    names = ["barrier", "topic", "function", ">tasks", "why", "forgotten at"]
    session.output.table(names, rows, empty="no callback waits for tasks")


def _delete_barriers(topic: str | None, ids: tuple[str, ...], yes: bool, session: Invocation) -> None:
    if topic is None:
        raise click.UsageError("--delete needs the TOPIC of the callback, which the list shows")
    asks = has_to_ask(yes, session.output)
    with session.connect() as client:
        if asks:
            ask(f"delete {units.count_text(len(ids), 'callback')} of topic {topic} before it comes?")
        for id_ in ids:
            client.delete_barrier(topic, id_)
            session.output.say("deleted", f"barrier {id_} of topic {topic} deleted", topic=topic, barrier=id_)


@command.command(short_help="Cancel a task.")
@click.argument("id_", metavar="ID")
@queue_group_option
@with_session
def cancel(id_: str, group: str, session: Invocation) -> None:
    """Cancel a task. A worker that is running it is told, and may stop."""
    with session.connect() as client:
        info = client.cancel_task(id_, group=group)
    _show(session, info)


def _show(session: Invocation, info: TaskInfo) -> None:
    if session.output.as_json:
        session.output.json(_as_json(info))
        return
    pairs: list[tuple[str, Any]] = [("task", info.id), ("state", info.state), ("why", info.why)]
    pairs += [("attempt", info.attempt)] if info.attempt else []
    pairs += [("worker", info.worker)] if info.worker else []
    pairs += [("given", utc_text(info.given))] if info.given is not None else []
    pairs += [("progress", shown(info.progress))] if info.progress is not None else []
    pairs += [("result", shown(info.result))] if info.result is not None else []
    pairs += [("reason", info.reason)] if info.reason else []
    session.output.fields(pairs)
    if info.history:
        session.output.console.print()
        failures(session, info.history)


def failures(session: Invocation, history: Sequence[Failure]) -> None:
    """The failed attempts, for people."""
    rows = [(utc_text(each.time), each.worker, each.reason) for each in history]
    session.output.table(["failed at", "worker", "reason"], rows, empty="no failed attempt is remembered")


def _as_json(info: TaskInfo) -> dict[str, Any]:
    """The task's fields, with bytes as text or in base64."""
    import msgspec

    plain = msgspec.to_builtins(msgspec.structs.replace(info, result=None, progress=None))
    for name, value in (("result", info.result), ("progress", info.progress)):
        plain.update(json_bytes(name, value))
    return plain
