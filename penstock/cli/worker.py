"""`penstock worker`: run the task functions of an application; list and forget workers (known_workers.py).

Idea: `run` is meant where no command is named, as in `penstock worker shop:app`.
Contract for programs: under --json one line {"event": "ready", "queues": [...], "concurrency": n, "pid": n} on standard
output once it leases, and {"event": "drained", "outcomes": {...}} at the end; 0 after a drain on SIGTERM or ^C; a
signal a second later ends it without waiting for what runs. The log goes to standard error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from ..broker.stop import Stop
from ..storage.errors import Error
from .known_workers import forget, list_
from .options import DURATION, with_output
from .output import Output
from .standard_streams import unread_is_fine

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from ..clients.tasks import Tasks
    from ..clients.tasks.runner import Runner

CORES = os.cpu_count() or 1


class BrokenApp(Error):
    """An application's module raised when it was imported."""

    code = "broken_app"


class _Runs(click.Group):
    """A group whose first command is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


RUN = "run"


@click.group(cls=_Runs, subcommand_metavar="MODULE:APP | COMMAND [ARGS]...")
def command() -> None:
    """Run the task functions of an application; list workers and the tasks that they hold; forget workers."""


command.add_command(list_)
command.add_command(forget)


@command.command(RUN, short_help="Run the task functions of an application; the word run may be left out.")
@click.argument("place", metavar="MODULE:APP")
@click.option("--concurrency", type=click.IntRange(1), default=CORES, help="Calls at once.  [default: one per core]")
@click.option("--queue", "queues", multiple=True, help="Only this queue of the app; repeatable.")
@click.option(
    "--drain",
    "drain_s",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long running calls may take to end.",
)
@click.option("--url", metavar="URL", help="Another broker than the app's.")
@with_output
def run(place: str, concurrency: int, queues: tuple[str, ...], drain_s: float, url: str | None, output: Output) -> None:
    """Run the task functions of APP, a penstock.Tasks in MODULE, until SIGTERM or ^C.

    Then nothing more is leased, what runs may finish for --drain, and the rest is released; a signal that comes a
    second later does not wait for what runs. The broker may be restarted meanwhile.
    """
    from ..clients.tasks.runner import Runner

    app = load(place)
    if url is not None:
        app.url = url
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)

    def ready(runner: Runner) -> None:
        names = [queue.topic for queue in runner.queues]
        sentence = f"working on {', '.join(names)} at {app.url}, {concurrency} at once; ^C ends it"
        with unread_is_fine():
            output.say("ready", sentence, queues=names, concurrency=concurrency, pid=os.getpid())

    outcomes = asyncio.run(_work(lambda: Runner(app, concurrency=concurrency, queues=queues, drain_s=drain_s), ready))
    counts = ", ".join(f"{count:,} {name}" for name, count in outcomes.items()) or "nothing was worked on"
    output.say("drained", f"drained: {counts}", outcomes=outcomes)


async def _work(make: Callable[[], Runner], ready: Callable[[Runner], None]) -> dict[str, int]:
    """Run until a signal. Returns outcomes of tasks."""
    runner, stop = make(), Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: stop.tell() and runner.stop())
    await runner.run(lambda: ready(runner))
    return dict(runner.outcomes)


def load(place: str) -> Tasks:
    """The app at MODULE:NAME, from where the command was called. Raises click.UsageError, BrokenApp."""
    from ..clients.tasks import Tasks

    module, separator, name = place.partition(":")
    if not separator or not name or not all(module.split(".")):
        raise click.UsageError(f"{place!r} is not MODULE:APP, as in shop.jobs:app")
    if module.endswith(".py"):
        raise click.UsageError(f"{module} is a file: name its module, as in {module[:-3].replace('/', '.')}:{name}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    loaded = _imported(module)
    found: Any = loaded
    for part in name.split("."):
        if not hasattr(found, part):
            apps = [f"{module}:{known}" for known, value in vars(loaded).items() if isinstance(value, Tasks)]
            there = f"its apps are {', '.join(apps)}" if apps else "there is no penstock.Tasks in it"
            raise click.UsageError(f"module {module} has no {name!r}: {there}")
        found = getattr(found, part)
    if not isinstance(found, Tasks):
        raise click.UsageError(f"{place} is {found!r}, and not a penstock.Tasks")
    return found


def _imported(module: str) -> ModuleType:
    """The application's module. Raises click.UsageError when there is none, BrokenApp when it raises."""
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise click.UsageError(f"there is no module {missing!r} here or on the path of Python") from None
        print(_trace(error), file=sys.stderr, end="")
        why = traceback.format_exception_only(error)[-1].strip()
        raise BrokenApp(f"the application {module} cannot be imported: {why}") from None


def _trace(error: BaseException) -> str:
    """The traceback from the application's first line on, without the import machinery."""
    frames = error.__traceback__
    while frames is not None and _is_importing(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_importing(file: str) -> bool:
    return file.startswith("<frozen importlib") or file in (__file__, import_module.__code__.co_filename)
