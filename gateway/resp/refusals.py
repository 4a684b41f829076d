"""Errors as clients of RESP see them.

Contract: the first word is the kind, which clients look at: ERR, NOAUTH, WRONGPASS, OOM, TRYAGAIN, NOPROTO ... What
penstock raised follows with its code in brackets. Pure.
"""

from __future__ import annotations

from ...storage.errors import Error

_KINDS = {"storage_full": "OOM", "limit_reached": "OOM", "forbidden": "NOPERM"}


class CommandRefused(Exception):
    """A command that is answered with an error. `kind` and a sentence."""

    def __init__(self, sentence: str, kind: str = "ERR") -> None:
        super().__init__(f"{kind} {sentence}")


SYNTAX = "syntax error"


def sentence_of(error: Error | CommandRefused) -> str:
    """The text of an error's reply."""
    if isinstance(error, CommandRefused):
        return str(error)
    kind = _KINDS.get(error.code) or ("TRYAGAIN" if error.retry else "ERR")
    return f"{kind} {error.message} [{error.code}]"


def wrong_arity(name: str) -> CommandRefused:
    """Too few or too many arguments."""
    return CommandRefused(f"wrong number of arguments for '{name}' command")


def whole(text: bytes, what: str, lowest: int = 0) -> int:
    """An integer of a command. Raises CommandRefused."""
    try:
        number = int(text) if len(text) <= 20 else None
    except ValueError:
        number = None
    if number is None or number >= 1 << 63 or not text.lstrip(b"-").isdigit():
        raise CommandRefused("value is not an integer or out of range")
    if number < lowest:
        raise CommandRefused(f"{what} is {number}, and {lowest} is the least")
    return number
