"""`penstock forward`: send what a spool accepted to a broker, in order and each record once."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import click

from ..storage import units
from ..storage.errors import Error
from .noted_signals import noted
from .options import Invocation, with_session

PAUSE_MAX_S = 0.5
"""So that a signal ends it soon."""


@click.command
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--to", metavar="URL", help="The broker's address; the default is that of all commands.")
@click.option("--until-empty", is_flag=True, help="End when nothing waits any more, instead of waiting for more.")
@with_session
def command(*, directory: Path, to: str | None, until_empty: bool, session: Invocation) -> None:
    """Forward the spool in DIRECTORY until SIGTERM or ^C, also while a program writes to it.

    While the broker is away, it is waited for, and so is DIRECTORY, unless with --until-empty. A record that the
    broker refuses ends it with the error; nothing is skipped. Run it again at any time: it goes on where the last one
    stopped.
    """
    from ..clients.spooling.forwarding import keep_forwarding, reach

    if until_empty and not directory.exists():
        raise click.BadParameter(f"there is no directory {directory}", param_hint="DIRECTORY")
    url, records, said = to or session.url, 0, ""

    def told(count: int) -> None:
        nonlocal records, said
        records, said = records + count, ""

    def wait_for(what: str) -> None:
        """Say it once, until something else holds it up."""
        nonlocal said
        if what != said:
            session.output.note(f"waiting: {what}")
        said = what

    def patient(error: Error) -> bool:
        if error.retry:
            wait_for(error.message)
        return error.retry

    with noted(signal.SIGTERM, signal.SIGINT) as stop:

        def stopping() -> bool:
            return bool(stop)

        while not (stopping() or directory.exists()):
            wait_for(f"there is no directory {directory}")
            time.sleep(PAUSE_MAX_S)
        keep_forwarding(
            str(directory.absolute()),
            lambda: reach(url, session.config.timeout_s, stopping=stopping, troubled=patient),
            stopping=stopping,
            pause=lambda seconds: time.sleep(min(seconds, PAUSE_MAX_S)),
            patient=patient,
            told=told,
            until_empty=until_empty,
        )
    sentence = f"{units.count_text(records, 'record')} forwarded to {url}"
    session.output.say("forwarded", sentence, records=records, broker=url)
