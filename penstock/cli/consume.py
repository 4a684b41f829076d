"""`penstock consume`: read records of a topic, alone or as a member of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import Struct

from .formats import FORMATS, Format, writer
from .options import Session, with_session
from .positions import POSITION, Position

if TYPE_CHECKING:
    from ..clients import Client

MOST = 4096
"""Records per fetch."""

WAIT_S = 0.25
"""How long a fetch waits for the first record; the end is looked for in between."""

COMMIT_S = 1.0
"""Between two commits of a group's progress."""


class Wanted(Struct, frozen=True):
    """What was asked for."""

    topic: str
    group: str | None
    start: Position
    partition: int | None
    count: int | None
    follow: bool
    commit: bool


@click.command
@click.argument("topic")
@click.option("--format", "form", type=click.Choice(FORMATS), help="See below.  [default: lines; with --json: json]")
@click.option("--group", help="Read as a member of this group, from where it stands.")
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, help="See below.")
@click.option("--partition", type=click.IntRange(0), help="Only this one; not with --group.")
@click.option("--count", type=click.IntRange(1), help="End after so many records.")
@click.option("--follow/--no-follow", " /--until-end", default=True, help="Wait for more, or end where the topic ends.")
@click.option("--commit/--no-commit", default=True, help="With --group: remember what was written.")
@with_session
def command(
    topic: str, form: Format | None, group: str | None, start: Position, partition: int | None, count: int | None,
    follow: bool, commit: bool, session: Session,
) -> None:  # fmt: skip
    """Write records of TOPIC to standard output.

    \b
    --format lines  every value with a newline behind; any bytes
             json   an object per line: {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
                    bytes that are not UTF-8: "value_base64", "key_base64", "headers_base64"
             raw    values back to back, nothing added
    --from   earliest, latest, an offset, a time (2026-01-31T12:00), or so long ago (-15m);
             in a group: only for partitions that it has not read yet
    """
    if group is not None and partition is not None:
        raise click.UsageError("--partition does not go with --group: members share the partitions")
    wanted = Wanted(topic, group, start, partition, count, follow, commit and group is not None)
    encode = writer(form or ("json" if session.output.as_json else "lines"))
    with session.connect() as client:
        ends = None if follow else _ends(client, wanted)
        with _open(client, wanted) as consumer:
            _copy(consumer, wanted, ends, encode)


def _ends(client: Client, wanted: Wanted) -> dict[int, int]:
    """Where the topic ends now, by partition."""
    return {
        each.partition: each.end
        for each in client.topic(wanted.topic).partitions
        if wanted.partition in (None, each.partition)
    }
