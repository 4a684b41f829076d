"""`penstock version`: what is installed, for a report of a problem."""

from __future__ import annotations

import platform
import re
import sys
from importlib import metadata
from typing import Any

import click

from .. import __version__
from .options import with_output
from .output import Output


@click.command
@click.option("--verbose", is_flag=True, help="Python, the system, formats, and each library with its version.")
@with_output
def command(verbose: bool, output: Output) -> None:
    """Show the version; with --verbose, everything that a report of a problem should have."""
    values: dict[str, Any] = {"penstock": __version__}
    if verbose:
        values |= _details()
    if output.as_json:
        output.json(values)
        return
    libraries = values.pop("libraries", {})
    output.fields([*values.items(), *((f"  {name}", found or "not installed") for name, found in libraries.items())])


def _details() -> dict[str, Any]:
    from ..storage import data_directory, layout
    from ..storage.backup_point import FORMAT
    from ..transport.codec import VERSION

    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executable": sys.executable,
        "log format": layout.VERSION,
        "directory format": data_directory.FORMAT,
        "backup format": FORMAT,
        "protocol": VERSION,
        "libraries": _libraries(),
    }


def _libraries() -> dict[str, str]:
    """The version of each library that penstock or an extra of it needs; "" for one that is not installed."""
    wanted = metadata.requires("penstock") or []
    names = sorted({
        re.split(r"[^A-Za-z0-9_.-]", each, maxsplit=1)[0].lower() for each in wanted if not _is_for_development(each)
    })  # fmt: skip
    return {name: _version(name) for name in names if name != "penstock"}


def _is_for_development(requirement: str) -> bool:
    return bool(re.search(r"extra == ['\"](dev|bench|demo)['\"]", requirement))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
