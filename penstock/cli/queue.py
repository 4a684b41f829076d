"""`penstock queue`: what queues hold, their settings, pause and resume."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..storage import units
from .consent import ask, asks_first
from .names import queue_group_option, topic_argument
from .options import ASSIGNMENT, SOME_TIME, Invocation, with_session
from .output import unavailable_text
from .positions import MOMENT, POSITION, utc_text

if TYPE_CHECKING:
    from ..clients import Client, Queue


COUNTS = (">ready", ">in flight", ">delayed", ">retrying", ">dead-lettered")

FAR_YEAR = 9000
"""A pause until later is one without an end."""


@click.group
def command() -> None:
    """List, set, pause, resume, reset and delete queue groups."""


@command.command("list")
@click.option("--topic", help="Only queues of this topic.")
@with_session
def list_(topic: str | None, session: Invocation) -> None:
    """List queues and their tasks by state."""
    with session.connect() as client:
        queues = sorted(client.queues(topic), key=lambda queue: (queue.topic, queue.name))
        stuck = _stuck(client, queues)
    if session.output.as_json:
        for queue in queues:
            session.output.json(_as_json(queue))
        return
    session.output.table(
        ["topic", "group", ">depth", *COUNTS, ">oldest", "state"],
        [
            (
                q.topic,
                q.name,
                q.depth,
                *_counts(q),
                _age(q.oldest),
                unavailable_text(q.unavailable) or _state(q, stuck),
            )
            for q in queues
        ],
        empty="no queues yet: penstock queue set TOPIC, or a worker makes one",
    )


@command.command
@topic_argument
@queue_group_option
@with_session
def stats(topic: str, group: str, session: Invocation) -> None:
    """Show what the queue of TOPIC holds: depth, in flight, delayed, retrying, dead-lettered, age of the oldest."""
    with session.connect() as client:
        queue = client.queue(topic, group)
        stuck = _stuck(client, [queue])
    if session.output.as_json:
        session.output.json(_as_json(queue))
        return
    settings = [(name, _setting_text(name, value)) for name, value in queue.settings.items()]
    state = [("state", _state(queue, stuck))] if queue.settings["dead_topic"] in stuck else []
    session.output.fields([("topic", queue.topic), ("group", queue.name), *settings, *state])
    session.output.console.print()
    session.output.table(
        [">partition", *COUNTS, ">oldest", "state"],
        [
            (p.partition, *_counts(p), _age(p.oldest), _state(p))
            for p in queue.partitions
            if p.partition not in queue.unavailable
        ]
        + [(number, *[None] * 6, "unavailable") for number in queue.unavailable],
    )


@command.command("set", short_help="Create a queue, or change its settings.")
@topic_argument
@click.argument("settings", nargs=-1, type=ASSIGNMENT, metavar="[NAME=VALUE]...")
@queue_group_option
@with_session
def set_(topic: str, settings: tuple[tuple[str, str], ...], group: str, session: Invocation) -> None:
    """Create the queue of TOPIC, or change its settings.

    \b
    lease_s=30s lease_max_s=12h    how long a worker holds a task without a heartbeat, empty: until it
                                   settles it; the longest lease that it may ask for
    max_attempts=20                after so many failures a task is dead-lettered; empty: never
    backoff_s=1s backoff_max_s=5m  delay before the second attempt, doubling with each further one; its limit
    jitter=0.5                     a random part of up to this share is taken off a delay
    order=none|key fair=no         one task of a key at a time, in order; keys take turns
    key_concurrency= key_rate_per_s= look_ahead=1000
    rate= rate_burst=              leases in a time over all workers, e.g. 100/s, 10/m or 500/h, empty: any
                                   number; how many may go at once
    dead_retention_s=14d dead_topic=  dead letters are discarded after this; a topic for copies of them
    carry_after_s=1d               tasks open for longer are copied forward, so that files can go
    keep_finished_s=               finished tasks and results go after this, e.g. 1d; empty: by retention
    """
    with session.connect() as client:
        queue = client.set_queue(topic, group, **{name: _value(name, text) for name, text in settings})
    sentence = f"queue {group} of {topic} is set"
    session.output.say("set", sentence, topic=topic, group=group, settings=queue.settings)


@command.command(short_help="Pause a queue.")
@topic_argument
@click.option("--for", "duration", type=SOME_TIME, help="Duration, e.g. 10m.")
@click.option("--until", type=MOMENT, help="Until a time, e.g. 2026-01-31T12:00.")
@queue_group_option
@with_session
def pause(topic: str, duration: float | None, until: datetime | None, group: str, session: Invocation) -> None:
    """Pause the queue of TOPIC, until a time or until resumed. Leased tasks may still be finished."""
    if duration is not None and until is not None:
        raise click.UsageError("--for and --until say the same: give one of them")
    if until is not None and until <= datetime.now(UTC):
        raise click.UsageError(f"--until {utc_text(until)} is over: give a time to come, or leave it out")
    if duration is not None:
        until = datetime.now(UTC) + timedelta(seconds=duration)
    with session.connect() as client:
        client.pause_queue(topic, group, until)
    when = "until it is resumed" if until is None else f"until {utc_text(until)}"
    session.output.say("paused", f"queue {group} of {topic} is paused {when}", topic=topic, group=group, until=until)


@command.command
@topic_argument
@queue_group_option
@with_session
def resume(topic: str, group: str, session: Invocation) -> None:
    """Resume a paused queue."""
    with session.connect() as client:
        client.resume_queue(topic, group)
    session.output.say("resumed", f"queue {group} of {topic} is resumed", topic=topic, group=group)


@command.command(short_help="Let a queue go on elsewhere.")
@topic_argument
@click.option("--to", "position", type=POSITION, required=True, help="earliest, latest, an offset, or a time.")
@click.option("--partition", "partitions", type=int, multiple=True, help="With an offset: only these; repeatable.")
@queue_group_option
@with_session
@asks_first
def reset(topic: str, position: Any, partitions: tuple[int, ...], asks: bool, group: str, session: Invocation) -> None:
    """Let the queue of TOPIC go on elsewhere: finished tasks from there on are given again, earlier ones skipped."""
    if partitions and not isinstance(position, int):
        raise click.UsageError("--partition goes with an offset")
    with session.connect() as client:
        if asks:
            ask(f"reset queue {group} of topic {topic}?")
        if isinstance(position, int):
            position = dict.fromkeys(partitions or range(len(client.topic(topic).partitions)), position)
        client.reset_queue(topic, group, position)
        ready = client.queue(topic, group).ready
    sentence = f"queue {group} of {topic} reset: {units.count_text(ready, 'task')} ready"
    session.output.say("reset", sentence, topic=topic, group=group, ready=ready)


@command.command(short_help="Delete a queue: leases, attempts, dead letters.")
@topic_argument
@queue_group_option
@with_session
@asks_first
def delete(topic: str, asks: bool, group: str, session: Invocation) -> None:
    """Delete the queue of TOPIC: leases, attempts, dead letters. The topic's records stay."""
    with session.connect() as client:
        if asks:
            ask(f"delete queue {group} of topic {topic}?")
        client.delete_queue(topic, group)
    session.output.say("deleted", f"queue {group} of {topic} deleted", topic=topic, group=group)


