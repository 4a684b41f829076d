"""What XREAD and XREADGROUP have in common: [COUNT n] [BLOCK ms] [flags] STREAMS key [key ...] id [id ...].

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .refusals import SYNTAX, CommandRefused, whole


class ReadOptions(NamedTuple):
    """What such a command says. `most` None: any number; `block_s` None: it does not wait, 0: without end."""

    keys: list[bytes]
    ids: list[bytes]
    most: int | None
    block_s: float | None
    flags: set[bytes]


def read_options(command: str, words: list[bytes], takes: str, flags: Collection[bytes] = ()) -> ReadOptions:
    """Read the words of `command`, which takes for each stream what `takes` says. Raises CommandRefused."""
    count, block_s, given, words = None, None, set[bytes](), [*words]
    while words and (option := words.pop(0).upper()) != b"STREAMS":
        if option in flags:
            given.add(option)
            continue
        if option not in (b"COUNT", b"BLOCK") or not words:
            raise CommandRefused(SYNTAX)
        number = whole(words.pop(0), option.decode(), -(1 << 63) if option == b"COUNT" else 0)
        if option == b"COUNT":
            count = number if number > 0 else None
        else:
            block_s = number / 1000
    if not words or len(words) % 2:
        raise CommandRefused(f"Unbalanced '{command}' list of streams: for each stream key {takes} must be specified.")
    half = len(words) // 2
    return ReadOptions(words[:half], words[half:], count, block_s, given)
