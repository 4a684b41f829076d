"""`penstock version`: what is installed, for a report of a problem."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
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
    from .. import installed

    return {
        "installed in": str(Path(__file__).parents[1]),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "system": installed.system(),
        "c library": " ".join(platform.libc_ver()),
        **installed.formats(),
        "libraries": installed.libraries(),
    }