WITHOUT = {"lease_s": "until settled", "max_attempts": "any number"}
"""Settings that read better than empty when they set no limit."""

_WORDS = {"yes": True, "true": True, "no": False, "false": False, "": None}


def _value(name: str, text: str) -> Any:
    """A setting as its type: a time, a number, a yes or no, or a word."""
    if name == "dead_topic":
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return units.seconds(text) if name.endswith("_s") and name != "key_rate_per_s" else _number(text)
    except ValueError as error:
        raise click.UsageError(f"{name}={text}: {error}") from None


def _setting_text(name: str, value: Any) -> Any:
    """A setting for people: times as they are given to `queue set`."""
    if value is None:
        return WITHOUT.get(name)
    if name.endswith("_s") and name != "key_rate_per_s":
        return units.time_text(value)
    return None if value == "" else value


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _counts(held: Any) -> tuple[int, ...]:
    return held.ready, held.in_flight, held.delayed, held.retrying, held.dead_lettered


def _age(since: datetime | None) -> str | None:
    from ..clients.descriptions import age_s

    passed_s = age_s(since, datetime.now(UTC))
    return None if passed_s is None else units.time_text(passed_s)


def _stuck(client: Client, queues: list[Queue]) -> frozenset[str]:
    """Topics that should get copies of dead letters and do not exist."""
    wanted = {queue.settings["dead_topic"] for queue in queues} - {""}
    return frozenset(wanted - {topic.name for topic in client.topics()}) if wanted else frozenset()


def _state(held: Any, stuck: frozenset[str] = frozenset()) -> str:
    dead_topic = held.settings["dead_topic"] if stuck else ""
    if dead_topic in stuck:
        return f"copies of dead letters wait: topic {dead_topic} is missing"
    until = held.paused_until
    if until is None:
        return "ok"
    return "paused" if until.year > FAR_YEAR else f"paused until {utc_text(until)}"


def _as_json(queue: Queue) -> dict[str, Any]:
    import msgspec

    names = ("depth", "ready", "in_flight", "delayed", "retrying", "dead_lettered", "oldest", "paused_until")
    plain = msgspec.to_builtins({**{name: getattr(queue, name) for name in names}, "partitions": queue.partitions})
    about = {"topic": queue.topic, "group": queue.name, "settings": queue.settings}
    return {**about, **plain, "unavailable": queue.unavailable}
