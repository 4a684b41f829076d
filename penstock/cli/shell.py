"""`penstock shell`: commands one after the other, each as behind `penstock`, in one process.

Idea: a line is split as a shell splits it and runs through `app.run`, so there is no command of its own but those that
concern the session: `watch`, `help` and `exit`. Completion is click's; the line editor is prompt_toolkit's, and only
terminals get it: from a pipe, lines are read as they are.
Contract: an error of a command is told, and the next line is read. ^C ends the command, or empties the line.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import address
from .. import config as configuration
from . import app, exits
from .options import SOME_TIME, check_text
from .output import complain

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

NAME = "shell"
PROMPT = "penstock> "
HISTORY = "shell_history"
"""In the directory of config.toml."""

WATCH_S = 2.0
"""Between two runs of a watched command."""

ENDS = ("exit", "quit")
HELP = """\
A line is a command without "penstock": topic list, consume orders --until-end
Tab completes commands, options, and names that the broker has.

  watch [TIME] COMMAND   runs a command every 2s, or every TIME, until ^C
  help [COMMAND]         all commands, or the options of one
  exit                   also ^D
"""


@click.command
@click.option("--url", metavar="URL", help="The broker of commands that name no other. Also PENSTOCK_URL.")
def command(url: str | None) -> int:
    """Run commands one after the other, with history and completion.

    On a terminal it needs an extra: pip install '.[shell]' in a clone of penstock.
    """
    check_text()
    broker = address.broker_url(configuration.load({"url": url}))
    with _on(broker):
        if not sys.stdin.isatty():
            sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # as Python has arguments
            return _run_all(sys.stdin)
        editor = _editor(configuration.config_directory(os.environ) / HISTORY)
        click.echo(f"{broker}; help says what there is, exit ends")
        return _run_all(_typed(editor))


@contextmanager
def _on(url: str) -> Iterator[None]:
    """Commands that name no broker talk to this one."""
    variable = f"{configuration.PREFIX}URL"
    before = os.environ.get(variable)
    os.environ[variable] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _editor(history: Path) -> PromptSession[str]:
    """Raises MissingLibrary; OSError when the history cannot be kept."""
    try:
        from .line_editor import line_editor
    except ModuleNotFoundError:
        from ..storage.errors import MissingLibrary, way_to_install

        raise MissingLibrary(f"a shell on a terminal needs prompt_toolkit: {way_to_install('shell')}") from None
    return line_editor(PROMPT, history)


def _typed(editor: PromptSession[str]) -> Iterator[str]:
    """Lines until ^D."""
    while True:
        try:
            yield editor.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _run_all(lines: Iterator[str]) -> int:
    """Run each line. Returns the exit code of the last one that was a command."""
    code = exits.OK
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            complain("usage", f"{str(error).lower()}: {line.strip()}", as_json=False)
            code = exits.USAGE
            continue
        if words[:1] and words[0] in ENDS:
            break
        if words:
            code = _run(words)
            sys.stdout.flush()
    return code


def _run(words: list[str]) -> int:
    first, rest = words[0], words[1:]
    if first == "watch":
        return _watch(rest)
    if first == "help":
        if not rest:
            click.echo(HELP)
        return app.run([*rest, "--help"])
    if first == NAME:
        complain("usage", "this is a shell already: exit ends it", as_json=False)
        return exits.USAGE
    return app.run(words)


def _watch(words: list[str]) -> int:
    """Run a command again and again until ^C, or until it fails."""
    every_s = WATCH_S
    if words and words[0][:1].isdigit():
        try:
            every_s = SOME_TIME.convert(words[0], None, None)
        except click.BadParameter as error:
            complain("usage", error.format_message(), as_json=False)
            return exits.USAGE
        words = words[1:]
    if not words:
        complain("usage", "watch what? for example: watch 5s queue list", as_json=False)
        return exits.USAGE
    while True:
        click.clear()
        code = _run(words)
        sys.stdout.flush()
        if code != exits.OK:
            return code
        try:
            time.sleep(every_s)
        except KeyboardInterrupt:
            return exits.OK
