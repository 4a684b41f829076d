"""What the engine's queue groups have otherwise than the model (queue_model.py)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from support.queue_model import Group, Shelf


def as_modelled(shelf: Shelf, group: Group) -> dict[str, Any]:
    """What can be seen of a group, from the model."""
    tables: dict[str, Any] = {"leased": {}, "waiting": {}, "dead": {}, "cancelling": set()}
    for offset, task in group.tasks.items():
        if task.state == "leased":
            tables["leased"][offset] = (task.token, task.attempt)
            if task.cancelling:
                tables["cancelling"].add(offset)
        elif task.state == "waiting":
            tables["waiting"][offset] = (task.attempt, task.ready_us, tuple(task.history))
        elif task.state == "dead":
            tables["dead"][offset] = (task.attempt, task.reason, tuple(task.history))
    tables["progress"] = {offset: task.progress for offset, task in group.tasks.items() if task.progress is not None}
    tables["leases"] = {token: (given.worker, given.until_us) for token, given in group.leases.items()}
    tables["by_worker"] = Counter(group.leases[token].worker for token, _ in tables["leased"].values())
    tables["ended"] = group.ended
    tables["paused"] = group.paused_until_us
    tables["start"] = group.start
    tables["workers"] = set(group.workers)
    tables["settings"] = group.settings
    tables["untouched"] = {
        offset
        for offset, task in group.tasks.items()
        if task.state == "untouched" and not shelf.is_special(offset)
    }  # fmt: skip
    return tables


def as_kept(shelf: Shelf, queue: Any) -> dict[str, Any]:
    """The same from the state of the engine."""
    tables: dict[str, Any] = {"leased": {}, "cancelling": set(queue.cancelling)}
    for token, lease in queue.leases.items():
        for first, count, attempt in lease.runs():
            for offset in range(first, first + count):
                assert offset not in tables["leased"], f"record {offset} is in two leases"
                tables["leased"][offset] = (token, attempt)
    assert listed(queue.leases) == sorted((offset, *each) for offset, each in tables["leased"].items())
    tables["by_worker"] = queue.leases.by_worker
    tables["waiting"] = {
        offset: (each.attempt, each.ready_us, tuple((worker, reason) for _, worker, reason in each.history))
        for offset, each in queue.retrying.items()
    }
    tables["dead"] = {
        offset: (each.attempt, each.reason, tuple((worker, reason) for _, worker, reason in each.history))
        for offset, each in queue.dead_letters.items()
    }
    tables["progress"] = dict(queue.progress)
    tables["leases"] = {token: (lease.worker, lease.until_us) for token, lease in queue.leases.items()}
    tables["ended"] = set(queue.ended)
    tables["paused"] = queue.paused_until_us
    tables["start"] = queue.start
    tables["workers"] = set(queue.workers)
    tables["settings"] = queue.settings
    beyond = set(range(queue.frontier, len(shelf.records))) | set(queue.held)
    tables["untouched"] = {
        offset for offset in beyond - shelf.deleted if not queue.passes(offset) and not shelf.is_special(offset)
    }
    return tables


def listed(leases: Any) -> list[tuple[int, int, int]]:
    """What the engine's table of leases lists from its lowest offset on: offset, token, attempt."""
    found: list[tuple[int, int, int]] = []
    offset = max(leases.first(), 0)
    while offset >= 0:
        runs, offset = leases.from_offset(offset)
        found += [(run.offset + number, run.lease.token, run.attempt) for run in runs for number in range(run.many)]
    assert leases.last() == (found[-1][0] if found else -1)
    return found


def differences(shelf: Shelf, table: Any, *, given: bool = False) -> list[str]:
    """What the engine's groups of one partition have otherwise than the model; nothing when they agree.

    `given`: also since when each lease is given and each worker is known, which is certain once it is committed.
    """
    found = [f"groups {sorted(table.by_name)}, the model has {sorted(shelf.groups)}"]
    if sorted(table.by_name) == sorted(shelf.groups):
        found = []
    for name in sorted(shelf.groups.keys() & table.by_name.keys()):
        model, kept = as_modelled(shelf, shelf.groups[name]), as_kept(shelf, table.by_name[name])
        if given:
            model["given"] = {token: each.given_us for token, each in shelf.groups[name].leases.items()}
            model["workers"] = shelf.groups[name].workers
            known = table.by_name[name].workers
            kept["workers"] = {each: (worker.first_us, worker.last_us) for each, worker in known.items()}
            kept["given"] = {token: lease.given_us for token, lease in table.by_name[name].leases.items()}
        found += [f"{name}.{key}: {kept[key]}, the model has {model[key]}" for key in model if model[key] != kept[key]]
    return found
