"""`penstock doctor`: what may keep a broker from working here, and what to do about it.

Contract for programs: under --json one object for each finding; exit code 0 without anything bad, 5 for damage, 7 for
space, otherwise 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec import structs

from ..broker.errors import NotLeader
from ..checkup import Finding, examine, of_stats, served_at
from ..storage.errors import Error
from . import exits
from .options import Invocation, with_data, with_session, with_settings
from .output import one_line

_CODES = {"damage": exits.DAMAGED, "space": exits.FULL, "other": exits.FAILED}

START = "start it with penstock serve, if it should run"

_STYLES = {"ok": "green", "warning": "yellow", "bad": "bold red"}


@click.command
@with_data
@with_settings
@with_session
def command(session: Invocation) -> int:
    """Look at the machine, the data directory and the broker, and say what to do.

    Run it as the user of the broker. It changes nothing.
    """
    found = [*examine(session.config), *_broker(session)]
    if session.output.as_json:
        for finding in found:
            session.output.json(finding._asdict())
    else:
        _show(session, found)
    bad = {finding.kind for finding in found if finding.state == "bad"}
    return next((code for kind, code in _CODES.items() if kind in bad), exits.OK)


def _broker(given: Invocation) -> list[Finding]:
    """What the broker says, if one answers, and which that is."""
    try:
        session = _of_directory(given)
        if session is None:
            return [Finding("broker", "warning", f"no broker serves {given.config.data}", START)]
        return [each._replace(says=f"at {session.url}: {each.says}") for each in of_stats(_stats(session))]
    except Error as error:
        advice = START if error.code == "no_broker" else "see its log"
        return [Finding("broker", "warning", error.message, advice)]


def _of_directory(given: Invocation) -> Invocation | None:
    """The session with the broker to ask: that of --url, else that which has the directory open, else the configured
    one. None if a directory was named that no broker has open."""
    url, data = (given.loaded.source(name).startswith("flag") for name in ("url", "data"))
    if url:
        return given
    if endpoint := served_at(Path(given.config.data)):
        found = structs.replace(given.loaded, config=structs.replace(given.config, url=endpoint))
        return Invocation(found, given.output)
    return None if data else given


def _stats(session: Invocation) -> dict[str, Any]:
    """The counters of the broker, also of a node that follows."""
    from ..clients.cluster import node_stats

    try:
        with session.connect() as client:
            return client.stats()
    except NotLeader:
        return node_stats(session.url, session.config.timeout_s)


def _show(session: Invocation, found: list[Finding]) -> None:
    from rich.text import Text

    for check, state, says, advice, _ in found:
        line = Text.assemble((f"{state:<8}", _STYLES[state]), f"{check:<14} {one_line(says)}")
        session.output.console.print(line, soft_wrap=True)
        if advice and state != "ok":
            session.output.line(f"{'':<23}{advice}")
