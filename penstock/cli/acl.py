"""`penstock acl`: what each user of a file may do.

Contract: changes the file as a whole; a running broker or gateway uses it within a second. Nothing here needs a broker.
"""

from __future__ import annotations

import functools
from typing import Any

import click

from ..broker import access_file
from ..broker.errors import InvalidUsers
from ..broker.rights import OPERATIONS, Grant, authorize, in_order, is_pattern
from .consent import ask, asks_first
from .options import F, with_output
from .output import Output

_FILE = click.argument("file", type=click.Path(dir_okay=False))
_NAME = click.argument("name")
_RESOURCE = click.argument("resource")
_DENIES = click.option("--deny", "denies", is_flag=True, help="A denial, which wins over everything that allows it.")


class _Operations(click.ParamType[frozenset[str]]):
    """Operations with commas between them, or `all`."""

    name = "operations"

    def convert(
        self, value: str | frozenset[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        found = frozenset(OPERATIONS if value == "all" else value.split(","))
        if not found <= set(OPERATIONS):
            self.fail(f"{value!r} is none of {', '.join(OPERATIONS)} and all", param, ctx)
        return found


_OPERATIONS = click.argument("operations", type=_Operations())


def _of_one_line(function: F) -> F:
    """Give a command what one line of the file says: `name`, and its `grant`."""

    @functools.wraps(function)
    def command(*args: Any, operations: frozenset[str], resource: str, denies: bool, **given: Any) -> Any:
        return function(*args, grant=Grant(denies, operations, resource), **given)

    return _FILE(_NAME(_OPERATIONS(_RESOURCE(_DENIES(with_output(command))))))  # type: ignore[return-value]


@click.group
def command() -> None:
    """Allow and deny operations on resources, in a file that `serve --access` names.

    Operations are see, read, write and manage, with commas between them, or all. Resources are topic:T, group:T/G,
    producer:T/P, schedule:T/S, transaction:X and node; a * at the end stands for all that begin alike.
    """


@command.command(short_help="Allow, or deny, something.")
@_of_one_line
def add(file: str, name: str, grant: Grant, output: Output) -> None:
    """Allow user NAME, or all users with "*", OPERATIONS on RESOURCE. What is not allowed is denied."""
    is_new = access_file.add_grant(file, name, grant)
    line = access_file.as_line(name, grant)
    output.say("added" if is_new else "there", f"{line}{'' if is_new else ' was there already'}", line=line, file=file)


@command.command(short_help="Take a line back.")
@_of_one_line
@asks_first
def delete(file: str, name: str, grant: Grant, asks: bool, output: Output) -> None:
    """Take back what was added with the same words. Sessions that it allowed end within a second."""
    line = access_file.as_line(name, grant)
    if asks:
        ask(f"delete {line} from {file}?")
    access_file.delete_grant(file, name, grant)
    output.say("deleted", f"{line} deleted", line=line, file=file)


@command.command("list", short_help="List what is allowed and denied.")
@_FILE
@with_output
def list_(file: str, output: Output) -> None:
    """List the grants of FILE in their order, which does not matter."""
    found = access_file.read(file).grants
    if output.as_json:
        for name, grant in found:
            operations = in_order(grant.operations)
            output.json({"user": name, "kind": grant.kind, "operations": operations, "resource": grant.pattern})
        return
    rows = [[name, grant.kind, ",".join(in_order(grant.operations)), grant.pattern] for name, grant in found]
    columns = ["user", "kind", "operations", "resource"]
    output.table(columns, rows, empty="nothing is allowed yet: penstock acl add --help")


@command.command(short_help="Say whether a user may do something.")
@_FILE
@_NAME
@_OPERATIONS
@_RESOURCE
@with_output
def check(file: str, name: str, operations: frozenset[str], resource: str, output: Output) -> int:
    """Say whether user NAME may do all of OPERATIONS on RESOURCE. The exit code is 1 if not."""
    found = access_file.read(file)
    if resource.endswith("*") or not is_pattern(resource):
        raise InvalidUsers(f"{resource!r} is no single resource, like topic:orders or group:orders/billing")
    user = found.principal(name)
    refused = [each for each in in_order(operations) if not authorize(user, each, resource)]
    answer = f"{name} may not {', '.join(refused)} {resource}" if refused else f"{name} may do this"
    output.say("denied" if refused else "allowed", answer, user=name, resource=resource, refused=refused)
    return 1 if refused else 0
