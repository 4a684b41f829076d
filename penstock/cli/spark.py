"""`penstock spark`: topics to and from files with Spark, and rollups over time.

Contract: every command can be stopped at any moment and started again; results are as if it had run once.
`spark_runs.py` says how it ends.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from .names import TOPIC, topic_argument
from .options import Invocation, with_session
from .positions import MOMENT
from .spark_runs import RunOptions, finish, following, on_spark, running

FORMATS = ("parquet", "delta", "iceberg")
DIRECTORY = click.Path(file_okay=False)

CHECKPOINT = click.option(
    "--checkpoint", type=DIRECTORY, required=True, help="The directory with its progress; for this pipeline only."
)
OWN_CHECKPOINT = click.option(
    "--checkpoint", type=DIRECTORY, help="The directory with its progress.  [default: below --to]"
)


@click.group
def command() -> None:
    """Archive, replay, roll up and compact topics with Spark.

    Needs Java, and an extra: pip install '.[spark]' in a clone of penstock.

    Every command may be stopped at any moment and called again with the same options: it resumes, with results as if
    it had run once.
    """


@command.command(short_help="Archive topics as Parquet files, a Delta or an Iceberg table.")
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="TOPIC...")
@click.option("--to", "target", type=DIRECTORY, required=True, help="A directory: new, or of this archive.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option("--cursor", metavar="GROUP", help="Track progress as this group, so that retention can wait.")
@OWN_CHECKPOINT
@following
@with_session
def archive(
    topics: tuple[str, ...], target: str, form: Any, cursor: str | None, checkpoint: str | None, how: RunOptions,
    session: Invocation,
) -> None:  # fmt: skip
    """Archive TOPICs by topic, date and hour (UTC), from their first records on, each record once.

    With --cursor, and `retain_unread` set on the topic, the broker keeps records until they are archived.
    """
    with running(session, topics, how, "archived") as run:
        from ..spark.pipelines import archive

        progress = archive(
            run.spark, run.url, topics, target, format=form, checkpoint=checkpoint, cursor=cursor, pace=run.pace
        )
        finish(session, "archived", progress, f"in {target}")


@command.command(short_help="Append an archive, or a range of a topic, to a topic.")
@click.argument("target", metavar="TARGET")
@click.option("--archive", type=click.Path(exists=True, file_okay=False), help="The directory of an archive.")
@click.option("--topic", help="A topic; with --archive, one of its topics.")
@click.option("--start", type=MOMENT, help="Only from this time on, e.g. 2026-01-31T12:00.")
@click.option("--end", type=MOMENT, help="Only before this time.")
@click.option("--keep-partitions", is_flag=True, help="Keep records in their partitions, instead of by key.")
@CHECKPOINT
@on_spark
@with_session
def replay(
    target: str, archive: str | None, topic: str | None, start: datetime | None, end: datetime | None,
    keep_partitions: bool, checkpoint: str, how: RunOptions, session: Invocation,
) -> None:  # fmt: skip
    """Append records to TARGET once more, with the keys, headers and times they had.

    Times are those of an archive's records, or when the records of a topic were appended.
    """
    if archive is None and topic is None:
        raise click.UsageError("say what to replay: --archive DIRECTORY or --topic NAME")
    if start is not None and end is not None and start >= end:
        raise click.UsageError("--start has to be before --end: there is nothing between them")
    sources = [topic] if topic is not None and archive is None else []
    with running(session, [target, *sources], how, "replayed") as run:
        from ..spark.pipelines import replay

        progress = replay(
            run.spark, run.url, target, checkpoint=checkpoint, archive=archive, topic=topic, start=start, end=end,
            keep_partitions=keep_partitions, on_progress=run.show, stopped=run.stopped,
        )  # fmt: skip
        finish(session, "replayed", progress, f"into {target}")


@command.command(short_help="Count records by key and window, into a topic.")
@topic_argument
@click.argument("target", metavar="TARGET")
@click.option("--window", default="1 minute", show_default=True, help="Length of a window.")
@click.option("--slide", help="Distance between the starts of two windows.  [default: --window]")
@click.option("--late", default="10 minutes", show_default=True, help="How late a record may be and still count.")
@click.option("--by", default="key", show_default=True, help="What to count by: Spark SQL over a record's columns.")
@CHECKPOINT
@following
@with_session
def rollup(
    topic: str, target: str, window: str, slide: str | None, late: str, by: str, checkpoint: str, how: RunOptions,
    session: Invocation,
) -> None:  # fmt: skip
    """Append to TARGET how many records of TOPIC there were by key and window, once nothing more can come for it."""
    if topic == target:
        raise click.UsageError("TARGET has to be another topic than TOPIC: counts would be counted, too")
    with running(session, [topic, target], how, "counted") as run:
        from ..spark.pipelines import rollup

        progress = rollup(
            run.spark, run.url, topic, target, checkpoint=checkpoint, window=window, slide=slide, late=late, by=by,
            pace=run.pace,
        )  # fmt: skip
        finish(session, "counted", progress, f"into {target}")


@command.command("dead-letters", short_help="Count dead letters by reason and window.")
@topic_argument
@click.option("--group", help="Count the dead letters of this queue group of TOPIC, as the broker lists them.")
@click.option("--window", default="1 hour", show_default=True, help="Length of a window.")
@click.option("--into", "target", metavar="TARGET", help="Append the counts to this topic.")
@click.option("--checkpoint", type=DIRECTORY, help="With --into: the directory with its progress.")
@following
@with_session
def dead_letters(
    topic: str,
    group: str | None,
    window: str,
    target: str | None,
    checkpoint: str | None,
    how: RunOptions,
    session: Invocation,
) -> None:
    """Count the failures in the dead-letter topic TOPIC, or in a queue --group of TOPIC, by reason and window.

    Reasons that differ in numbers only are one: each number is shown as #.
    """
    if (target is None) != (checkpoint is None) or (target is not None and group is not None):
        raise click.UsageError("--into goes with --checkpoint, and with a dead-letter topic in place of --group")
    if topic == target:
        raise click.UsageError("--into has to be another topic: a dead-letter topic holds dead letters")
    if target is None and (how.every_s or how.most):
        raise click.UsageError("--every and --max-records go with --into: without it what is there now is counted")
    with running(session, [topic] if target is None else [topic, target], how, "counted") as run:
        from ..spark.pipelines import by_reason, count_dead_letters, dead_letters
        from ..spark.pipelines.failures import one_sentence

        if target is not None and checkpoint is not None:
            progress = count_dead_letters(
                run.spark, run.url, topic, target, checkpoint=checkpoint, window=window, pace=run.pace
            )
            finish(session, "counted", progress, f"into {target}")
            return
        with one_sentence():
            found = by_reason(dead_letters(run.spark, run.url, topic, group=group), window).collect()
    rows = [row.asDict() for row in found]
    if session.output.as_json:
        for row in rows:
            session.output.json(row)
        return
    columns = ["from", "to", "topic", "group", "reason", ">dead-lettered"]
    session.output.table(columns, [tuple(row.values()) for row in rows], empty="no dead letters")


@command.command(short_help="Compact a topic to the latest record of each key.")
@topic_argument
@click.option("--to", "directory", type=DIRECTORY, help="Parquet, in DIRECTORY/current.")
@click.option("--into", "target", metavar="TARGET", help="A topic.")
@click.option("--deletes", help="With --to: which records delete their key, Spark SQL: length(value) = 0.")
@OWN_CHECKPOINT
@following
@with_session
def compact(
    topic: str, directory: str | None, target: str | None, deletes: str | None, checkpoint: str | None, how: RunOptions,
    session: Invocation,
) -> None:  # fmt: skip
    """Keep the latest record of each key of TOPIC --to a directory, or append it --into a topic."""
    if (directory is None) == (target is None) or (target is not None and checkpoint is None):
        raise click.UsageError("say where to: --to DIRECTORY, or --into TOPIC with --checkpoint DIRECTORY")
    if target is not None and deletes is not None:
        raise click.UsageError("--deletes goes with --to: a topic keeps what was appended to it")
    if topic == target:
        raise click.UsageError("--into has to be another topic: what is appended would be read again")
    with running(session, [topic] if target is None else [topic, target], how, "compacted") as run:
        from ..spark.pipelines import compact, compact_into

        if directory is not None:
            progress = compact(
                run.spark, run.url, topic, directory, checkpoint=checkpoint, deletes=deletes, pace=run.pace
            )
        else:
            progress = compact_into(run.spark, run.url, topic, str(target), checkpoint=str(checkpoint), pace=run.pace)
        finish(session, "compacted", progress, f"in {directory}/current" if directory else f"into {target}")
