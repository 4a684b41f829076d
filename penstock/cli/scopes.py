"""`--only 'OPERATIONS RESOURCE'`: what a token or a key is for, of all that its user may do."""

from __future__ import annotations

import click

from ..broker.rights import OPERATIONS, Grant, in_order, is_pattern


class _Scope(click.ParamType[Grant]):
    name = "scope"

    def convert(self, value: str | Grant, param: click.Parameter | None, ctx: click.Context | None) -> Grant:
        if isinstance(value, Grant):
            return value
        operations, _, pattern = value.strip().partition(" ")
        found = frozenset(OPERATIONS if operations == "all" else operations.split(","))
        if not found <= set(OPERATIONS) or not is_pattern(pattern):
            self.fail(f"{value!r} is not like 'read,write topic:orders-*': see penstock acl --help", param, ctx)
        return Grant(False, found, pattern)


ONLY = click.option(
    "--only", "scope", type=_Scope(), multiple=True, metavar="'OPERATIONS RESOURCE'",
    help="What it is for, of all that the user may do, as in 'read topic:orders-*'; repeatable. Default: all.",
)  # fmt: skip


def text_of(scope: list[Grant]) -> list[str]:
    """Scopes as they are typed."""
    return [f"{','.join(in_order(each.operations))} {each.pattern}" for each in scope]
