"""`penstock sql`: a query over topics."""

from __future__ import annotations

import click

from .options import Invocation, with_session

ROWS_SHOWN = 1000
"""Rows of a table for people; as JSON all come."""


@click.command
@click.argument("query")
@with_session
def command(query: str, session: Invocation) -> None:
    """Run QUERY over topics, by DuckDB: 'select key, count(*) from flights group by key'.

    Columns: offset, timestamp, partition, key, value, headers, topic. Keys and values are bytes: decode(value) is text.
    Quote words of SQL: "offset" >= 100.
    """
    with session.connect() as client:
        found = client.sql(query)
    output = session.output
    if output.as_json:
        for row in found.to_pylist():
            output.json({name: _plain(value) for name, value in row.items()})
        return
    rows = [tuple(_text(value) for value in row.values()) for row in found.slice(0, ROWS_SHOWN).to_pylist()]
    output.table([_heading(field) for field in found.schema], rows, empty="no rows")
    if found.num_rows > ROWS_SHOWN:
        output.note(f"{found.num_rows - ROWS_SHOWN} more rows: add a limit, or --json for all of them")


def _heading(field: object) -> str:
    """The column's name; numbers stand on the right."""
    import pyarrow as pa

    kind = field.type  # pyright: ignore[reportAttributeAccessIssue]
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return f"{'>' if is_number else ''}{field.name}"  # pyright: ignore[reportAttributeAccessIssue]


def _text(value: object) -> object:
    """Of a cell: bytes as text where they are some."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else value if isinstance(value, int | float | str) else str(value)


def _plain(value: object) -> object:
    """Of a value in JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
