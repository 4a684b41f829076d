"""Shared by the commands of `penstock spark`: a session, running a pipeline, progress, and a clean end.

Idea: checks run from the cheapest to the dearest: the broker, the topics, Java; then Spark is started. Progress is one
changing line on a terminal, and under --json a line for each batch.
Contract: ^C or SIGTERM stops a pipeline cleanly; one a second later at once. Either costs at most the running batch.
Standard error of Java and Python workers goes to a file, which stays if something failed.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from ..spark.errors import PipelineFailed
from ..spark.losses import GOING_ON
from ..storage import units
from ..storage.errors import Error
from .noted_signals import noted
from .options import ASSIGNMENT, DURATION, Invocation

if TYPE_CHECKING:
    from rich.status import Status

    from ..broker.stop import Stop
    from ..spark.pipelines import Pace, Progress

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS = (signal.SIGINT, signal.SIGTERM)

CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Of pyspark: they write the frames of an error; we say its sentence."""


@dataclass(frozen=True)
class RunOptions:
    """How a command runs Spark."""

    master: str
    settings: dict[str, str]
    every_s: float | None = None
    most: int | None = None
    skip_lost: bool = False


def on_spark(function: F) -> F:
    """Give a command that runs Spark --master and --conf, as `how`."""

    @functools.wraps(function)
    def command(*args: Any, master: str, conf: tuple[tuple[str, str], ...], **options: Any) -> Any:
        return function(*args, how=RunOptions(master, dict(conf)), **options)

    master = click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
    conf = click.option("--conf", type=ASSIGNMENT, multiple=True, help="Any setting of Spark; repeatable.")
    return master(conf(command))  # type: ignore[return-value]


def following(function: F) -> F:
    """Give a command that follows topics --every, --max-records and --skip-lost as well."""

    @functools.wraps(function)
    def command(
        *args: Any, how: RunOptions, every_s: float | None, most: int | None, skip_lost: bool, **options: Any
    ) -> Any:
        return function(*args, how=RunOptions(how.master, how.settings, every_s, most, skip_lost), **options)

    every = click.option(
        "--every", "every_s", type=DURATION, help="Run a batch per interval, until ^C.  [default: once, to the end]"
    )
    most = click.option("--max-records", "most", type=click.IntRange(1), help="At most N records per batch.")
    skip = click.option("--skip-lost", is_flag=True, help="Go on behind records that are gone unread, and say which.")
    return every(most(skip(on_spark(command))))  # type: ignore[return-value]


class Running:
    """A session of Spark for one command."""

    def __init__(
        self, session: Invocation, spark: Any, how: RunOptions, show: Callable[[Progress], None], stop: Stop
    ) -> None:
        self.spark = spark
        self.url = session.url
        self.show = show
        self._how = how
        self._stop = stop

    @property
    def pace(self) -> Pace:
        """The pace from the command line."""
        from ..spark.pipelines import Pace

        return Pace(self._how.every_s, self._how.most, self.show, self.stopped, self._how.skip_lost)

    def stopped(self) -> bool:
        """Whether a signal has asked the run to end."""
        return bool(self._stop)


@contextmanager
def running(session: Invocation, topics: Sequence[str], how: RunOptions, verb: str) -> Iterator[Running]:
    """Start Spark once broker and topics are known to exist. Raises NoBroker, UnknownTopic, MissingJava, and others."""
    from ..spark import java
    from ..spark import session as spark_session

    with session.connect() as client:
        for topic in topics:
            client.topic(topic)
    java.check()
    from ..spark.pipelines.failures import one_sentence  # needs pyarrow, which comes with pyspark's extra

    for name in CONTEXT_LOGGERS:
        logging.getLogger(name).disabled = True
    with ExitStack() as stack:
        stack.enter_context(aside(session))
        if session.output.shows_progress:
            status = stack.enter_context(session.output.notes.status("starting Spark"))
            show = functools.partial(_update, status, verb)
        else:
            show = functools.partial(_tell, session)
        with one_sentence():
            spark = spark_session(f"penstock spark {verb}", master=how.master, settings=how.settings)  # ends with us
        yield Running(session, spark, how, show, stack.enter_context(noted(*SIGNALS)))


@contextmanager
def aside(session: Invocation) -> Iterator[None]:
    """Redirect standard error of processes started in the block to a file."""
    descriptor, path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    ours = os.dup(2)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    of_use = False
    with os.fdopen(ours, "w", buffering=1) as stderr:
        try:
            with redirect_stderr(stderr):
                yield
        except Exception as error:
            of_use = not isinstance(error, Error) or isinstance(error, PipelineFailed)
            raise
        finally:
            os.dup2(ours, 2)
            for line in dict.fromkeys(Path(path).read_text(errors="replace").splitlines()):
                if line.endswith(GOING_ON):
                    session.output.note(line)
            if of_use:
                session.output.note(f"what Spark wrote is in {path}")
            else:
                os.unlink(path)


def _update(status: Status, verb: str, progress: Progress) -> None:
    """Show progress to people, on the status line."""
    status.update(sentence(verb, progress))


def _tell(session: Invocation, progress: Progress) -> None:
    """Print progress as JSON, once per batch."""
    if session.output.as_json:
        session.output.json({"event": "progress", **as_json(progress)})


def sentence(verb: str, progress: Progress) -> str:
    """A pipeline's progress, for people."""
    behind = "" if progress.lag is None else f", {units.count_text(progress.lag, 'record')} behind"
    rate = f" at {progress.rate:,.0f} records/s" if progress.rate >= 1 else ""
    return f"{units.count_text(progress.records, 'record')} {verb}{rate}{behind}"


def as_json(progress: Progress) -> dict[str, Any]:
    """A pipeline's progress, for programs."""
    return msgspec.to_builtins(progress, str_keys=True)


def finish(session: Invocation, verb: str, progress: Progress, where: str) -> None:
    """Report how the run ended."""
    session.output.say(verb, f"{sentence(verb, progress)}, {where}", **as_json(progress))
