"""What the processes of a broker use, as the kernel says.

Idea: the supervisor's children are known from /proc, and their parts from their command lines; none of them has to
answer. Contract: a process that ends meanwhile is left out. Of processes of another user, descriptors are unknown: 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MODULES = {"penstock.gateway": "gateway", "penstock.exporter": "exporter"}


class Usage(NamedTuple):
    """What one process uses."""

    cpu_s: float
    resident_bytes: int
    descriptors: int
    most_descriptors: int
    started_s: float  # since 1970


def usage(supervisor: int) -> dict[str, Usage]:
    """What a supervisor and its children use, by part."""
    found: dict[str, Usage] = {}
    for part, pid in [("supervisor", supervisor), *children(supervisor)]:
        try:
            found[part] = of(pid)
        except (OSError, ValueError):
            continue  # it ended meanwhile
    return found


def children(pid: int) -> Iterator[tuple[str, int]]:
    """The parts of penstock that a process started, with their process ids."""
    try:
        started = [
            int(word) for each in Path(f"/proc/{pid}/task").glob("*/children") for word in each.read_text().split()
        ]
    except OSError:
        return
    for child in started:
        try:
            part = _part(Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace").split("\0"))
        except OSError:
            continue
        if part:
            yield part, child


def _part(command: list[str]) -> str:
    """What a process is, from its command line; "" for none of ours."""
    module = command[command.index("-m") + 1] if "-m" in command[:-1] else ""
    roles = [word.removeprefix("--role=") for word in command if word.startswith("--role=")]
    return _MODULES.get(module) or (roles[0] if module == "penstock.broker" and roles else "")


def of(pid: int) -> Usage:
    """What one process uses. Raises OSError, ValueError when there is none."""
    place = Path(f"/proc/{pid}")
    fields = (place / "stat").read_text().rpartition(")")[2].split()  # the name before may contain anything
    started_s = booted_s() + int(fields[19]) / _TICKS
    return Usage(
        (int(fields[11]) + int(fields[12])) / _TICKS,
        int(fields[21]) * _PAGE,
        _descriptors(place),
        _most(place),
        started_s,
    )


@cache
def booted_s() -> int:
    """When the machine started, in seconds since 1970, as the clock stood when this was asked first."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    return int(line.split()[1])


def _descriptors(place: Path) -> int:
    try:
        return len(os.listdir(place / "fd"))
    except PermissionError:
        return 0


def _most(place: Path) -> int:
    """The soft limit of open files; 0 where it is unknown or there is none."""
    line = next(line for line in (place / "limits").read_text().splitlines() if line.startswith("Max open files"))
    word = line.split()[3]
    return int(word) if word.isdigit() else 0
