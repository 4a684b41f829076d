"""Callbacks: functions that are called once tasks have ended, with their results.

The value of a callback's record is what the broker wrote: an array of msgpack of (state, result, reason), one for each
task. Results are encoded as those tasks were sent, which the record's header of encoding says.

Contract: Pure: bytes in, arguments out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ..barriers.descriptions import BARRIER_HEADER
from ..encoding import Encoding, decode
from ..queues.descriptions import STATES

if TYPE_CHECKING:
    from .arguments import Arguments, Call

R = TypeVar("R")


class Ended(Struct, Generic[R], frozen=True):
    """How one task of a group ended, as a callback with `on="ended"` gets it.

    `state` is completed, dead-lettered, cancelled, discarded, deleted (it left its queue otherwise), or too_large: it
    completed with a result for which there was no room. `result` is that of a completed one, else None.
    `reason` is why it was dead-lettered.
    """

    state: str
    result: R | None
    reason: str


_words = msgspec.msgpack.Decoder(list[tuple[str, bytes, str]])


def how_called(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """The headers of a task that say that it is a callback, and of which kind."""
    return {BARRIER_HEADER: headers[BARRIER_HEADER]} if BARRIER_HEADER in headers else {}


def call_of(arguments: Arguments, headers: Mapping[str, bytes], encoding: Encoding, value: bytes) -> Call:
    """The arguments of a task: its own, or the results that a callback is called with. Raises ValueError."""
    how = headers.get(BARRIER_HEADER)
    if how is None:
        return arguments.unpack(encoding, value)
    try:
        words = _words.decode(value)
    except msgspec.DecodeError as error:
        raise ValueError(f"it has header {BARRIER_HEADER}, and no value of a barrier: {error}") from None
    if how == b"ended":
        return arguments.bound([_ended(arguments, encoding, words)], {})
    results = [_result(encoding, number, word) for number, word in enumerate(words)]
    return arguments.bound(results[:1] if how == b"one" else [results], {})


def _ended(arguments: Arguments, encoding: Encoding, words: list[tuple[str, bytes, str]]) -> list[Any]:
    """What ended, in the form that the function's annotation is fitted to, if it has one."""
    found = [(STATES.get(state, state), _decoded(encoding, result), reason) for state, result, reason in words]
    if arguments.hint_of_first is Any:
        return [Ended(*each) for each in found]
    return [dict(zip(Ended.__struct_fields__, each, strict=True)) for each in found]


def _result(encoding: Encoding, number: int, word: tuple[str, bytes, str]) -> Any:
    state, result, _ = word
    if state != "completed":
        raise ValueError(
            f"task {number} completed with a result for which there was no room: those of a group together have "
            "max_record_bytes of the callback's topic, and 4 MiB at most, and those of all groups max_barrier_bytes; "
            "have tasks store what is larger elsewhere"
        )
    return _decoded(encoding, result)


def _decoded(encoding: Encoding, result: bytes) -> Any:
    return decode(encoding, result) if result else None
