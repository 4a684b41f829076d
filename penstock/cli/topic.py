"""`penstock topic`: create, adopt, list, show, alter, trim and delete topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import config as configuration
from ..storage import units
from .consent import ask, asks_first
from .names import TOPIC
from .options import DURATION, SIZE, Invocation, with_config, with_session
from .output import Output
from .positions import POSITION

if TYPE_CHECKING:
    from ..clients import Partition, Topic

_NONE_YET = "no topics yet: penstock topic create NAME"
_NONE_TO_SEE = "no topics that the user of this key may see: penstock acl add FILE USER see topic:NAME, or topic create"

F = TypeVar("F", bound=Callable[..., Any])


@click.group
def command() -> None:
    """Create, adopt, list, show, alter, trim and delete topics."""


def _settings(function: F) -> F:
    """Add a topic's settings as options; None is "not given"."""
    for option in (
        click.option("--dedup-window", "dedup_window_s", type=DURATION, help="How long dedup keys are remembered."),
        click.option(
            "--dedup",
            type=click.Choice(["drop", "replace", "extend"]),
            help="Of tasks with one dedup key, process the first, or the last; "
            "extend: the first, renewing the window with each further one.",
        ),
        click.option("--max-record-bytes", type=SIZE, help="Largest record."),
        click.option("--codec", type=click.Choice(["none", "lz4", "zstd"]), help="How clients compress values."),
        click.option("--retain-unread/--no-retain-unread", default=None, help="Keep what a group has not committed."),
        click.option(
            "--retention-records", type=click.IntRange(0), help="Keep this many records per partition; 0: no limit."
        ),
        click.option("--retention-bytes", type=SIZE, help="Keep about this much per partition; 0: no limit."),
        click.option("--retention", "retention_s", type=DURATION, help="Keep records so long, e.g. 7d; 0: forever."),
        click.option("--segment-bytes", type=SIZE, help="Size of a log's files; retention removes whole ones."),
    ):
        function = option(function)
    return function


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The given settings; 0 lifts a limit of retention."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: None if name.startswith("retention") and not value else value for name, value in given.items()}


@command.command
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option("--commit", type=click.Choice(["durable", "written"]), help="Acknowledge when synced, or when written.")
@click.option(
    "--partitioner",
    type=click.Choice(["xxh3", "murmur2"]),
    help="How keys choose partitions; murmur2: as Kafka's clients do.",
)
@click.option("--if-missing", is_flag=True, help="Accept an existing topic of this name, unless it differs.")
@_settings
@with_session
def create(name: str, partitions: int, if_missing: bool, session: Invocation, **options: Any) -> None:
    """Create topic NAME."""
    from ..broker.errors import TopicExists

    given = _given(options)
    with session.connect() as client:
        try:
            topic = client.create_topic(name, partitions=partitions, **given)
        except TopicExists:
            if not if_missing:
                raise
            topic = client.create_topic(name, partitions=partitions, if_missing=True, **given)
            session.output.say("exists", f"topic {name} exists", topic=name, partitions=len(topic.partitions))
            return
    count = len(topic.partitions)
    sentence = f"topic {name} created with {units.count_text(count, 'partition')}"
    session.output.say("created", sentence, topic=name, id=topic.id, partitions=count, settings=topic.settings)


