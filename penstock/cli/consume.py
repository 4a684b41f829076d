"""`penstock consume`: read records of a topic, alone or as a member of a group."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import click
from msgspec import Struct

from ..broker.errors import PartitionUnavailable, UnknownPartition
from ..storage.errors import Corrupt, OutOfBounds
from ..storage.record import Record
from . import exits
from .formats import FORMATS, Format, writer
from .names import GROUP, topic_argument
from .noted_signals import noted
from .options import Invocation, with_session
from .output import complain
from .positions import POSITION, Position
from .standard_streams import binary_stdout

if TYPE_CHECKING:
    from ..broker.stop import Stop
    from ..clients import Client, Consumer

Delivery = Literal["auto", "push", "control", "mapped"]
DELIVERIES: tuple[Delivery, ...] = ("auto", "push", "control", "mapped")

MOST = 4096
"""Records per fetch."""

WAIT_S = 0.25
"""How long a fetch waits for the first record; the end is looked for in between."""

COMMIT_S = 1.0
"""Between two commits of a group's progress."""


class Wanted(Struct, frozen=True):
    """The options of the command."""

    topic: str
    group: str | None
    start: Position
    partition: int | None
    count: int | None
    follow: bool
    commit: bool
    delivery: Delivery


@click.command
@topic_argument
@click.option("--format", "form", type=click.Choice(FORMATS), help="See above.  [default: lines; with --json: json]")
@click.option("--group", type=GROUP, help="Read as a member of this group, from its cursor.")
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, help="See above.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition; not with --group.")
@click.option("--count", type=click.IntRange(1), help="End after N records.")
@click.option(
    "--follow/--no-follow", " /--until-end", default=True,
    help="Wait for more, or end where the topic ends.  [default: --follow]",
)  # fmt: skip
@click.option(
    "--delivery", type=click.Choice(DELIVERIES), default="auto", show_default=True, help="How records are delivered."
)
@click.option("--commit/--no-commit", default=None, help="With --group: commit the records written.  [default: commit]")
@with_session
def command(
    topic: str, form: Format | None, group: str | None, start: Position, partition: int | None, count: int | None,
    follow: bool, commit: bool | None, delivery: Delivery, session: Invocation,
) -> int:  # fmt: skip
    """Write records of TOPIC to standard output. Damaged ones are skipped and reported: exit code 5.

    \b
    --format lines  every value with a newline behind; any bytes
             json   an object per line: {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
                    bytes that are not UTF-8: "value_base64", "key_base64", "headers_base64"
             msgpack  a map after the other, with the names of json and bytes as they are
             raw    values back to back, nothing added
    --from   earliest, latest, an offset, a time (2026-01-31T12:00), or so long ago (-15m);
             in a group: only for partitions that it has not read yet
    """
    if group == "":
        raise click.UsageError("--group is empty: name the group, or leave it out to read alone")
    if group is not None and partition is not None:
        raise click.UsageError("--partition does not go with --group: members share the partitions")
    if commit and group is None:
        raise click.UsageError("--commit goes with --group: without one there is no cursor to move")
    commits = commit is not False and group is not None
    wanted = Wanted(topic, group, start, partition, count, follow, commits, delivery)
    encode = writer(form or ("json" if session.output.as_json else "lines"))
    with session.connect() as client:
        ends = None if follow else _ends(client, wanted)
        with _open(client, wanted) as consumer, noted(signal.SIGINT) as interrupted:
            copy = _Copy(client, consumer, wanted, interrupted, as_json=session.output.as_json)
            copy.run(encode, ends)
    if interrupted:
        raise KeyboardInterrupt
    return exits.DAMAGED if copy.damaged else exits.OK


def _ends(client: Client, wanted: Wanted) -> dict[int, int]:
    """The present ends of the topic, by partition."""
    return {
        each.partition: each.end
        for each in client.topic(wanted.topic).partitions
        if wanted.partition in (None, each.partition)
    }


def _open(client: Client, wanted: Wanted) -> Consumer:
    """A consumer at the position where it should begin."""
    if wanted.group is not None:
        if isinstance(wanted.start, int):
            raise click.UsageError("--from OFFSET does not go with --group: penstock group reset moves a group")
        commit_s = COMMIT_S if wanted.commit else None
        return client.consumer(
            wanted.topic, group=wanted.group, start=wanted.start, delivery=wanted.delivery, auto_commit=commit_s
        )
    positions = _positions(client, wanted)
    start = "earliest" if isinstance(wanted.start, int) else wanted.start
    return client.consumer(wanted.topic, start=start, positions=positions, delivery=wanted.delivery)


def _positions(client: Client, wanted: Wanted) -> dict[int, int]:
    """Offsets to begin at if `--from` is not enough: an offset, or one partition of several."""
    partitions = {each.partition: each for each in client.topic(wanted.topic).partitions}
    if wanted.partition is not None and wanted.partition not in partitions:
        raise UnknownPartition(f"topic {wanted.topic} has no partition {wanted.partition}: 0 to {len(partitions) - 1}")
    found = {number: each.end for number, each in partitions.items() if wanted.partition not in (None, number)}
    if isinstance(wanted.start, int):
        found |= {number: wanted.start for number in partitions if number not in found}
    return found


class _Copy:
    """Writes records until there are enough.

    A commit covers what was fetched before the last fetch: that was written and flushed.
    """

    def __init__(
        self, client: Client, consumer: Consumer, wanted: Wanted, interrupted: Stop, *, as_json: bool
    ) -> None:  # fmt: skip
        self._client = client
        self._consumer = consumer
        self._wanted = wanted
        self._interrupted = interrupted
        self._as_json = as_json
        self._left = wanted.count
        self.damaged = False  # records were skipped, each with a line on standard error

    def run(self, encode: Callable[[list[Record]], bytes], ends: dict[int, int] | None) -> None:
        """Print records up to the end, the count, or an interrupt, which is how following ends."""
        stdout = binary_stdout()
        begun = False  # the first fetch tells of partitions that cannot be read, also when there is nothing else
        while self._left != 0 and not self._interrupted and not (begun and ends is not None and self._is_read(ends)):
            begun = True
            try:
                stdout.write(encode(self._fetch()))
            except Corrupt as error:
                if error.next_offset is None:
                    raise
                complain(error.code, error.message, as_json=self._as_json)
                self.damaged = True
            except OutOfBounds as error:  # retention was faster
                complain(error.code, error.message, as_json=self._as_json)
                self.damaged = True
            except PartitionUnavailable as error:
                if self._wanted.partition == error.partition:
                    raise
                if self._wanted.partition is None:
                    complain(error.code, error.message, as_json=self._as_json)
                    self.damaged = True
            stdout.flush()

    def _fetch(self) -> list[Record]:
        wanted = self._wanted
        records = self._consumer.fetch(MOST if self._left is None else min(self._left, MOST), WAIT_S)
        if wanted.partition is not None:
            records = [record for record in records if record.partition == wanted.partition]
        if self._left is not None:
            self._left -= len(records)
        return records

    def _is_read(self, ends: dict[int, int]) -> bool:
        """Whether all records up to `ends` were handed out here, or committed by the partition's owner."""
        positions = self._consumer.position
        if any(position < ends.get(partition, 0) for partition, position in positions.items()):
            return False
        if self._wanted.group is None:
            return True
        group = self._client.group(self._wanted.topic, self._wanted.group)
        others = (each for each in group.partitions if each.partition not in positions)
        return all(each.cursor >= ends.get(each.partition, 0) for each in others)
