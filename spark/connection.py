"""One connection per address and process, kept for as long as the process lives.

Idea: Spark runs many short tasks in few Python processes, which it forks and reuses, so anything that costs a round
trip is kept here. A forked process leaves its parent's client alone.
Contract: no thread and no socket before the first question. A client survives a broker's absence; calls wait for it up
to the timeout.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..clients import Client, connect
from ..clients.errors import TimedOut
from .errors import InvalidOption
from .options import Endpoint
from .workers import freeze

URL_VARIABLE = "PENSTOCK_URL"
NAME = "penstock-spark"

_clients: dict[tuple[int, str, float], Client] = {}
"""By process, address and timeout. Those of a parent stay here untouched: closing one would speak for the parent."""


def address(endpoint: Endpoint, environment: Mapping[str, str] = os.environ) -> str:
    """The broker's address: the option, what stands in the file that is named, or the environment's.

    Raises InvalidOption when there is none.
    """
    found = endpoint.url or (_written(endpoint.url_file) if endpoint.url_file else environment.get(URL_VARIABLE, ""))
    if not found:
        raise InvalidOption(
            'no broker is named: give option("url", "tcp://host:7070"), option("urlFile", "/file/with/the/address"), '
            f"or {URL_VARIABLE} in the environment of the driver"
        )
    if found.startswith("mem://"):
        raise InvalidOption(f"{found} is memory of one process, and Spark runs many: name a broker they reach")
    return found


def _written(path: str) -> str:
    try:
        found = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"option urlFile={path!r} cannot be read: {error}") from None
    if not found:
        raise InvalidOption(f"option urlFile={path!r} names an empty file: write the broker's address into it")
    return found


def client_of(url: str, timeout_s: float) -> Client:
    """This process's client for an address. Raises InvalidUrl; TimedOut when no broker answers."""
    place = (os.getpid(), url, timeout_s)
    found = _clients.get(place)
    if found is None or found.closed:
        found = _clients[place] = _connect(url, timeout_s)
    return found


def _connect(url: str, timeout_s: float) -> Client:
    try:
        client = connect(url, timeout=timeout_s, name=NAME)
    except TimedOut as error:
        raise TimedOut(f"no broker answered at {url} within {timeout_s:g} s: {error.message}") from None
    freeze()
    return client


def close_all() -> None:
    """Close the clients of this process; the next question opens new ones."""
    for place in [place for place in _clients if place[0] == os.getpid()]:
        _clients.pop(place).close()
