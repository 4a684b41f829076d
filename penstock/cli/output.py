"""The output of commands: tables and sentences for people, JSON lines for programs.

Idea: a command makes values; one `Output` writes them in the chosen form. Results go to standard output, everything
else (progress, notes, errors) to standard error, so that a pipe carries only results. What people see is printable:
reasons, names and headers come from other programs.
Names of files may hold bytes that are not UTF-8: people see them escaped (app.py sets that up), and JSON has them as
Python does, as "\\udcff".
Contract: under `--json` each line of standard output is one JSON object, and nothing else is written there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from .standard_streams import binary_stdout, to_stderr

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 1000
"""Columns of a table that goes into a file or a pipe: never cut."""

_PLAIN = {0xA: " ", 0xD: " "}


class Output:
    """The output of a command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @cached_property
    def console(self) -> Console:
        """Standard output for people."""
        from .consoles import Results

        return Results(highlight=False, emoji=False, width=None if sys.stdout.isatty() else WIDE)

    @cached_property
    def notes(self) -> Console:
        """Standard error for people."""
        from .consoles import Notes

        return Notes(stderr=True, highlight=False, emoji=False)

    @property
    def shows_progress(self) -> bool:
        """Whether standard error is a terminal: progress bars are for terminals."""
        return not self.as_json and sys.stderr.isatty()

    def say(self, event: str, sentence: str, **values: Any) -> None:
        """One result: a sentence, or {"event": event, ...values}."""
        if self.as_json:
            self.json({"event": event, **values})
        else:
            self.line(sentence)

    def line(self, text: str) -> None:
        """A line for people, in one piece."""
        self.console.print(one_line(text), markup=False, soft_wrap=True)

    def json(self, value: Any) -> None:
        """One JSON line."""
        binary_stdout().write(json_line(value))
        binary_stdout().flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", empty: str = "") -> None:
        """A table for people. Columns named ">like this" are numbers, to the right. `empty` stands for no rows."""
        from rich.table import Table
        from rich.text import Text

        cells = [[Text(_text(value)) for value in row] for row in rows]
        if not cells and empty:
            self.console.print(empty, markup=False)
            return
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), title=title or None, title_justify="left")
        for name in columns:
            right = name.startswith(">")
            table.add_column(name.removeprefix(">"), justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*row)
        self.console.print(table)

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Names and values, one pair a line. A path or an address stays in one piece, to be copied."""
        lines = [(name, _text(value)) for name, value in pairs]
        width = max((len(name) for name, _ in lines), default=0)
        for name, text in lines:
            self.line(f"{name:<{width}}   {text}")

    def note(self, sentence: str) -> None:
        """Print a remark that is no result; programs do not need it."""
        if not self.as_json:
            self.notes.print(f"penstock: {one_line(sentence)}", markup=False, soft_wrap=True)


def json_line(value: Any) -> bytes:
    """A value as a line of JSON."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode() + b"\n"


def complain(code: str, message: str, *, as_json: bool) -> None:
    """Print one line on standard error: what went wrong."""
    line = message.translate(_PLAIN)
    encoded = json_line({"error": code, "message": line}).decode().rstrip()
    to_stderr(encoded if as_json else f"penstock: {one_line(line)}")


def one_line(text: str) -> str:
    """Text of other programs for a terminal: in one line, without escape sequences."""
    if text.isprintable():
        return text
    from ..storage.printable import printable  # with it comes numpy, which help and usage can do without

    return printable(text)


def unavailable_text(partitions: Sequence[int]) -> str:
    """Why a state is not ok: "partition 1 unavailable"; "" if it is."""
    if not partitions:
        return ""
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))} unavailable"


def _text(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return one_line(str(value))
