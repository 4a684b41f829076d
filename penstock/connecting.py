"""`connect` with or without an address: where none is named, it is the broker that this user runs or has configured.

Contract: the same answer as the command line's: PENSTOCK_URL, `url` of the configuration, the first address of its
`listen`, and by default a socket in a directory that nobody else can have put there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from . import config as configuration

if TYPE_CHECKING:
    from .clients import Client
    from .clients.aio import AsyncClient
    from .clients.quantities import Duration
    from .clients.verbs import Delivery


def connect(
    url: str | None = None, *, timeout: Duration = 30.0, name: str | None = None, delivery: Delivery = "auto"
) -> Client:
    """Connect to a broker, or open a data directory or a broker in memory.

    Args:
        url: unix:///path, ipc:///path or tcp://host:port of a broker, file:///directory (embedded), or mem://name
            (shared in this process). None: the broker that `penstock serve` of this user runs without --listen, or
            the one that PENSTOCK_URL or the configuration names.
        timeout: seconds any verb waits for the broker, unless told otherwise.
        name: of this client, for people who look at the broker.
        delivery: how consumers get their records: "push" (own endpoint), "control" (the same connection),
            "mapped" (read the broker's files directly), or "auto": mapped where the broker runs on this machine and
            lets us, else push, and control when that does not get through.
            Over unix:// one connection is the fastest way, and "push" means control there.

    Raises: InvalidUrl; TimedOut when no broker answers; AlreadyOpen, ForeignDirectory, NewerFormat for file://;
        InvalidConfig for a configuration that cannot be used.
    """
    from .clients import connect

    return connect(broker_url() if url is None else url, timeout=timeout, name=name, delivery=delivery)


async def connect_async(
    url: str | None = None, *, timeout: Duration = 30.0, name: str | None = None, delivery: Delivery = "auto"
) -> AsyncClient:
    """As `penstock.connect`."""
    from .clients.aio import connect

    return await connect(broker_url() if url is None else url, timeout=timeout, name=name, delivery=delivery)


def broker_url(loaded: configuration.Loaded | None = None) -> str:
    """The broker to talk to when nobody names one. Raises InvalidConfig."""
    loaded = loaded or configuration.load()
    if loaded.config.url:
        return loaded.config.url
    url = loaded.config.listen[0]
    if loaded.source("listen") == "default":
        check_private(Path(url.partition("://")[2]).parent)
    return url


def check_private(directory: Path) -> None:
    """Refuse a socket directory that somebody else could have put there: /tmp belongs to everybody."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise configuration.InvalidConfig(
            f"{directory} is not a directory that only you can write: remove it, or name another address with --url "
            "or --listen"
        )
