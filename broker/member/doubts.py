"""Doubts of a dead keeper about the logs of a member, taken into account before the order is followed.

Idea: a log whose sync failed is poisoned, so that it is opened up to what is durable; one whose sync never answered is
opened as suspect. Both before the replica compares its logs with the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import poison
from ...storage.data_directory import METADATA, ORDER, partition_paths, topics_of
from ..store import stored_log_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.files import Files
    from ..keeper.unresolved_syncs import UnresolvedSyncs


def suspects(files: Files, data: str, doubts: UnresolvedSyncs) -> dict[str, bytes]:
    """The logs in doubt, by path, with their ids. Poisons those whose sync failed."""
    found: dict[str, bytes] = {}
    for path in _paths(files, data) if doubts else ():
        log_id = stored_log_id(files, path)
        doubt = doubts.about(log_id) if log_id else None
        if doubt is not None:
            found[path] = log_id
            if doubt.poisoned:
                poison.write(files, path, "a sync failed before the broker ended", durable=doubt.durable)
    return found


def _paths(files: Files, data: str) -> Iterator[str]:
    yield f"{data}/{ORDER}"
    yield f"{data}/{METADATA}"
    for topic in topics_of(files, data):
        yield from partition_paths(files, data, topic)
