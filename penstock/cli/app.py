"""The root of the command line: its commands, and how each ends.

Idea: a command's module is imported when it is called, so `penstock --help` costs nothing; and one place turns any
exception into a line on standard error and an exit code.
Contract: no expected error shows a traceback, nor does an OSError. A bug does.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from . import exits
from .output import complain
from .standard_streams import drop, open_closed

COMMANDS = {
    "serve": "Run a broker.",
    "gateway": "Serve Redis and HTTP clients, as a client of a broker.",
    "user": "Add, list and delete users, their tokens and ids of the system.",
    "acl": "Allow and deny users operations on topics, groups and others.",
    "key": "Make keys for tcp://; add, list and delete those of users.",
    "quota": "Bound what users take: bytes, requests, connections.",
    "topic": "Create, list, show, alter and delete topics.",
    "produce": "Write records to a topic.",
    "consume": "Read records of a topic.",
    "forward": "Send what a spool accepted to a broker.",
    "group": "List, show, reset and delete groups of consumers.",
    "queue": "List, set, pause, resume and delete queues.",
    "task": "Enqueue, lease and settle tasks by hand; ask what became of one.",
    "dead": "List, show, redrive and discard dead-lettered tasks.",
    "schedule": "Set, list and delete schedules.",
    "worker": "Run the task functions of an application; list workers and what they hold.",
    "spark": "Archive, replay, roll up and compact topics with Spark.",
    "backup": "Back up a data directory, beside a running broker too.",
    "restore": "Make a data directory of a backup.",
    "log": "Verify, repair and dump the logs of a data directory.",
    "sql": "Run SQL over topics.",
    "stats": "Show the broker's counters.",
    "cluster": "Show a cluster's nodes, hand the lead over, and replace a lost disk.",
    "top": "Show live what the broker does.",
    "doctor": "Look for what may keep a broker from working, and say what to do.",
    "bench": "Measure a running broker.",
    "demo": "Stream 336,776 real flights through a broker and check them.",
    "config": "Show and check the settings, and write a file of them.",
    "version": "Show the version, with --verbose of all that is installed.",
    "shell": "Run commands one after the other, with history and completion.",
}
"""Name and short help. The module has the same name and holds a click command `command`."""


PLAIN = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid rate": "is not a number of times a second",
}
"""Rewords click's messages."""

COMPLETION = "_PENSTOCK_COMPLETE"
"""Set by a shell that asks for completions."""


class Commands(click.Group):
    """Commands by name, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return import_module(f".{cmd_name}", __package__).command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, click.Command | None, list[str]]:
        """As click's, with a suggestion from all names: click knows only imported commands."""
        near = () if args[0] in COMMANDS else difflib.get_close_matches(args[0], COMMANDS, n=1)
        if near:
            ctx.fail(f"No such command {args[0]!r}: did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short helps without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="penstock", message="penstock %(version)s")
def penstock() -> None:
    """A message log and task queue: mapped segments, ZeroMQ, streams and queues on one log.

    Commands talk to the broker that `penstock serve` runs for this user, or to that of PENSTOCK_URL, or of --url, which
    stands behind the command: penstock topic list --url tcp://host:port
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code."""
    open_closed()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as Python has standard error
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = run(given)
    flushed = _flushed(as_json="--json" in given)
    sys.exit(code if code != exits.OK else flushed)


def run(arguments: list[str]) -> int:
    """Run one command; its exit code."""
    as_json = "--json" in arguments
    try:
        if COMPLETION in os.environ:
            penstock.main(arguments, prog_name="penstock")
        # Not `penstock.main`: that ends a broken pipe with an exit code of its own.
        with penstock.make_context("penstock", arguments) as context:
            result = penstock.invoke(context)
        return result if isinstance(result, int) else exits.OK
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return exits.USAGE
    except click.UsageError as error:
        complain("usage", _usage(error), as_json=as_json)
        return exits.USAGE
    except click.ClickException as error:
        complain("usage", error.format_message(), as_json=as_json)
        return exits.USAGE
    except BrokenPipeError:
        return _quiet()
    except Exception as error:
        return _failed(error, as_json=as_json)


def _failed(error: Exception, *, as_json: bool) -> int:
    """The line and the exit code of an error of penstock or of the system. Raises any other: that is a bug."""
    from ..storage.errors import Error  # with it comes numpy, which help and usage can do without

    if isinstance(error, Error):
        complain(error.code, error.message, as_json=as_json)
        return exits.of(error)
    if isinstance(error, OSError):
        return _refused(error, as_json=as_json)
    raise error


def _refused(error: OSError, *, as_json: bool) -> int:
    """The line and the exit code of what the system refused: a file, or standard output itself."""
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.EMFILE:
        reason += " in this process: raise its limit (ulimit -n)"
    complain("os_error", f"{error.filename}: {reason}" if error.filename else reason, as_json=as_json)
    return exits.FULL if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE) else exits.FAILED


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    for told, plain in PLAIN.items():
        message = message.replace(told, plain)
    return f"{message} (see {error.ctx.command_path} --help)" if error.ctx else message


def _flushed(*, as_json: bool) -> int:
    """Write out what is still buffered; Python would complain on its own at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _quiet()
    except OSError as error:
        _quiet()
        return _refused(error, as_json=as_json)
    return exits.OK


def _quiet() -> int:
    """Silence standard output: its reader closed its end, as `head` does, which is no error."""
    drop(sys.stdout)
    return exits.OK
