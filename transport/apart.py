"""Whether a node can listen at all of its addresses together, asked before anything is made.

Contract: pure. The error names both addresses, and the options that they come from. Whether other processes leave room
for them is asked by `free_addresses`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from .errors import InvalidUrl
from .url import Url


def need_apart(places: Iterable[tuple[str, Url]]) -> None:
    """Refuse two addresses that are one place to listen. `places`: with the option of each. Raises InvalidUrl."""
    for (option, url), (other_option, other) in combinations(places, 2):
        if url.overlaps(other):
            kind = "port" if url.has_port else "path"
            raise InvalidUrl(
                f"{option} {url} and {other_option} {other} are one place to listen: choose another {kind} for one of "
                "them"
            )
