"""The configuration file that has every setting as a comment, with its default: what `penstock config default` writes.

Contract: the text loads as it is, and with any line uncommented; it follows from the fields of `Config` alone.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

from .config import LIVE, load
from .storage import units

_HEAD = """\
# Settings of penstock. Each line shows the default: take the `#` away to change it.
# Flags go before variables of the environment (PENSTOCK_DRAIN_S), those before this file. `penstock config check`
# finds mistakes, `penstock config show` says where each value comes from.
"""


def default_file(environ: Mapping[str, str]) -> str:
    """The commented file, with the defaults of the user whose environment this is."""
    defaults = {name: value for name, value in environ.items() if not name.startswith("PENSTOCK_")}
    defaults["PENSTOCK_CONFIG"] = "/dev/null"
    parts = [_HEAD]
    for sourced in load(environ=defaults).values:
        live = " Changes on SIGHUP." if sourced.name in LIVE else ""
        about = textwrap.fill(sourced.about + live, 110, initial_indent="# ", subsequent_indent="# ")
        parts.append(f"{about}\n#{sourced.name} = {_toml(sourced.value, sourced.unit)}\n")
    return "\n".join(parts)


def _toml(value: Any, unit: str) -> str:
    if unit == "s":
        return json.dumps(f"{value:g}s" if value < 3600 else units.time_text(value))
    if unit == "bytes":
        return json.dumps(units.size_text(value).replace(" ", ""))
    return json.dumps(value)  # texts, numbers, switches and lists look the same in TOML
