"""Prepares the call of a task: finds its function, and decodes its arguments to the types of that.

Contract: a task that can never be called, or may not be any more, is refused with the reason. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..encoding import ENCODINGS, Encoding
from .callbacks import call_of
from .message import ENCODING_HEADER, NAME_HEADER
from .outcome import RefusedCall
from .verdicts import refusal, rule_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .arguments import Call
    from .function import BaseFunction
    from .retry import RetryRule

NAMELESS = f"it has no header {NAME_HEADER}, so it is no call of a function: it was not sent by Tasks"


class PreparedCall(NamedTuple):
    """A call that may begin; `call` is None where the function's own process decodes it."""

    function: BaseFunction[..., Any]
    encoding: Encoding
    rule: RetryRule | None
    call: Call | None


def prepared(
    functions: Mapping[str, BaseFunction[..., Any]],
    headers: Mapping[str, bytes],
    value: bytes | None,
    attempt: int,
    now_us: int,
    *,
    decodes: bool = False,
) -> PreparedCall | RefusedCall:
    """The call of a task in its `attempt`, at a time. `decodes`: also for functions with processes of their own."""
    name = headers.get(NAME_HEADER, b"").decode(errors="replace")
    function = functions.get(name)
    if function is None:
        known = ", ".join(sorted(functions)) or "none"
        return RefusedCall(f"no function is called {name!r} here; there are: {known}" if name else NAMELESS)
    encoding = _encoding(headers.get(ENCODING_HEADER, b"json").decode(errors="replace"))
    if encoding is None:
        return RefusedCall(f"its encoding is none of {', '.join(ENCODINGS)}")
    if value is None:
        return RefusedCall(f"{name}: the record has no value, so it has no arguments")
    try:
        rule = rule_of(headers, function.declared.retry)
        refused = refusal(headers, attempt, rule, now_us)
        if refused is not None:
            return refused
        takes_here = decodes or not function.declared.process
        call = call_of(function.arguments, headers, encoding, value) if takes_here else None
    except ValueError as error:
        return RefusedCall(f"{name}: {error}")
    return PreparedCall(function, encoding, rule, call)


def _encoding(name: str) -> Encoding | None:
    return next((known for known in ENCODINGS if known == name), None)
