"""What a group is made of, and barriers as clients list them: frozen values, detached from the wire."""

from __future__ import annotations

import re
import reprlib
from datetime import datetime

from msgspec import Struct

from ...transport import messages
from ..arguments.checking import check_fields
from ..descriptions import instant
from ..errors import InvalidArgument
from ..queues.descriptions import STATES
from ..queues.task_ids import task_id

BARRIER_HEADER = "penstock-barrier"
"""The header of a callback's record: `one`, `all` or `ended`, which says what its function is called with."""

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


class GroupTask(Struct, frozen=True):
    """One task of a group: a record for `topic`, as whose task of queue group `group` it is waited for.

    `value`, `key`, `headers` and `priority` are those of the record, as in `Producer.send`. `not_before`: no worker
    gets it before, microseconds UTC; 0: at once.
    """

    topic: str
    group: str
    value: bytes
    key: bytes | None = None
    headers: dict[str, bytes] = {}
    priority: int = 0
    not_before: int = 0

    def __post_init__(self) -> None:
        check_fields(self)


class Callback(Struct, frozen=True):
    """The record that is appended to `topic` once the tasks of a group have ended, with `headers` and `priority`.

    `ended`: in whichever way; else once all have completed. Its value is an array of msgpack: for each
    task (state, result, reason).
    """

    topic: str
    headers: dict[str, bytes] = {}
    priority: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


class Barrier(Struct, frozen=True):
    """A callback that waits for tasks: so many `members`, of which `waiting` have not ended.

    `first_waiting` are the numbers of the first of those, in the order of the group, from 0 on. `holding` are tasks
    that ended and keep it waiting: number, state, reason and id. The id is "" where the broker does not know it, or
    the user may not see its topic. It is forgotten at `until`. Made by `Client.barriers`.
    """

    topic: str
    partition: int
    id: str
    members: int
    waiting: int
    first_waiting: list[int]
    holding: list[tuple[int, str, str, str]]
    ended: bool
    headers: dict[str, bytes]
    until: datetime

    @property
    def why(self) -> str:
        """One sentence that says what it waits for."""
        if not self.holding and not self.waiting:
            return f"all {self.members} tasks have ended, and its record is about to be appended"
        parts: list[str] = []
        if self.waiting:
            numbers = ", ".join(map(str, self.first_waiting)) + (
                ", ..." if self.waiting > len(self.first_waiting) else ""
            )
            parts.append(f"{self.waiting} of {self.members} tasks have not ended: {numbers}")
        parts += [
            f"task {id_ or number} is {state}{_because(state, reason)}" for number, state, reason, id_ in self.holding
        ]
        return "; ".join(parts)


def barrier_id(text: str) -> bytes:
    """The id of a barrier as the wire has it. Raises InvalidArgument."""
    if _ID.fullmatch(text):
        return bytes.fromhex(text)
    raise InvalidArgument(f"{reprlib.repr(text)} is no id of a barrier: it has 32 hexadecimal digits, as in Barrier.id")


def barrier_of(found: messages.Barrier) -> Barrier:
    """A barrier as the wire has it."""
    tasks = found.tasks or [("", 0, -1)] * len(found.holding)  # a broker of before names none
    return Barrier(
        found.topic_name, found.partition, found.barrier.hex(), found.members, found.waiting, list(found.first_waiting),
        [
            (number, STATES.get(state, state), reason, task_id(*task) if task[0] else "")
            for (number, state, reason), task in zip(found.holding, tasks, strict=True)
        ],
        found.ended, dict(found.headers), instant(found.until_us),
    )  # fmt: skip


def _because(state: str, reason: str) -> str:
    if state == "dead-lettered":
        return f" ({reason}): redrive it" if reason else ": redrive it"
    return ", so it never completes"
