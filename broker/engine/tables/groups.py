"""The stream groups of a partition: cursor, owner, epoch.

Idea: a group reads a partition through one owner at a time. Every hand-over and every seek logs a new epoch; commits
under an older epoch are refused, so a member that was away too long cannot move the cursor.

Contract: `check` decides and changes nothing; the others apply logged effects and decide nothing. Must not know
members or assignments: see coordinator.py. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from ...errors import Fenced

NOTHING = -1
"""A cursor before the first commit."""


class GroupState(Struct, array_like=True):
    """One group on one partition. The next offset to read is `resume`."""

    group: str
    cursor: int = NOTHING
    start: int = NOTHING  # where an owner begins while there is no cursor; NOTHING before the first owner
    owner: str = ""
    epoch: int = 0
    last_us: int = 0  # append time of its last effect
    note: str = ""  # beside the cursor, by the reader that moved it

    def resume(self, first: int, end: int) -> int:
        """The next offset to read, within the offsets that exist."""
        wanted = self.cursor if self.cursor != NOTHING else self.start
        return min(max(wanted, first), end)

    def lag(self, first: int, end: int) -> int:
        """Records the group has yet to finish."""
        return end - self.resume(first, end)


class GroupTable:
    """All groups on one partition."""

    def __init__(self) -> None:
        self.by_name: dict[str, GroupState] = {}

    def get(self, group: str) -> GroupState:
        """The state of a group; a fresh one, not kept, when it has none here."""
        return self.by_name.get(group) or GroupState(group)

    def check(self, group: str, member: str, epoch: int) -> None:
        """Raise Fenced unless `member` may move the cursor under `epoch`."""
        state = self.get(group)
        if state.epoch != epoch or state.owner != member:
            raise Fenced(
                f"group {group}: {member} commits under epoch {epoch}, "
                f"but {state.owner or 'no member'} owns the partition under epoch {state.epoch}"
            )

    def moved(self, group: str, offset: int, time_us: int, note: str = "") -> None:
        """The cursor stands at `offset`, with a note or without one."""
        state = self._state(group, time_us)
        state.cursor, state.note = offset, note

    def owned(self, group: str, member: str, epoch: int, start: int, time_us: int) -> None:
        """`member` owns the partition under `epoch`."""
        state = self._state(group, time_us)
        state.owner, state.epoch, state.start = member, epoch, start

    def deleted(self, group: str) -> None:
        """Delete a group."""
        self.by_name.pop(group, None)

    def _state(self, group: str, time_us: int) -> GroupState:
        state = self.by_name.get(group)
        if state is None:
            state = self.by_name[group] = GroupState(group)
        state.last_us = time_us
        return state

    def dump(self) -> list[GroupState]:
        """Dump for a snapshot, in a fixed order."""
        return sorted(self.by_name.values(), key=lambda state: state.group)

    @classmethod
    def load(cls, states: list[GroupState]) -> GroupTable:
        """Restore from a snapshot."""
        table = cls()
        table.by_name = {state.group: state for state in states}
        return table
