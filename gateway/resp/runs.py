"""Commands that wait for their turn, and runs: neighbours that differ in few words.

Idea: a run is kept by columns, so what its commands have in common is looked at once. Where a read brings commands that
differ in their last word alone, as a client sends them that appends to one stream, `runs_of` finds them without a
parser: it divides the bytes at what all commands begin with, and compares the length of each last word with its header.

Contract: `runs_of` finds what the parsers would find, whatever the values are, and leaves to them what it does not
know. It takes a time in proportion to the bytes. Pure.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from itertools import repeat

from msgspec import Struct

LEAST = 8
"""Commands that are worth to be cut out."""

WORDS_MAX = 16
"""Of a command that is cut out."""

_END = b"\r\n"
_ARRAY = re.compile(rb"\*([1-9][0-9]?)\r\n")
_WORD = re.compile(rb"\$(0|[1-9][0-9]{0,3})\r\n")


class Run(Struct, frozen=True):
    """Commands one behind the other, of as many words each: `head` is what all begin with, and `columns` have their
    further words, each one word of every command. One command is a run, too."""

    head: list[bytes]
    columns: Sequence[Sequence[bytes]] = ()
    count: int = 1

    @property
    def words(self) -> int:
        """How many each command has."""
        return len(self.head) + len(self.columns)

    def commands(self) -> list[list[bytes]]:
        """Each for itself."""
        tails = zip(*self.columns, strict=True) if self.columns else repeat((), self.count)
        return [[*self.head, *tail] for tail in tails]

    def behind(self, shared: int) -> list[Sequence[bytes]]:
        """The words behind the first `shared` ones, which are in the head, by column."""
        return [*([word] * self.count for word in self.head[shared:]), *self.columns]


class CommandQueue:
    """Commands in the order in which they are to run.

    Invariant: `_count` are in `_waiting`, the next one last; the next `_alone` of them share no run.
    """

    __slots__ = ("_alone", "_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[list[bytes] | Run] = []
        self._count = 0
        self._alone = 0

    def __len__(self) -> int:
        return self._count

    def add(self, commands: Sequence[list[bytes] | Run]) -> None:
        """Have these run last."""
        self._waiting[:0] = reversed(commands)
        self._count += sum([each.count if type(each) is Run else 1 for each in commands])

    def put_back(self, commands: Sequence[list[bytes]], *, alone: bool = False) -> None:
        """Have these run next, if `alone` each for itself."""
        self._waiting += reversed(commands)
        self._count += len(commands)
        self._alone += len(commands) if alone else 0

    def clear(self) -> None:
        """Have none run."""
        self._waiting.clear()
        self._count = self._alone = 0

    def take(self) -> Run:
        """The next command, or the next run that was found as one."""
        found = self._waiting.pop()
        run = found if type(found) is Run else Run(found)  # pyright: ignore[reportArgumentType]
        self._count -= run.count
        return run

    def take_with(self, run: Run, shared: int) -> Run:
        """A command that was taken, and those behind it that have as many words, and the first `shared` of them in
        common."""
        if self._alone:
            self._alone -= 1
            return run
        head, length, waiting = run.head[:shared], len(run.head), self._waiting
        found: list[list[bytes]] = []
        while waiting and type(words := waiting[-1]) is list and len(words) == length and words[:shared] == head:
            found.append(words[shared:])
            waiting.pop()
        if not found:
            return run
        found.insert(0, run.head[shared:])
        self._count -= len(found) - 1
        return Run(head, list(zip(*found, strict=True)), len(found))


def runs_of(data: bytes) -> tuple[list[Run], int]:
    """The runs with which `data` begins, and where they end."""
    found: list[Run] = []
    at, size = 0, len(data)
    while at < size and (prefix := _prefix_at(data, at)) is not None:
        values, end = _values_at(data, at, prefix[1])
        if len(values) < LEAST:
            break
        found.append(Run(prefix[0], (values,), len(values)))
        done, at = end - at, end
        if done < size - at:  # or looking through all that is left, for each run, would take the square of it
            break
    return found, at


def _prefix_at(data: bytes, start: int) -> tuple[list[bytes], bytes] | None:
    """The words of a command but the last, and the bytes before the length of that."""
    array = _ARRAY.match(data, start)
    if array is None or not 1 < int(array[1]) <= WORDS_MAX:
        return None
    words, at = list[bytes](), array.end()
    for _ in range(int(array[1]) - 1):
        header = _WORD.match(data, at)
        if header is None:
            return None
        at = header.end() + int(header[1])
        words.append(data[header.end() : at])
        at += 2
    return (words, data[start : at + 1]) if data[at : at + 1] == b"$" else None


def _values_at(data: bytes, at: int, prefix: bytes) -> tuple[Sequence[bytes], int]:
    """The last words of the commands from `at` on that begin with `prefix`, and where these commands end."""
    text = data[at + len(prefix) : data.find(_END, at + len(prefix))]
    if text.isdigit() and len(text) < 7:
        head, length = prefix + text + _END, int(text)
        if b"%d" % length == text and data.startswith(head, at + len(head) + length + 2):
            return _even(data, at, head, length)
    return _uneven(data, at, prefix)


def _even(data: bytes, at: int, head: bytes, length: int) -> tuple[Sequence[bytes], int]:
    """As `_values_at`, as far as all have one length, where `head` includes it."""
    each = struct.Struct(f"{len(head)}s{length}s2x")
    count = (len(data) - at) // each.size
    heads, values = zip(*each.iter_unpack(memoryview(data)[at : at + count * each.size]), strict=True)
    good = count
    if heads.count(head) < count:
        good = [found == head for found in heads].index(False)
    return values[:good], at + good * each.size


def _uneven(data: bytes, at: int, prefix: bytes) -> tuple[Sequence[bytes], int]:
    """As `_values_at`, whatever lengths they have."""
    if data.find(prefix, at + len(prefix)) < 0:
        return (), at
    complete = data.endswith(_END)
    pieces = data[at + len(prefix) : -2 if complete else None].split(_END + prefix)
    if not complete:
        pieces.pop()
    if len(pieces) < LEAST:
        return (), at
    lengths, ends, values = zip(*map(bytes.partition, pieces, repeat(_END)), strict=True)
    good, found = len(values), list(zip(lengths, ends, map(len, values), strict=True))
    for each in set(found):
        if each != (b"%d" % each[2], _END, each[2]):  # the value has such bytes, or these are other commands
            good = min(good, found.index(each))
    size = good * (len(prefix) + 4) + sum(map(len, lengths[:good])) + sum(map(len, values[:good]))
    return values[:good], at + size
