"""A strict parser of RESP requests: arrays of bulk strings, and inline commands.

Idea: nothing is reserved for what a peer merely announces, and every length is checked when it is announced.
It serves connections until they have authenticated, and whatever the fast parser (`requests.py`) hands back.

As in Redis, and in hiredis, the two bytes behind a bulk string may be any.

Contract: takes bytes in any pieces; returns whole commands, in order. A call looks at so many arguments as it is told:
while `more` is set, there are bytes that it has yet to look at. After a violation `error` says what is wrong, and no
further command comes. It holds at most `RequestLimits.command_bytes` and what it was fed last. Pure.
"""

from __future__ import annotations

import re

from msgspec import Struct

INLINE_BYTES_MAX = 16 << 10
"""A line without its end. Redis takes four times as much, which would take some ms here."""

PORTION = 1_000
"""Arguments that take a millisecond or two."""

ARGUMENT_BYTES = 48
"""What an argument takes beside its bytes."""

_LINE_COST = 16
"""So many bytes of an inline command count as one argument."""

_LENGTH = re.compile(rb"0|-?[1-9][0-9]{0,9}")
_HTTP = re.compile(rb"(?:[A-Za-z]+ \S* ?HTTP/\d|host:)", re.IGNORECASE)
_ESCAPES = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}


class RequestLimits(Struct, frozen=True):
    """Bounds of one command."""

    arguments: int
    command_bytes: int  # of all its arguments together


class CommandParser:
    """See the module.

    Invariant: `_missing` arguments of the present command are to come behind `_arguments`; `_length` is that of the
    next one, -1 before its header. `_scanned`: so much of the buffer has no end of a line.
    """

    __slots__ = ("_arguments", "_buffer", "_bytes", "_length", "_limits", "_missing", "_scanned", "error", "more")

    def __init__(self, limits: RequestLimits) -> None:
        self.error = ""
        self.more = False
        self._limits = limits
        self._buffer = bytearray()
        self._scanned = 0
        self._arguments: list[bytes] = []
        self._missing = 0
        self._length = -1
        self._bytes = 0  # that the present command announced

    def allow(self, limits: RequestLimits) -> None:
        """Set other limits for the headers to come."""
        self._limits = limits

    @property
    def between_commands(self) -> bool:
        """Whether everything fed was whole commands."""
        return not (self._buffer or self._missing or self.error)

    @property
    def held(self) -> int:
        """About how many bytes of commands that are not complete there are."""
        return len(self._buffer) + self._bytes + ARGUMENT_BYTES * len(self._arguments)

    def feed(self, data: bytes, most: int = PORTION) -> list[list[bytes]]:
        """The commands that `data` completes, as far as `most` arguments go; none is empty."""
        commands: list[list[bytes]] = []
        buffer, at = self._buffer, 0
        buffer += data
        self.more = False
        while not self.error:
            if most <= 0:
                self.more = at < len(buffer)
                break
            if self._length >= 0:
                end = at + self._length
                if len(buffer) < end + 2:
                    break
                self._arguments.append(bytes(buffer[at:end]))
                self._length, at = -1, end + 2
                self._missing -= 1
                most -= 1
            else:
                end = buffer.find(b"\n", max(at, self._scanned))
                if end < 0:
                    self._scanned = len(buffer)
                    self._check_line(len(buffer) - at)
                    break
                self._check_line(end - at)
                line, at = bytes(buffer[at:end]), end + 1
                most -= 0 if self._missing else 1 + len(line) // _LINE_COST
                if not self.error:
                    self._take_line(line)
            if not self._missing and self._arguments:
                commands.append(self._arguments)
                self._arguments, self._bytes = [], 0
        del buffer[:at]
        self._scanned = max(self._scanned - at, 0)
        return commands

    def _check_line(self, size: int) -> None:
        if size > INLINE_BYTES_MAX:
            self.error = "Protocol error: too big inline request"

    def _take_line(self, line: bytes) -> None:
        """A header, or a whole inline command."""
        if self._missing:
            if not line.startswith(b"$"):
                self.error = f"Protocol error: expected '$', got {_shown(line)}"
                return
            self._length = self._announced(line, self._limits.command_bytes - self._bytes, "bulk")
            self._bytes += max(self._length, 0)
        elif line.startswith(b"*"):
            self._missing = max(self._announced(line, self._limits.arguments, "multibulk"), 0)
        elif _HTTP.match(line):
            self.error = "Protocol error: this port speaks RESP, not HTTP"
        else:
            self._take_inline(line)

    def _announced(self, line: bytes, most: int, kind: str) -> int:
        """The length that a header announces."""
        text = line[1:].removesuffix(b"\r")
        length = int(text) if _LENGTH.fullmatch(text) else most + 1
        if length > most or (length < 0 and kind == "bulk"):
            self.error = f"Protocol error: invalid {kind} length {_shown(text)}: 0 to {most} is left here"
            return -1
        return length

    def _take_inline(self, line: bytes) -> None:
        found = words(line)
        if found is None:
            self.error = "Protocol error: unbalanced quotes in request"
        elif len(found) > self._limits.arguments or len(line) > self._limits.command_bytes:
            self.error = "Protocol error: too big inline request"
        else:
            self._arguments = found


def words(line: bytes) -> list[bytes] | None:
    """The words of an inline command, with quotes as redis-cli writes them; None when they do not match."""
    if b'"' not in line and b"'" not in line:
        return line.split()
    found: list[bytes] = []
    at, size = 0, len(line)
    while True:
        while at < size and line[at : at + 1].isspace():
            at += 1
        if at == size:
            return found
        word = bytearray()
        while at < size and not line[at : at + 1].isspace():
            quote = line[at]
            if quote not in b"\"'":
                word.append(quote)
                at += 1
                continue
            taken = _quoted(line, at + 1, quote, word)
            if taken < 0 or (taken < size and not line[taken : taken + 1].isspace()):
                return None
            at = taken
        found.append(bytes(word))


def _quoted(line: bytes, at: int, quote: int, word: bytearray) -> int:
    """Add what stands in quotes to `word`. Returns where it ends, -1 without a closing quote."""
    while at < len(line):
        each = line[at]
        if each == quote:
            return at + 1
        following = line[at + 1 : at + 2]
        if each != ord("\\") or not following or (quote == ord("'") and following != b"'"):
            word.append(each)
            at += 1
        elif quote == ord('"') and re.match(rb"x[0-9A-Fa-f]{2}", line[at + 1 : at + 4]):
            word.append(int(line[at + 2 : at + 4], 16))
            at += 4
        else:
            word.append(_ESCAPES.get(following[0], following[0]) if quote == ord('"') else following[0])
            at += 2
    return -1


def _shown(text: bytes) -> str:
    return repr(text[:32].decode("latin-1"))
