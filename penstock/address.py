"""The default address of the broker: the one that this user runs or has configured.

Contract: the same answer for programs and for the command line: PENSTOCK_URL, `url` of the configuration, the first
address of its `listen`, and by default a socket in a directory that only this user can have put there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from . import config as configuration
from .storage.linux import need_linux


def broker_url(loaded: configuration.Loaded | None = None) -> str:
    """The default broker address. Raises InvalidConfig, NeedsLinux."""
    loaded = loaded or configuration.load()
    if loaded.config.url:
        return loaded.config.url
    url = loaded.config.listen[0]
    if loaded.source("listen") == "default":
        need_linux("a broker at its default address")
        check_private(Path(url.partition("://")[2]).parent)
    return url


def check_private(directory: Path) -> None:
    """Refuse a socket directory that another user could have made: every user may write to /tmp."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise configuration.InvalidConfig(
            f"{directory} is not a directory that only you can write: remove it, or name another address with --url "
            "or --listen"
        )
