"""The guard of a node: asks of each request, before anything else, whether its principal may make it.

Idea: the driver passes the principal of each message that came over a connection of a broker that has users and
grants. Handlers learn from here on whose behalf they work: sessions have owners, lists show what the principal may see.

Producers' ids, stages and names of transactions have owners in the logs: `check_owner` asks for those (decision 119).

Contract: `principal`, `proof` and `viewer` are those of the request whose handler is being called; what goes on later
takes them along. Without principals everything is allowed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...transport import messages as m
from ..errors import Forbidden, InvalidRequest
from ..rights import RESOURCE_MOST, authorize, shown
from .needs import TABLE

if TYPE_CHECKING:
    from ..rights import Principal
    from .logs.topics import Topics

Sees = Callable[[str], bool]
"""Whether a principal may know of a resource."""


OFTEN: dict[type, bool] = {m.Produce: False, m.Fetch: False, m.Lease: True, m.SettleTasks: True, m.ExtendLeases: True}
"""Messages whose needs follow from their topic and, where it says so, their group: what passed once passes at once."""


class Guard:
    """See the module."""

    def __init__(self, topics: Topics) -> None:
        self.refused = 0
        """Requests that were not allowed."""
        self.last_refusal = ""
        """For people."""
        self._topics = topics
        self._principal: Principal | None = None

    def check(self, principal: Principal, message: Any) -> None:
        """Raise Forbidden or InvalidRequest unless the principal may make this request: handlers work on its behalf."""
        self._principal = principal
        kind, key = type(message), None
        if kind in OFTEN:
            key = (kind, message.topic, message.group if OFTEN[kind] else "")
            if key in principal.passed:
                return
        row = TABLE.get(kind)
        if row is None:  # a handler without one is not reached either
            raise InvalidRequest(f"{kind.__name__} is not a request")
        needs = list(row(message, self._name_of))
        for operation, resource in needs:
            if not authorize(principal, operation, resource):
                self._note(f"{principal.name} may not {operation} {shown(resource)}")
                raise Forbidden(f"user {self.last_refusal}: {_way_out(principal)}")
        if key is not None and needs and all(len(resource) <= RESOURCE_MOST for _, resource in needs):
            principal.remember(key)

    def check_owner(self, principal: Principal | None, owner: str, what: str, resource: str = "") -> None:
        """Raise Forbidden where another user owns what a request uses, unless this one may manage `resource`."""
        if principal is None or owner in ("", principal.name):
            return
        if resource and authorize(principal, "manage", resource):
            return
        self._note(f"{principal.name} may not use {what}, which {owner} owns")
        way = f"only its owner may use it, and users that may manage {resource}" if resource else "use one of your own"
        raise Forbidden(f"{what} belongs to another user: {way}")

    def _note(self, refusal: str) -> None:
        self.refused += 1
        self.last_refusal = refusal

    def _name_of(self, topic: bytes) -> str | None:
        found = self._topics.by_id.get(topic)
        return None if found is None else found.name

    @property
    def principal(self) -> Principal | None:
        """On whose behalf the request is; None without users."""
        return self._principal

    @property
    def proof(self) -> str:
        """Of the principal; "" without any."""
        return "" if self._principal is None else self._principal.proof

    def viewer(self) -> Sees:
        """What the principal of this request may see, also later."""
        principal = self._principal
        return _everything if principal is None else lambda resource: authorize(principal, "see", resource)


def _way_out(principal: Principal) -> str:
    if ":" not in principal.name:
        return "an administrator can allow it with penstock acl add"
    return "it is no user of the broker's file, or not any more; an administrator adds it with penstock key or user uid"


def _everything(resource: str) -> bool:
    return True
