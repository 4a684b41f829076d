"""The verdict: is the broker's output equal to the file?

Idea: three questions, each answered with sentences: was every record handed out once (count), in the order in which
its key was written (order), and do the reports agree (totals)? Pure: numbers in, sentences out; none means all is
equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .expected import Expected
from .report import Seen
from .tally import Totals, Trace, merged

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Handed(msgspec.Struct):
    """All records handed out, by partition and offset."""

    partitions: NDArray[np.uint64]
    offsets: NDArray[np.uint64]
    fingerprints: NDArray[np.uint64]


def differences(expected: Expected, seen: Sequence[Seen]) -> list[str]:
    """The differences between the file and the records that the consumers `seen` got together."""
    handed = _by_position([one.trace for one in seen])
    found = _count(expected, handed) + _arrival([one.trace for one in seen])
    found += _order(expected, handed)
    return found + _totals(expected.totals, merged(one.totals for one in seen))


def _by_position(traces: Sequence[Trace]) -> _Handed:
    joined = [
        np.concatenate([np.frombuffer(getattr(trace, name), np.uint64) for trace in traces])
        for name in _Handed.__struct_fields__
    ]
    order = np.lexsort((joined[1], joined[0]))
    return _Handed(*(column[order] for column in joined))


def _count(expected: Expected, handed: _Handed) -> list[str]:
    found = []
    if len(handed.offsets) != len(expected):
        found.append(f"{len(expected):,} flights in the file, {len(handed.offsets):,} consumed")
    twice = (np.diff(handed.offsets) == 0) & (np.diff(handed.partitions) == 0)
    if twice.any():
        at = int(np.flatnonzero(twice)[0])
        found.append(
            f"{int(twice.sum()):,} records were handed out twice, the first of them "
            f"partition {handed.partitions[at]} offset {handed.offsets[at]}"
        )
    return found


def _arrival(traces: Sequence[Trace]) -> list[str]:
    """Check that each consumer saw a partition's offsets only go up."""
    found = []
    for member, trace in enumerate(traces):
        partitions = np.frombuffer(trace.partitions, np.uint64)
        offsets = np.frombuffer(trace.offsets, np.uint64).astype(np.int64)
        for partition in np.unique(partitions):
            steps = np.diff(offsets[partitions == partition])
            if (steps <= 0).any():
                at = int(np.flatnonzero(steps <= 0)[0])
                after = offsets[partitions == partition][at]
                found.append(f"member {member} was handed partition {partition} out of order after offset {after}")
    return found


def _order(expected: Expected, handed: _Handed) -> list[str]:
    """Check that each key's records, by offset, are its lines of the file: a key lives in one partition."""
    known = np.concatenate(list(expected.orders.values()) or [np.zeros(0, np.uint64)])
    owners = np.repeat(np.arange(len(expected.orders)), [len(lines) for lines in expected.orders.values()])
    sorting = np.argsort(known)
    place = np.searchsorted(known[sorting], handed.fingerprints).clip(max=max(len(known) - 1, 0))
    foreign = known[sorting][place] != handed.fingerprints if len(known) else np.ones(len(handed.offsets), bool)
    found = [f"{int(foreign.sum()):,} records consumed are no lines of the file"] if foreign.any() else []
    carrier = np.where(foreign, -1, owners[sorting][place] if len(known) else -1)
    for number, (name, lines) in enumerate(expected.orders.items()):
        mine = carrier == number
        found += _one_order(name, lines, handed.fingerprints[mine], handed.partitions[mine])
    return found


def _one_order(
    name: str, lines: NDArray[np.uint64], got: NDArray[np.uint64], partitions: NDArray[np.uint64]
) -> list[str]:
    if len(np.unique(partitions)) > 1:
        return [f"{name}: its flights are spread over partitions {np.unique(partitions).tolist()}, one key is in one"]
    shared = min(len(lines), len(got))
    wrong = np.flatnonzero(lines[:shared] != got[:shared])
    if len(wrong):
        return [f"{name}: order differs from the file at its flight number {wrong[0] + 1:,} of {len(lines):,}"]
    if len(lines) != len(got):
        return [f"{name}: {len(lines):,} flights in the file, {len(got):,} consumed"]
    return []


def _totals(wanted: dict[str, Totals], got: dict[str, Totals]) -> list[str]:
    found = []
    for carrier in sorted(wanted.keys() | got.keys()):
        left, right = wanted.get(carrier, Totals()), got.get(carrier, Totals())
        for field in Totals.__struct_fields__:
            file_says, consumers_say = getattr(left, field), getattr(right, field)
            if file_says != consumers_say:
                found.append(f"{carrier}: {field} is {file_says:,} in the file, {consumers_say:,} by the consumers")
    return found
