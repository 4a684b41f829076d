"""Assigns partitions to members: sticky and even.

Idea: members keep their partitions up to an even share; the rest goes to the members with the fewest. So a join or a
leave moves as few partitions as possible.

Contract: every partition gets exactly one member, shares differ by at most one, equal arguments give equal results.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def assign(members: Sequence[str], partitions: Sequence[int], current: Mapping[int, str]) -> dict[int, str]:
    """Member by partition.

    Args:
        members: all members; with none, the result is empty.
        partitions: the numbers of all that can be read.
        current: the present assignment; may name members that have left.
    """
    if not members:
        return {}
    order = sorted(set(members))
    least, larger = divmod(len(partitions), len(order))
    held: dict[str, list[int]] = {member: [] for member in order}
    for partition in partitions:
        if current.get(partition) in held:
            held[current[partition]].append(partition)
    # Members with the most partitions keep the larger shares: that moves least.
    by_holding = sorted(order, key=lambda member: (-len(held[member]), member))
    share = {member: least + (rank < larger) for rank, member in enumerate(by_holding)}
    result = {p: member for member in order for p in held[member][: share[member]]}
    free = iter([p for p in partitions if p not in result])
    for member in by_holding:
        for _ in range(share[member] - len(held[member])):
            result[next(free)] = member
    return result
