"""The first page: whether all is well, what the broker does, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ...storage.histogram import lately, quantile
from ..http.operation import HttpCall, Reply
from .figures import age, count
from .making import PageMaker, groups_of, queues_of, topics_of
from .sampler import Sample, Seen

BUSIEST = 8
BEHIND_S = 600.0
"""A group whose oldest record to commit is older than this is worth a look."""

HINTS_MOST = 12
Level = Literal["bad", "warning", "note"]
KINDS_MOST = 8

_LATENCIES = {
    "Turn of the loop": "turns.us", "Sync by the broker": "sync.us", "Round of the keeper": "keeper.round_us",
    "Age at delivery": "deliver.age_us",
}  # fmt: skip
_WORTH_A_LOOK: dict[str, tuple[Level, str]] = {
    "partitions.poisoned": ("bad", "Partitions that take no records, as a sync failed: {}. Run penstock doctor."),
    "partitions.damaged": ("bad", "Partitions with damaged records: {}. Run penstock log verify."),
    "scrub.rotten": ("bad", "Logs with closed segments that do not verify: {}. Run penstock log verify."),
    "outbox.stuck": ("bad", "Copies to dead topics that cannot go on: {}."),
    "stages.stuck": ("bad", "Transactions that cannot be published: {}."),
    "barriers.stuck": ("bad", "Partitions of callbacks that cannot hear that tasks have ended: {}."),
    "snapshots.failed": ("warning", "Snapshots of state that were not written: {}."),
    "retention.failed": ("warning", "Looks at logs that met unreadable files: {}. Run penstock log verify."),
    "connections.refused": ("warning", "Connections refused for lack of descriptors: {}."),
}


class Hint(Struct, frozen=True):
    """Something to look at, and where."""

    level: Level
    text: str
    topic: str = ""
    group: str = ""
    kind: Literal["", "topic", "group", "queue"] = ""


class ProcessRow(Struct, frozen=True):
    """What a process uses."""

    name: str
    cpu: float | None
    resident_bytes: int
    descriptors: int
    most_descriptors: int
    up_s: float


async def overview(maker: PageMaker, call: HttpCall) -> Reply:
    seen = await maker.sampler.look()
    sample, node = seen.sample, call.allows("see", "")
    topics, groups, queues = topics_of(seen, call), groups_of(seen, call), queues_of(seen, call)
    hints = list(hints_of(seen, call, node)) if sample else []
    return await maker.page(
        call, "overview.html", "/", seen,
        hints=hints[:HINTS_MOST], more_hints=max(len(hints) - HINTS_MOST, 0),
        processes=processes_of(seen) if node else [], latencies=latencies_of(seen) if node and sample else [],
        topics=sorted(topics, key=lambda each: -(seen.latest(f"topic:{each.name}") or 0.0))[:BUSIEST],
        groups=sorted(groups, key=lambda each: -each.lag)[:BUSIEST],
        queues=sorted(queues, key=lambda each: -each.depth)[:BUSIEST],
        total={"topics": len(topics), "groups": len(groups), "queues": len(queues)},
    )  # fmt: skip


def hints_of(seen: Seen, call: HttpCall, node: bool) -> Iterator[Hint]:
    """What a viewer should look at, the worst first."""
    found = [*(_of_node(seen.sample) if node and seen.sample else ()), *_of_things(seen, call)]
    order = ("bad", "warning", "note")
    yield from sorted(found, key=lambda each: order.index(each.level))


def _of_node(sample: Sample) -> Iterator[Hint]:
    for counter, (level, text) in _WORTH_A_LOOK.items():
        if number := sample.stats.get(counter, 0):
            yield Hint(level, text.format(count(number)))


def _of_things(seen: Seen, call: HttpCall) -> Iterator[Hint]:
    now = seen.sample.now if seen.sample else None
    for topic in topics_of(seen, call):
        if bad := [each.partition for each in topic.partitions if each.unavailable or each.state != "ok"]:
            yield Hint("bad", f"Partition {bad[0]} is not in order.", topic.name, "", "topic")
    for group in groups_of(seen, call):
        behind_s = (now - group.oldest).total_seconds() if now and group.oldest else 0.0
        if group.removed:
            text = f"Retention removed {count(group.removed)} records that the group had not read."
            yield Hint("warning", text, group.topic, group.name, "group")
        elif behind_s > BEHIND_S:
            yield Hint("warning", f"The group is {age(behind_s)} behind.", group.topic, group.name, "group")
    for queue in queues_of(seen, call):
        if queue.dead_lettered:
            text = f"Dead-lettered tasks: {count(queue.dead_lettered)}."
            yield Hint("warning", text, queue.topic, queue.name, "queue")
        if queue.paused_until:
            yield Hint("note", "The queue is paused.", queue.topic, queue.name, "queue")


def processes_of(seen: Seen) -> list[ProcessRow]:
    """What each process of the broker uses; the share of a processor is of the time since the look before."""
    if seen.sample is None:
        return []
    before: Mapping[str, Any] = seen.before.usage if seen.before else {}
    passed_s = seen.sample.at_s - seen.before.at_s if seen.before else 0.0
    return [
        ProcessRow(
            name, max(used.cpu_s - before[name].cpu_s, 0.0) / passed_s if name in before and passed_s > 0 else None,
            used.resident_bytes, used.descriptors, used.most_descriptors,
            max(seen.sample.now.timestamp() - used.started_s, 0.0),
        )
        for name, used in seen.sample.usage.items()
    ]  # fmt: skip


def latencies_of(seen: Seen) -> list[tuple[str, int, int]]:
    """Bounds of half and of 99 % of what took its time lately, in microseconds: own work, and the slowest requests."""
    stats: Mapping[str, Any] = seen.sample.stats if seen.sample else {}
    old: Mapping[str, Any] = seen.before.stats if seen.before else {}
    named = [(name, stats[key], old.get(key)) for name, key in _LATENCIES.items() if key in stats]
    kinds, before = stats.get("requests.us", {}), old.get("requests.us", {})
    requests = _quantiles([(kind, kinds[kind], before.get(kind)) for kind in kinds])
    return _quantiles(named) + sorted(requests, key=lambda each: -each[2])[:KINDS_MOST]


def _quantiles(named: list[tuple[str, Sequence[int], Sequence[int] | None]]) -> list[tuple[str, int, int]]:
    chosen = [(name, lately(values, earlier)) for name, values, earlier in named if any(values[1:])]
    return [(name, quantile(values, 0.5), quantile(values, 0.99)) for name, values in chosen]
