"""The table of commands: what dispatch, COMMAND, HELP and docs/resp.md are made from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import basic, groups, inspecting, keys, pending, streams, topics, transactions, trims
from .command import Command

_ROWS = [
    *basic.COMMANDS,
    *transactions.COMMANDS,
    *keys.COMMANDS,
    *streams.COMMANDS,
    *trims.COMMANDS,
    *inspecting.COMMANDS,
    *groups.COMMANDS,
    *pending.COMMANDS,
    *topics.COMMANDS,
]

TABLE: Mapping[str, Command] = MappingProxyType({row.name: row for row in _ROWS})
"""Every command by its name."""

_HEADINGS = {
    "connection": "Connection",
    "server": "Server",
    "transactions": "Transactions",
    "keys": "Keys",
    "streams": "Streams",
    "groups": "Groups of consumers",
    "topics": "Topics and consumers",
}


def as_markdown() -> str:
    """The tables of docs/resp.md."""
    parts = []
    for group, heading in _HEADINGS.items():
        rows = [f"| `{_cell(row.usage)}` | {row.summary} |" for row in TABLE.values() if row.group == group]
        if rows:
            parts.append("\n".join([f"### {heading}", "", "| command | what it does |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
