"""Doubts of a dead keeper about the logs of a member, taken into account before the order is followed.

Idea: a log whose sync failed is poisoned, so that it is opened up to what is durable; one whose sync never answered is
opened as suspect. Both before the replica compares its logs with the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import poison
from ...storage.data_directory import ORDER, stored_logs
from ..store import stored_log_id

if TYPE_CHECKING:
    from ...storage.files import Files
    from ..keeper.unresolved_syncs import UnresolvedSyncs


def suspects(files: Files, data: str, doubts: UnresolvedSyncs) -> dict[str, bytes]:
    """The logs in doubt, by path, with their ids. Poisons those whose sync failed."""
    found: dict[str, bytes] = {}
    for path in (f"{data}/{ORDER}", *stored_logs(files, data)) if doubts else ():
        log_id = stored_log_id(files, path)
        doubt = doubts.about(log_id) if log_id else None
        if doubt is not None:
            found[path] = log_id
            if doubt.poisoned:
                poison.write(files, path, "a sync failed before the broker ended", durable=doubt.durable)
    return found