@command.command(short_help="Take over the directory of a penstock.Log as a topic.")
@click.argument("name")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--data", metavar="DIR", help="The data directory. Default: that of the configuration.")
@click.option("--commit", type=click.Choice(["durable", "written"]), help="Acknowledge when synced, or when written.")
@_settings
@with_config
def adopt(
    name: str, directory: Path, data: str | None, settings: tuple[tuple[str, str], ...], config_file: str | None,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Take over DIRECTORY, of a penstock.Log, as topic NAME of one partition: its files move, and none is copied.

    While no broker runs, and no process has the log open. What was interrupted goes on with the same command.
    """
    from ..clients.adopting import adopt as take_over

    config = configuration.load({**dict(settings), "data": data}, path=config_file).config
    was_there = directory.exists()
    topic = take_over(config.data, name, str(directory), **_given(options))
    done = f"topic {name} took over {directory}"
    before = f"topic {name} has taken over {directory} already"
    sentence = f"{done if was_there else before}: {units.count_text(topic.records, 'record')}"
    Output(as_json=as_json).say("adopted", sentence, topic=name, id=topic.id, records=topic.records)


@command.command("list")
@with_session
def list_(session: Invocation) -> None:
    """List topics."""
    with session.connect() as client:
        topics = sorted(client.topics(), key=lambda topic: topic.name)
    if session.output.as_json:
        for topic in topics:
            session.output.json(_as_json(topic))
        return
    session.output.table(
        ["topic", ">partitions", ">records", ">size", "commit", "state"],
        [
            (t.name, len(t.partitions), t.records, units.size_text(t.size_bytes), t.settings["commit"], _state(t))
            for t in topics
        ],
        empty=_NONE_TO_SEE if session.authenticates else _NONE_YET,
    )


@command.command
@click.argument("name", type=TOPIC)
@with_session
def show(name: str, session: Invocation) -> None:
    """Show topic NAME: its settings and partitions."""
    with session.connect() as client:
        topic = client.topic(name)
    if session.output.as_json:
        session.output.json(_as_json(topic))
        return
    directories = {str(Path(partition.directory).parent) for partition in topic.partitions if partition.directory}
    settings = [(setting, _setting_text(setting, value)) for setting, value in topic.settings.items()]
    places = [("directory", directory) for directory in sorted(directories)]
    session.output.fields([("topic", topic.name), ("id", topic.id), *places, *settings])
    session.output.console.print()
    headings = [">partition", ">first", ">end", ">records", ">size", ">segments", "state"]
    rows: list[tuple[Any, ...]] = [
        (p.partition, p.first, p.end, p.records, units.size_text(p.size_bytes), p.segments, p.state)
        for p in topic.partitions
    ]
    if any(p.lent_to or p.recalled for p in topic.partitions):
        headings += ["lent to", ">borrowed", ">recalled"]
        rows = [(*row, _holder(p), p.borrowed, p.recalled) for row, p in zip(rows, topic.partitions, strict=True)]
    session.output.table(headings, rows)


def _holder(partition: Partition) -> str:
    """The producer that a partition is lent to, and its process."""
    if not partition.lent_to:
        return "-"
    process = f", process {partition.lent_process}" if partition.lent_process else ""
    return f"{partition.lent_to}{process}"


@command.command
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=click.IntRange(1), help="Grow to N partitions; keys then go to other partitions.")
@_settings
@with_session
def alter(name: str, partitions: int | None, session: Invocation, **options: Any) -> None:
    """Change settings of topic NAME, or add partitions."""
    given = _given(options)
    if not given and partitions is None:
        raise click.UsageError("nothing to change: give a setting or --partitions")
    with session.connect() as client:
        topic = client.alter_topic(name, partitions=partitions, **given)
    count = len(topic.partitions)
    session.output.say("altered", f"topic {name} altered", topic=name, partitions=count, settings=topic.settings)


@command.command(short_help="Remove the oldest records of a topic.")
@click.argument("name", type=TOPIC)
@click.option("--records", type=click.IntRange(0), help="So many stay, per partition.")
@click.option("--before", type=POSITION, help="Those before an offset or a time go; latest: all.")
@click.option("--partition", type=click.IntRange(0), help="Only this one; an offset needs it where there are several.")
@with_session
@asks_first
def trim(name: str, records: int | None, before: Any, partition: int | None, asks: bool, session: Invocation) -> None:
    """Remove the oldest records of topic NAME, whatever groups still have to do with them."""
    if (records is None) == (before is None):
        raise click.UsageError("give --records or --before")
    with session.connect() as client:
        if asks:
            ask(f"remove records of topic {name}, also those that groups have not finished?")
        found = client.trim(name, partition, records=records, before=before)
    removed, lost = sum(each.removed for each in found), dict[str, int]()
    for each in found:
        for group, count in each.lost.items():
            lost[group] = lost.get(group, 0) + count
    said = "".join(f"; group {group} lost {units.count_text(count, 'record')}" for group, count in sorted(lost.items()))
    sentence = f"topic {name} trimmed: {units.count_text(removed, 'record')} removed{said}"
    firsts = {each.partition: each.first for each in found}
    session.output.say("trimmed", sentence, topic=name, removed=removed, lost=lost, first=firsts)


@command.command
@click.argument("name", type=TOPIC)
@with_session
@asks_first
def delete(name: str, asks: bool, session: Invocation) -> None:
    """Delete topic NAME with all its records and groups."""
    with session.connect() as client:
        topic = client.topic(name)
        if asks:
            ask(f"delete topic {name} with {units.count_text(topic.records, 'record')}?")
        client.delete_topic(name)
    session.output.say("deleted", f"topic {name} deleted", topic=name, records=topic.records)


def _as_json(topic: Topic) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(topic), "records": topic.records, "size_bytes": topic.size_bytes}


def _state(topic: Topic) -> str:
    """The worst state of its partitions."""
    states = {partition.state for partition in topic.partitions}
    return next((state for state in ("poisoned", "damaged") if state in states), "ok")


def _setting_text(name: str, value: Any) -> str:
    if value is None:
        return "no limit"
    if name.endswith("_bytes"):
        return units.size_text(value)
    if name.endswith("_s"):
        return units.time_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
