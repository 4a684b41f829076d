"""The table of operations: everything that the HTTP door does.

Contract: paths are looked for in this order, so what is called most comes first. No two rows share method and path, or
a name.
"""

from __future__ import annotations

from . import barriers, gateway, groups, producing, queues, streaming, tasks, topics
from .openapi import query_parameters
from .operation import HttpOperation

TABLE: tuple[HttpOperation, ...] = (
    *producing.OPERATIONS,
    *tasks.OPERATIONS,
    *queues.OPERATIONS,
    *streaming.OPERATIONS,
    *groups.OPERATIONS,
    *barriers.OPERATIONS,
    *topics.OPERATIONS,
    *gateway.OPERATIONS,
)

_HEADS = {
    "messages": "Queues and messages",
    "consumers": "Consumers",
    "tasks": "Tasks",
    "groups": "Queue groups",
    "dead letters": "Dead letters",
    "schedules": "Schedules",
    "barriers": "Callbacks that wait for tasks",
    "topics": "Topics",
    "gateway": "The gateway",
}


def as_markdown() -> str:
    """The table as docs/http.md has it."""
    parts: list[str] = []
    for tag, head in _HEADS.items():
        parts += [f"### {head}", "", "| request | what it does |", "|---|---|"]
        parts += [f"| `{row.method} {row.path}{_asked(row)}` | {row.summary} |" for row in TABLE if row.tag == tag]
        parts.append("")
    return "\n".join(parts).strip()


def _asked(row: HttpOperation) -> str:
    names = [each["name"] for each in query_parameters(row)]
    return "?" + "&".join(f"{name}=" for name in names) if names else ""
