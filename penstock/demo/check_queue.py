"""The verdict on the queue part: is every late flight completed or dead-lettered, and each as the file says?

Idea: read the dead-lettered tasks back and compare them one by one. When none is left over, all others are completed.
Ask for the results of some of these by their id, and compare them with what numpy reads in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .late import ATTEMPTS, Late
from .queue import GROUP
from .tally import fingerprint

if TYPE_CHECKING:
    from ..clients import Client, DeadTask

SAMPLE = 200
"""Completed tasks whose result is asked for."""


def differences(client: Client, topic: str, late: Late) -> list[str]:
    """The differences between the file and the tasks."""
    found = _counts(client, topic, late)
    dead = client.dead_letters(topic, GROUP, max_records=len(late) + 1)
    return found + _dead(dead, late) + _results(client, topic, late)


def _counts(client: Client, topic: str, late: Late) -> list[str]:
    found = []
    records = sum(partition.end for partition in client.topic(topic).partitions)
    if records != len(late):
        found.append(f"{len(late):,} late flights in the file, {records:,} tasks in the queue")
    left = client.queue(topic, GROUP).depth
    return [*found, f"{left:,} tasks are neither completed nor dead-lettered"] if left else found


def _dead(dead: list[DeadTask], late: Late) -> list[str]:
    prints = np.sort(np.fromiter((fingerprint(task.record.value) for task in dead), np.uint64, len(dead)))
    if not np.array_equal(prints, late.doomed):
        return [f"{len(late.doomed):,} tasks were to die, {len(prints):,} did, and they are not the same ones"]
    return [
        f"task {task.id} died in attempt {task.attempt} of {ATTEMPTS}: {task.reason}"
        for task in dead
        if task.attempt != ATTEMPTS
    ][:5]


def _results(client: Client, topic: str, late: Late) -> list[str]:
    """Check results of tasks from all over the topic."""
    minutes = dict(zip(late.fingerprints.tolist(), late.minutes.tolist(), strict=True))
    doomed = set(late.doomed.tolist())
    found = []
    step = max(len(late) // SAMPLE, 1)
    for partition in client.topic(topic).partitions:
        for offset in range(0, partition.end, step):
            record = client.read(topic, partition.partition, offset, max_records=1)[0]
            number = fingerprint(record.value)
            info = client.task(f"{topic}-{partition.partition}-{offset}", group=GROUP)
            wanted = ("dead-lettered", None) if number in doomed else ("completed", b"%d" % minutes[number])
            if (info.state, info.result) != wanted:
                found.append(
                    f"task {topic}-{partition.partition}-{offset} is {info.state} with {info.result!r}, "
                    f"the file says {wanted[0]} with {wanted[1]!r}"
                )
    return found[:5]
