"""`penstock worker list` and `forget`: the workers that queues remember, and the tasks that each holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ..storage import units
from .consent import ask, asks_first
from .names import QUEUE_GROUP, TOPIC, WORKER, queue_group_option, topic_argument
from .options import Invocation, with_session
from .positions import utc_text

if TYPE_CHECKING:
    from ..clients import Client, PendingTask, Queue, QueueWorker
    from ..clients.queues.outcomes import Outcome

NEVER = datetime.min.replace(tzinfo=UTC)


@click.command("list", short_help="List workers, and the tasks that each holds.")
@click.argument("topic", type=TOPIC, required=False)
@click.option("--group", type=QUEUE_GROUP, help="Only workers of this queue group.")
@click.option("--tasks", "most", type=click.IntRange(1), default=1000, show_default=True, help="At most N of a queue.")
@with_session
def list_(topic: str | None, group: str | None, most: int, session: Invocation) -> None:
    """List the workers of the queues of TOPIC, or of all, the latest first: the tasks that each holds, and since when.

    Workers that hold nothing are listed, too, also those that ended, as long as their queue remembers them: the last
    column says when each was last seen, which is now for those that wait for tasks, and marks as gone those that hold
    nothing and were silent for a minute. With --json, each worker has its tasks, the longest held first.
    """
    with session.connect() as client:
        queues = [client.queue(topic, group)] if topic and group else client.queues(topic)
        found = [each for queue in queues if group in (None, queue.name) for each in _of(client, queue, most)]
    found.sort(key=lambda each: (each[1].waiting, _seen(each[1])), reverse=True)
    if session.output.as_json:
        for each in found:
            session.output.json(_as_json(*each))
        return
    session.output.table(
        ["worker", "queue", "group", ">tasks", "oldest task", "held since", "first seen", "last seen"],
        [_row(*each) for each in found],
        empty="no worker has asked for tasks yet",
    )


@click.command("forget", short_help="Forget a worker, and settle its tasks.")
@topic_argument
@click.argument("worker", type=WORKER)
@click.option(
    "--tasks",
    "verb",
    type=click.Choice(["release", "nack", "reject", "ack"]),
    default="release",
    show_default=True,
    help="What becomes of the tasks that it holds.",
)
@queue_group_option
@with_session
@asks_first
def forget(topic: str, worker: str, verb: Outcome, asks: bool, group: str, session: Invocation) -> None:
    """Forget WORKER of the queue of TOPIC, which is gone for good. Other workers get the tasks that it holds."""
    with session.connect() as client:
        if asks:
            ask(f"forget worker {worker} of queue {group} of topic {topic}?")
        known = any(each.name == worker for each in client.workers(topic, group))
        count = client.forget_worker(topic, group, worker, verb)
    told = "is forgotten" if known else "was not known"
    sentence = f"worker {worker} {told}; {verb}: {units.count_text(count, 'task')}"
    session.output.say("forgotten", sentence, topic=topic, group=group, worker=worker, tasks=verb, count=count)


def _of(client: Client, queue: Queue, most: int) -> list[tuple[Queue, QueueWorker, list[PendingTask]]]:
    """The workers of a queue, each with its tasks, the longest held first."""
    workers = client.workers(queue.topic, queue.name)
    held: dict[str, list[PendingTask]] = {worker.name: [] for worker in workers}
    if any(worker.pending for worker in workers):
        for task in client.pending(queue.topic, queue.name, max_records=most):
            held.setdefault(task.worker, []).append(task)
    return [(queue, each, sorted(held[each.name], key=lambda task: task.given or NEVER)) for each in workers]


def _row(queue: Queue, worker: QueueWorker, held: list[PendingTask]) -> tuple[Any, ...]:
    oldest = (held[0].id, _moment_text(held[0].given)) if held else (None, None)
    first, last = _moment_text(worker.first_seen), "now" if worker.waiting else _moment_text(_seen(worker))
    last = f"{last or 'never'}, gone" if worker.gone else last
    count = max(worker.pending, len(held))  # they were asked for one after the other
    return (worker.name, queue.topic, queue.name, count, *oldest, first, last)


def _as_json(queue: Queue, worker: QueueWorker, held: list[PendingTask]) -> dict[str, Any]:
    import msgspec

    tasks = [
        {"id": task.id, "attempt": task.attempt, "given": task.given, "idle": task.idle, "until": task.until}
        for task in held
    ]
    about = {**msgspec.structs.asdict(worker), "gone": worker.gone}
    found = {"topic": queue.topic, "group": queue.name, **about, "tasks": tasks}
    return msgspec.to_builtins(found)


def _seen(worker: QueueWorker) -> datetime:
    """When a worker was last seen, as far as that is known; else NEVER."""
    return max(each or NEVER for each in (worker.first_seen, worker.last_active, worker.last_asked))


def _moment_text(moment: datetime | None) -> str | None:
    return None if moment in (None, NEVER) else utc_text(moment)
