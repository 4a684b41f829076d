"""Text for a log or a terminal: escapes what ends a line, moves the cursor or turns the direction of writing.

Idea: names, headers and the texts of exceptions come from other programs. As they are, a line end in one forges a line
of a log, and an escape sequence rewrites what a terminal shows.

Contract: printable characters stay as they are. Pure.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Text in one line: characters that are not printable are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def printable_below(text: str) -> str:
    """Several lines below one of a log, each printable and indented: none can pass for a line of the log itself."""
    return "\n".join(f"  {printable(line)}" for line in text.split("\n"))
