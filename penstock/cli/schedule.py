"""`penstock schedule`: set, list and delete recurring records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .consent import ask, asks_first
from .formats import json_bytes, shown
from .names import SCHEDULE, TOPIC, topic_argument
from .options import HEADER, TYPED, Invocation, with_session
from .positions import utc_text

if TYPE_CHECKING:
    from ..clients import Schedule


@click.group
def command() -> None:
    """Set, list and delete schedules."""


@command.command("set", short_help="Append a record at stated times.")
@topic_argument
@click.argument("name", type=SCHEDULE)
@click.argument("spec")
@click.argument("value", type=TYPED, default="")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of cron fields, e.g. Europe/Vienna.")
@click.option("--key", type=TYPED, help="Key of the record.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="Header of the record; repeatable.")
@click.option("--priority", type=click.IntRange(0, 255), default=0, show_default=True, help="0 to 255, higher first.")
@click.option("--coalesce", is_flag=True, help="Append nothing while the record of an earlier time waits for a worker.")
@with_session
def set_(
    topic: str, name: str, spec: str, value: bytes, zone: str, key: bytes | None,
    headers: tuple[tuple[str, bytes], ...], priority: int, coalesce: bool, session: Invocation,
) -> None:  # fmt: skip
    """Append VALUE to TOPIC at the times of SPEC, each once. Replaces a schedule of the same NAME.

    \b
    SPEC   "0 4 * * 1-5"   five fields of cron: minute, hour, day, month, weekday
           "every 30s"     s, m, h or d
    """
    with session.connect() as client:
        schedule = client.schedule(
            topic, name, spec, value, key=key, headers=dict(headers), zone=zone, priority=priority,
            coalesce=coalesce,
        )  # fmt: skip
    sentence = f"schedule {name} of {topic} is set; next at {utc_text(schedule.next) or 'no time that ever comes'}"
    session.output.say("set", sentence, **_as_json(schedule))


@command.command("list")
@click.argument("topic", type=TOPIC, required=False)
@with_session
def list_(topic: str | None, session: Invocation) -> None:
    """List the schedules of TOPIC, or of all."""
    with session.connect() as client:
        schedules = sorted(client.schedules(topic), key=lambda each: (each.topic, each.name))
    if session.output.as_json:
        for each in schedules:
            session.output.json(_as_json(each))
        return
    session.output.table(
        ["topic", "name", "when", "zone", "next", "last", "value"],
        [
            (s.topic, s.name, _when(s), s.zone, utc_text(s.next), utc_text(s.last), shown(s.value, most=40))
            for s in schedules
        ],
        empty="no schedules yet: penstock schedule set TOPIC NAME SPEC VALUE",
    )  # fmt: skip


@command.command
@topic_argument
@click.argument("name", type=SCHEDULE)
@with_session
@asks_first
def delete(topic: str, name: str, asks: bool, session: Invocation) -> None:
    """Delete schedule NAME of TOPIC. The records it appended stay."""
    with session.connect() as client:
        if asks:
            ask(f"delete schedule {name} of topic {topic}?")
        client.delete_schedule(topic, name)
    session.output.say("deleted", f"schedule {name} of {topic} deleted", topic=topic, name=name)


def _when(schedule: Schedule) -> str:
    return f"{schedule.spec} (coalesces)" if schedule.coalesce else schedule.spec


def _as_json(schedule: Schedule) -> dict[str, Any]:
    import msgspec

    plain = msgspec.to_builtins(msgspec.structs.replace(schedule, value=b"", key=None))
    del plain["value"]
    return {**plain, **json_bytes("key", schedule.key), **json_bytes("value", schedule.value)}
