"""How long benches took, so that the next run can announce how long it will take.

Contract: keeps only runs at the stated size, short and full ones apart. A bench that was never measured is named as
unknown, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

NAME = "times.json"
Times = dict[str, float]
"""Minutes, by bench and kind of run."""


def read(*directories: Path) -> Times:
    """Read times from files; the first file that has a bench counts."""
    known: Times = {}
    for directory in directories:
        if (path := directory / NAME).exists():
            known = msgspec.json.decode(path.read_bytes(), type=Times) | known
    return known


def keep(directory: Path, bench: str, full: bool, minutes: float) -> None:
    """Store a bench's duration, replacing that of an earlier run."""
    directory.mkdir(parents=True, exist_ok=True)
    times = read(directory) | {_key(bench, full): round(minutes, 1)}
    (directory / NAME).write_bytes(
        msgspec.json.format(msgspec.json.encode(dict(sorted(times.items()))), indent=1) + b"\n"
    )


def estimate(known: Mapping[str, float], benches: Sequence[str], full: bool) -> str:
    """The expected time, as a sentence."""
    unknown = [bench for bench in benches if _key(bench, full) not in known]
    minutes = sum(known.get(_key(bench, full), 0.0) for bench in benches)
    if len(unknown) == len(benches):
        return "How long this takes is not known yet: no run like it was kept."
    rest = f", and {', '.join(unknown)}, of which no run was kept" if unknown else ""
    return f"At the stated size this takes about {max(1, round(minutes))} min{rest}."


def _key(bench: str, full: bool) -> str:
    return f"{bench}, {'full' if full else 'short'}"
