"""`penstock produce`: write records to a topic, from files or standard input."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ..storage import units
from ..storage.header_list import HeaderList, of_pairs
from .formats import FORMATS, Entry, Format, entries
from .names import topic_argument
from .options import HEADER, TYPED, Invocation, with_session

if TYPE_CHECKING:
    from ..clients import Producer

CHUNK_BYTES = 1 << 20
"""Most that is read at once; what a slow pipe gave so far is sent without waiting for more."""


@click.command
@topic_argument
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option("--format", "form", type=click.Choice(FORMATS), default="lines", show_default=True, help="See above.")
@click.option("--key", type=TYPED, help="Key of all records without one.")
@click.option("--key-separator", type=TYPED, metavar="TEXT", help="With lines: the text before it is the record's key.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="Header of all records; repeatable.")
@click.option("--partition", type=click.IntRange(0), help="Send all records to this partition, instead of by key.")
@with_session
def command(
    topic: str, files: tuple[BinaryIO, ...], form: Format, key: bytes | None, key_separator: bytes | None,
    headers: tuple[tuple[str, bytes], ...], partition: int | None, session: Invocation,
) -> None:  # fmt: skip
    """Write records to TOPIC, from FILES or standard input; done when all are committed.

    \b
    lines  a record per line, without its newline; any bytes
    json   an object per line: {"value": "...", "key": "...", "headers": {"name": "..."}, "timestamp": 1767225600000000}
           only a value is needed; the timestamp is in microseconds UTC
           topic, partition and offset, as `consume` writes them, are ignored: --partition says where records go
           bytes that are not UTF-8: "value_base64", "key_base64", "headers_base64"
    msgpack  a map after the other, with the names of json and bytes as they are
    raw    every input whole as one record
    """
    if key_separator is not None and form != "lines":
        raise click.UsageError("--key-separator goes with --format lines")
    extra, separator = _Extra(key, dict(headers), partition), key_separator or b""
    started = time.perf_counter()
    with session.connect() as client, client.producer(topic) as producer, _progress(session, files) as advance:
        sent = _Sender(producer, extra)
        for source in files or (sys.stdin.buffer,):
            for batch in entries(form, _chunks(source, advance), name=_name(source), key_separator=separator):
                sent.send(batch)
    took = time.perf_counter() - started
    what = f"{units.count_text(sent.records, 'record')} ({units.size_text(sent.bytes)})"
    sentence = f"{what} to {topic} in {units.time_text(took)}"
    session.output.say("produced", sentence, topic=topic, records=sent.records, bytes=sent.bytes, seconds=took)


class _Extra:
    """The key and headers of all records."""

    def __init__(self, key: bytes | None, headers: dict[str, bytes], partition: int | None) -> None:
        self.key = key
        self.headers = headers
        self.partition = partition


class _Sender:
    """Sends entries, those without headers many at a time, and counts them."""

    def __init__(self, producer: Producer, extra: _Extra) -> None:
        self.records = 0
        self.bytes = 0
        self._producer = producer
        self._extra = extra

    def send(self, batch: list[Entry]) -> None:
        """Send and wait until all are committed."""
        if self._extra.headers or any(entry.headers or entry.timestamp is not None for entry in batch):
            self._one_by_one(batch)
        else:
            self._together(batch)
        self.records += len(batch)
        self.bytes += sum(len(entry.value or b"") for entry in batch)

    def _together(self, batch: list[Entry]) -> None:
        keys = [self._extra.key if entry.key is None else entry.key for entry in batch]
        keyed = any(key is not None for key in keys)
        values = [entry.value for entry in batch]
        self._producer.send_many(values, keys=keys if keyed else None, partition=self._extra.partition)

    def _one_by_one(self, batch: list[Entry]) -> None:
        extra = self._extra
        for entry in batch:
            self._producer.send_nowait(
                entry.value,
                key=extra.key if entry.key is None else entry.key,
                headers=_headers(extra.headers, entry.headers or {}),
                timestamp=entry.timestamp,
                partition=extra.partition,
            )
        self._producer.flush()


def _headers(extra: Mapping[str, bytes], given: Mapping[str, bytes]) -> Mapping[str, bytes] | None:
    """Those of a record before those for all."""
    if not isinstance(given, HeaderList):
        return {**extra, **given} or None
    names = {name for name, _ in given.pairs}
    return of_pairs([*((name, value) for name, value in extra.items() if name not in names), *given.pairs])


def _chunks(source: BinaryIO, advance: Any) -> Iterator[bytes]:
    while chunk := source.read1(CHUNK_BYTES):  # type: ignore[attr-defined]  # all of click's and sys's are buffered
        yield chunk
        advance(len(chunk))


def _name(source: BinaryIO) -> str:
    name = getattr(source, "name", "<stdin>")
    return "standard input" if name in ("<stdin>", 0) else str(name)


@contextmanager
def _progress(session: Invocation, files: Iterable[BinaryIO]) -> Iterator[Any]:
    """A function to call with bytes read: moves a progress bar when files are sent from a terminal."""
    sizes = [os.fstat(file.fileno()).st_size for file in files]
    if not session.output.shows_progress or not sizes:
        yield lambda count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    with Progress(
        BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=session.output.notes, transient=True
    ) as bars:
        task = bars.add_task("", total=sum(sizes))
        yield lambda count: bars.advance(task, count)
