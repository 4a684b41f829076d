"""What programs of several processes note in a file, line by line."""

from __future__ import annotations

from pathlib import Path


def note(file: Path, line: object = "") -> int:
    """Add a line; returns how many there are."""
    with file.open("a") as opened:
        opened.write(f"{line}\n")  # one write: other processes append, too
    return len(noted(file))


def noted(file: Path) -> list[str]:
    """The lines, none when nothing was noted."""
    return file.read_text().splitlines() if file.exists() else []
