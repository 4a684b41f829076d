"""Pages of the site that the code writes about itself: command line, settings, Python, errors.

Idea: what a program already says (help, sentences of settings, docstrings) is laid out as Markdown while the site is
built. None of it is checked in, so none of it can be stale; docs/reference.md has the tables that people write.
Contract: a function for each page returns its text; the same code gives the same text, on every machine.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click
import penstock
from penstock import errors
from penstock.cli import exits
from penstock.cli.app import penstock as cli
from penstock.clients.tasks.function import TaskFunction
from penstock.config import load
from penstock.storage import units

PLACES = {"HOME": "~"}
"""The environment that defaults are shown for."""


def pages() -> dict[str, str]:
    """Text by path in the site."""
    return {
        "reference/command-line.md": command_line(),
        "reference/settings.md": settings(),
        "reference/python.md": python(),
        "reference/errors.md": error_table(),
    }


def cell(text: Any) -> str:
    """Text that may stand between the bars of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(cell(each) for each in line) + " |" for line in lines)


# -- the command line --------------------------------------------------------------------------------


def command_line() -> str:
    found = [
        "# Command line",
        "`penstock --help` and `penstock COMMAND --help` say the same. Every command takes `--json`, and ends with one"
        " of the [exit codes](../reference.md#exit-codes).",
    ]
    context = click.Context(cli, info_name="penstock")
    for name in cli.list_commands(context):
        found += _command(f"penstock {name}", cli.get_command(context, name), 2)
    return "\n\n".join(found) + "\n"


def _command(path: str, command: click.Command | None, level: int) -> Iterator[str]:
    assert command is not None
    context = click.Context(command, info_name=path)
    yield "#" * level + " " + path
    if command.help:
        yield _paragraphs(command.help)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _command(f"{path} {name}", command.get_command(context, name), level + 1)
        return
    yield f"    {path} {' '.join(command.collect_usage_pieces(context))}"
    rows = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    yield table(("option", "meaning"), [(f"`{name}`", about) for name, about in rows if "--help" not in name])


def _paragraphs(text: str) -> str:
    """Help as Markdown: what click would not wrap stays as it is."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(_kept(part[2:]) if part.startswith("\b\n") else part for part in parts)


def _kept(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


# -- the settings of a broker ------------------------------------------------------------------------


def settings() -> str:
    rows = [(f"`{each.name}`", f"`{_default(each)}`", each.about) for each in load(environ=PLACES).values]
    return "\n\n".join(
        [
            "# Settings of a broker",
            "[Configuration](../configuration.md) says where they are given; `penstock config default` writes them as a"
            ' file. A setting `drain_s` is `--set drain_s=5s`, `PENSTOCK_DRAIN_S=5s` or `drain_s = "5s"` in the file.'
            " Topics and queues have [settings of their own](../reference.md).",
            table(("setting", "default", "meaning"), rows) + "\n",
        ]
    )


def _default(sourced: Any) -> str:
    if sourced.name == "listen":
        return "unix://$XDG_RUNTIME_DIR/penstock/broker.sock"  # of the user who asks, not of the one who builds
    if isinstance(sourced.value, list):
        return ", ".join(sourced.value) or "none"
    written = {"bytes": units.size_text, "s": units.time_text}.get(sourced.unit, str)
    return written(sourced.value) or "none"


# -- errors ------------------------------------------------------------------------------------------


def error_table() -> str:
    kinds = [getattr(errors, name) for name in sorted(errors.__all__)]
    rows = [
        (f"`{kind.__name__}`", f"`{kind.code}`", _exit_code(kind), "yes" if kind.retry else "no", _first(kind))
        for kind in kinds
    ]
    about = (
        "All are in `penstock.errors`, and a `penstock.Error`. `code` names an error to programs: over HTTP, with"
        " `--json`, and between broker and client. *Retry*: the same call may succeed later without any change."
        " After a call that timed out: [reference](../reference.md#when-a-call-times-out)."
    )
    return "\n\n".join(["# Errors", about, table(("error", "code", "exit code", "retry", "meaning"), rows)]) + "\n"


def _exit_code(kind: type[penstock.Error]) -> int:
    return exits.of(kind.__new__(kind))


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


# -- Python ------------------------------------------------------------------------------------------


def python() -> str:
    about = (
        "What `import penstock` brings, from the docstrings that `help()` shows. [`penstock.aio`](../asyncio.md) has"
        ' the same verbs with `await`. Times are seconds or text like `"30s"`, sizes bytes or text like `"64MB"`.'
    )
    found = ["# Python", about]
    for name in [*penstock.__all__, "TaskFunction"]:
        thing = TaskFunction if name == "TaskFunction" else getattr(penstock, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            found += _thing(name, thing)
    return "\n\n".join(found) + "\n"


def _thing(name: str, thing: Any) -> Iterator[str]:
    yield f"## {name}"
    yield from _signature(name, thing)
    yield docstring(inspect.getdoc(thing) or "")
    for member, found in sorted(members(thing)) if inspect.isclass(thing) else ():
        yield f"### {name}.{member}"
        yield from _signature(member, found)
        yield docstring(inspect.getdoc(found) or "")


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class that are ours and public."""
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        owner = next(base for base in kind.__mro__ if name in base.__dict__)
        callable_or_property = callable(getattr(found, "__func__", found)) or isinstance(found, property)
        if name[0] != "_" and owner.__module__.startswith("penstock") and callable_or_property:
            yield name, found


def _signature(name: str, thing: Any) -> Iterator[str]:
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, property) or not callable(thing):
        return
    try:
        given = inspect.signature(thing)
    except ValueError:
        return
    shown = [p for p in given.parameters.values() if p.name not in ("self", "cls") and p.name[0] != "_"]
    text = f"{name}{given.replace(parameters=shown)}"
    text = re.sub(r": '([^']*)'", r": \1", re.sub(r"-> '([^']*)'", r"-> \1", text))
    yield f"```python\n{_wrapped(text)}\n```"


def _wrapped(text: str) -> str:
    """A long signature with a parameter on each line."""
    if len(text) <= 90:
        return text
    head, _, rest = text.partition("(")
    inside, _, result = rest.rpartition(")")
    return f"{head}(\n" + "".join(f"    {part},\n" for part in _split(inside)) + f"){result}"


def _split(text: str) -> Iterator[str]:
    depth = start = 0
    for place, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def docstring(text: str) -> str:
    """`Args:` as a list, lines that stand further in as they are, the rest as it is."""
    return "\n\n".join(_section(part) for part in text.split("\n\n"))


def _section(part: str) -> str:
    head, _, rest = part.partition("\n")
    if re.fullmatch(r"\w+:", head) and rest:
        return f"**{head[:-1]}**\n\n{_list(rest)}"
    if part.startswith("    "):
        return _kept(inspect.cleandoc(part))
    return re.sub(r"^(Raises|Returns|Yields):", r"**\1**:", part, flags=re.MULTILINE)


def _list(text: str) -> str:
    """Lines `name: sentence`, of which each may go on further in."""
    lines: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += " " + line.strip()
        else:
            lines.append(re.sub(r"^([\w, ]+): ", r"- `\1`: ", line))
    return "\n".join(lines)
