"""Turns what a connection receives into commands: hiredis for the many, the strict parser for the rest.

Idea: hiredis parses a command in a tenth of the time, but takes what no request may hold (numbers, nested arrays), has
no inline commands, and reserves memory for an array that was only announced. So bytes are scanned for headers of large
arrays before hiredis sees them, and whatever is unusual goes to the strict parser, from the last place known to be
between two commands.

Contract: as CommandParser, in the same words, but that a simple string or a large number passes for a bulk string, and
an array of RESP3 may pass for a command. Until `trust`, only the strict parser works. Memory: as there, and a second
copy of a command that is not complete.

Invariant: `_open` is what came since a place between two commands, of which the first `_taken` commands were returned.
`_reader` has as much of it as is not an argument yet; there is none while `_open` is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import Any

from .parsing import PORTION, CommandParser, RequestLimits
from .runs import Run, runs_of

_ARRAY = re.compile(rb"\*[+-]?([0-9]{4,6})")
_VALUE = re.compile(rb"\$[+-]?[0-9]{7}")
_OTHER_ARRAY = re.compile(rb"[~%>|][+-]?[0-9]{4}|\n[~%>|](?!\r)")
_OTHER_ARRAYS = (b"~", b"%", b">", b"|")
"""The header of a large array or value, or of RESP3's own kinds of arrays; or bytes in a value that look like one.
The value `>`, which every XREADGROUP has, is none: there is no header without a number.
Patterns begin with one byte, and others are tried where there is one of `_OTHER_ARRAYS`: that is ten times as fast as
one pattern for all."""

ELEMENTS_MAX = 1 << 20
"""hiredis reserves 8 bytes for each element of an array that is announced, and takes 1,024 levels of them. Arrays of
three digits cost 8 MB at worst, and larger ones together announce so many at most before a command is complete."""

_SEAM = 16
"""A header that begins in one read and ends in the next one is found in so many bytes of both."""

FREE_MAX = 16
"""Readers that are kept for connections to come."""

_ONLY_LISTS, _ONLY_BYTES = {list}, {bytes}
_INCOMPLETE = object()


class _Unusual(Exception):
    """hiredis returned what the strict parser must judge."""


class SharedReaders:
    """Readers of hiredis with nothing to read. All connections share them, as each may keep a buffer of 16 KiB."""

    def __init__(self, new_reader: Callable[..., Any]) -> None:
        """`new_reader` makes a hiredis.Reader for its keyword `notEnoughData`."""
        self._new_reader = new_reader
        self._free: list[Any] = []

    def take(self) -> Any:
        """A reader to feed."""
        return self._free.pop() if self._free else self._new_reader(notEnoughData=_INCOMPLETE)

    def give(self, reader: Any) -> None:
        """Take back a reader that ends between two commands."""
        if len(self._free) < FREE_MAX:
            self._free.append(reader)


class RequestReader:
    """See the module. `hiredis_error` is the error of the readers."""

    __slots__ = (
        "_announced", "_errors", "_limits", "_open", "_reader", "_readers", "_repeated", "_strict", "_taken",
        "_trusted",
    )  # fmt: skip

    def __init__(self, limits: RequestLimits, readers: SharedReaders, hiredis_error: type[Exception]) -> None:
        self._limits = limits
        self._readers = readers
        self._errors = (hiredis_error, MemoryError, TypeError, ValueError, _Unusual)  # TypeError: a map as a key
        self._strict: CommandParser | None = CommandParser(limits)
        self._trusted = False
        self._reader: Any = None
        self._open = bytearray()
        self._taken = 0
        self._announced = 0  # elements of large arrays in `_open`, about
        self._repeated = 0  # commands that the strict parser is to find once more

    @property
    def error(self) -> str:
        """What was wrong with the last bytes, after which nothing more can be understood."""
        return "" if self._strict is None else self._strict.error

    @property
    def more(self) -> bool:
        """Whether there are bytes that were not looked at yet: `feed` nothing to go on."""
        return self._strict is not None and self._strict.more

    @property
    def held(self) -> int:
        """About how many bytes of commands that are not complete there are."""
        return 2 * len(self._open) + 8 * self._announced if self._strict is None else self._strict.held

    @property
    def between_commands(self) -> bool:
        """Whether everything fed was whole commands."""
        return not self._open if self._strict is None else self._strict.between_commands

    @property
    def fast(self) -> bool:
        """Whether hiredis has the bytes that come next, unless they are unusual."""
        return self._strict is None

    def forget(self) -> None:
        """Drop what was fed."""
        self._strict, self._reader, self._announced = CommandParser(self._limits), None, 0
        self._open.clear()

    def trust(self, limits: RequestLimits) -> None:
        """Raise the limits and allow hiredis, for the bytes that come next."""
        self._limits, self._trusted = limits, True
        if self._strict is not None:
            self._strict.allow(limits)

    def feed(self, data: bytes, most: int = PORTION) -> list[list[bytes]] | list[list[bytes] | Run]:
        """The commands that `data` completes, some of them in runs; the strict parser looks at `most` arguments."""
        if not self._open and self._trusted and len(data) <= self._limits.command_bytes and self.between_commands:
            runs, end = runs_of(data)
            if runs:
                return [*runs, *(self._parsed(data[end:], most) if end < len(data) else ())]
        return self._parsed(data, most)

    def _parsed(self, data: bytes, most: int) -> list[list[bytes]]:
        if self._strict is not None:
            if not (self._trusted and self._strict.between_commands and data[:1] == b"*"):
                return self._feed_strictly(self._strict, data, most)
            self._strict = None
        if self._is_unusual(data):
            return self._fall_back(data, most)
        commands: list[list[bytes]] = []
        cut = data.rfind(b"\r\n*") + 2  # where the last command probably begins
        parts = [data[:cut], data[cut:]] if cut > 1 else [data]
        for number, part in enumerate(parts, 1):
            try:
                self._parse(part, commands)
            except self._errors:
                return commands + self._fall_back(b"".join(parts[number:]), most)
        if len(self._open) > self._limits.command_bytes:
            return commands + self._fall_back(b"", most)
        return commands

    def _is_unusual(self, data: bytes) -> bool:
        if not self._open:
            return data[:1] != b"*" or self._is_suspect(data)
        return self._is_suspect(data) or self._is_suspect(self._open[-_SEAM:] + data[:_SEAM])

    def _is_suspect(self, data: bytes | bytearray) -> bool:
        if _VALUE.search(data) or (any(kind in data for kind in _OTHER_ARRAYS) and _OTHER_ARRAY.search(data)):
            return True
        large = list(map(int, _ARRAY.findall(data)))
        self._announced += sum(large)
        return self._announced > ELEMENTS_MAX or max(large, default=0) > self._limits.arguments

    def _parse(self, part: bytes, commands: list[list[bytes]]) -> None:
        """Have hiredis parse, and note whether it ends between two commands. Raises one of `_errors`."""
        self._open += part
        if self._reader is None:
            self._reader = self._readers.take()
        gets, has_data = self._reader.gets, self._reader.has_data
        self._reader.feed(part)
        found: list[Any] = []
        ends = False
        while not ends and (command := gets()) is not _INCOMPLETE:
            found.append(command)
            ends = not has_data()
        if not (_ONLY_LISTS.issuperset(map(type, found)) and _ONLY_BYTES.issuperset(map(type, chain(*found)))):
            raise _Unusual
        found = list(filter(None, found))
        commands += found
        self._taken += len(found)
        if ends:
            self._open.clear()
            self._taken = self._announced = 0
            self._readers.give(self._reader)
            self._reader = None

    def _fall_back(self, data: bytes, most: int) -> list[list[bytes]]:
        """Go on with the strict parser; what was returned already is parsed again and dropped."""
        self._repeated, self._taken, self._announced = self._taken, 0, 0
        self._strict, self._reader = CommandParser(self._limits), None
        found = self._feed_strictly(self._strict, bytes(self._open) + data, most)
        self._open.clear()
        return found

    def _feed_strictly(self, parser: CommandParser, data: bytes, most: int) -> list[list[bytes]]:
        found = parser.feed(data, most)
        if self._repeated:
            known = min(self._repeated, len(found))
            self._repeated -= known
            del found[:known]
        return found
