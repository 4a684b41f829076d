"""The checker: what became of every record that producers sent, from what they and the consumers wrote down.

Idea: a record's value is "producer number", numbered from 0 by each producer in the order it sent them. A
producer's journal says which numbers were acknowledged and how far it had sent; the log says what is stored; a
consumer's journal says what it was given. Each record is then

    ok          acknowledged, stored once, in the producer's order
    lost        acknowledged and not stored
    duplicate   stored (or, by a consumer, read) more than once
    reordered   stored before one that its producer sent earlier
    phantom     stored but never sent
    unknown     sent and never acknowledged: it may be there or not

Contract: pure; counts nothing twice. What is allowed is the test's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Sent:
    """One producer's journal."""

    sent: int = 0  # numbers 0 .. sent - 1 may have left it
    acknowledged: set[int] = field(default_factory=set)


@dataclass
class Verdict:
    """The classes, with examples for the message."""

    ok: int = 0
    lost: list[str] = field(default_factory=list)
    duplicate: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    unknown: int = 0

    def __str__(self) -> str:
        bad = {name: getattr(self, name) for name in ("lost", "duplicate", "reordered", "phantom")}
        told = ", ".join(f"{len(found)} {name} (such as {found[:3]})" for name, found in bad.items() if found)
        return f"{self.ok} ok, {self.unknown} unknown{', ' + told if told else ''}"


def name(producer: str, number: int) -> bytes:
    """The value of a record."""
    return b"%s %d" % (producer.encode(), number)


def parse(value: bytes) -> tuple[str, int]:
    """Producer and number of a value."""
    producer, _, number = value.decode().partition(" ")
    return producer, int(number)


def check_stored(sent: dict[str, Sent], logs: Iterable[Sequence[bytes]]) -> Verdict:
    """Judge what the partitions hold, each a list of values in offset order."""
    verdict = Verdict()
    stored: Counter[tuple[str, int]] = Counter()
    for log in logs:
        latest: dict[str, int] = {}
        for value in log:
            producer, number = parse(value)
            journal = sent.get(producer)
            if journal is None or number >= journal.sent:
                verdict.phantom.append(value.decode())
                continue
            stored[producer, number] += 1
            if stored[producer, number] > 1:
                verdict.duplicate.append(value.decode())
            elif number < latest.get(producer, -1):
                verdict.reordered.append(value.decode())
            latest[producer] = max(number, latest.get(producer, -1))
    for producer, journal in sent.items():
        for number in journal.acknowledged:
            if stored[producer, number]:
                verdict.ok += 1
            else:
                verdict.lost.append(f"{producer} {number}")
        verdict.unknown += journal.sent - len(journal.acknowledged)
    return verdict


def check_read(log: Sequence[bytes], read: Iterable[tuple[int, bytes]]) -> Verdict:
    """Judge what a group was given of one partition: (offset, value) as its members wrote them down.

    Here `duplicate` counts every record given again, `lost` is a stored one that was never handed out, `phantom` one
    that does not stand at its offset.
    """
    verdict = Verdict()
    given: Counter[int] = Counter()
    for offset, value in read:
        if not 0 <= offset < len(log) or log[offset] != value:
            verdict.phantom.append(f"{value!r} at {offset}")
            continue
        given[offset] += 1
        if given[offset] > 1:
            verdict.duplicate.append(f"{value!r} at {offset}")
    verdict.ok = len(given)
    verdict.lost = [f"{log[offset]!r} at {offset}" for offset in range(len(log)) if not given[offset]]
    return verdict
