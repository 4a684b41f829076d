"""The ways records can travel from the broker to a reader, and which of them a client can use.

Contract: the best way comes first; the others are for when it does not get through.
"""

from __future__ import annotations

from typing import Literal

from ..reading.mapped import is_local
from .connection import Connection

Delivery = Literal["auto", "push", "control", "mapped"]


def delivery_ways(connection: Connection, group: str, wanted: Delivery, may_map: bool) -> list[str]:
    """How records may travel, the best way first."""
    chosen = connection.channel.choose_delivery(group, wanted)
    if wanted != "auto":
        return [chosen]
    ways = [chosen, "control"] if chosen == "push" else [chosen]
    return ["mapped", *ways] if may_map and is_local(connection.welcome) else ways


def range_ways(connection: Connection, delivery: Delivery, *, may_map: bool) -> list[str]:
    """How the batches of a range may travel, the best way first: mapped, or over the connection itself."""
    ways = delivery_ways(connection, "", delivery, may_map)
    return list(dict.fromkeys("control" if way == "push" else way for way in ways))
