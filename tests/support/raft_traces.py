"""Files of commands and what they answer: the format of etcd's vectors, and of our own traces.

A block is a line with a command and its arguments, perhaps lines of input, a line `----`, and the answer up to an
empty line. Lines before a block that are empty or begin with `#` are kept as they are.

Lines of a log in an answer (DEBUG, INFO, WARN, ERROR) say how an implementation talks, not what it does: `told` leaves
them out, and an answer with nothing else is as good as `ok`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

LOG_LINE = re.compile(r"\s*(DEBUG|INFO|WARN|ERROR) ")
ARGUMENT = re.compile(r"([\w-]+)(?:=(\([^)]*\)|\S+))?")


@dataclass
class Block:
    """One command of a file."""

    line: int
    before: list[str]  # comments and empty lines
    text: str  # the command as it stands
    input: list[str]
    answer: list[str] = field(default_factory=list)

    @property
    def command(self) -> str:
        return self.text.split()[0]

    def plain(self) -> list[str]:
        """The arguments without a name."""
        return [name for name, value in self._arguments() if value is None]

    def named(self) -> dict[str, list[str]]:
        """The arguments with a name, and their values."""
        return {
            name: [one.strip() for one in value.strip("()").split(",")]
            for name, value in self._arguments()
            if value is not None
        }

    def _arguments(self) -> list[tuple[str, str | None]]:
        rest = self.text.partition(" ")[2]
        return [(found[1], found[2]) for found in ARGUMENT.finditer(rest)]


def blocks(text: str) -> tuple[list[Block], list[str]]:
    """The commands of a file, and the lines behind the last."""
    found: list[Block] = []
    before: list[str] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            before.append(line)
            continue
        block = Block(number, before, line, [])
        before = []
        for _, line in lines:
            if line == "----":
                break
            block.input.append(line)
        for _, line in lines:
            if not line.strip():
                before.append(line)
                break
            block.answer.append(line)
        found.append(block)
    return found, before


def told(answer: list[str]) -> list[str]:
    """An answer without the lines of a log, and without `ok`."""
    return [line.rstrip() for line in answer if not LOG_LINE.match(line) and line.strip() != "ok"]


def differences(text: str, run: Callable[[Block], str]) -> list[str]:
    """Run a file; what was answered differently, with its line."""
    wrong = []
    for block in blocks(text)[0]:
        expected, got = told(block.answer), told(run(block).splitlines())
        if expected != got:
            wrong.append("\n".join((f"line {block.line}: {block.text}", *expected, "---- but got", *got)))
    return wrong


def rewritten(text: str, run: Callable[[Block], str]) -> str:
    """The file with the answers of now."""
    found, rest = blocks(text)
    lines: list[str] = []
    for block in found:
        answer = told(run(block).splitlines()) or ["ok"]
        lines += [*block.before, block.text, *block.input, "----", *answer]
    return "\n".join(lines + rest) + "\n"
