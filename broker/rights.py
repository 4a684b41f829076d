"""Who may do what: one question that the broker and every door of the gateway ask before they do anything.

Idea: a door knows its peer as a Principal, and names the operation and the resource that a request is about. A
resource is one text, made of canonical names, so there is one way to write each:

    topic:TOPIC   group:TOPIC/GROUP   producer:TOPIC/NAME   schedule:TOPIC/NAME   transaction:NAME   node

A queue is a group. A grant allows or denies operations on one resource, or on all that begin alike (`topic:orders-*`).

Contract: what no grant allows is denied, and what any grant denies is denied, whatever else allows it. To see that
something exists is allowed with any other operation on it. Pure: a principal remembers what was decided.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from .quotas import Quota

Operation = Literal["see", "read", "write", "manage"]
"""Knowing that it exists, and its state; reading records, and taking part in a group; appending; all that is left."""

OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def in_order(operations: frozenset[str]) -> list[Operation]:
    """Some operations as people are told of them."""
    return [each for each in OPERATIONS if each in operations]


NODE = "node"
"""The resource of what is about the whole node: its counters."""

DECIDED_MOST = 4096
"""Decisions that a principal remembers."""

RESOURCE_MOST = 410
"""Characters of a resource: longer ones have a name that is none. They are decided, and not remembered."""

_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"
_BEGINNING = r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,199})?\*"
_OF_TOPIC = f"(?:group|producer|schedule):(?:{_NAME}/{_NAME}|{_NAME}/{_BEGINNING}|{_BEGINNING})"
_PATTERN = re.compile(rf"\*|node|(?:topic|transaction):(?:{_NAME}|{_BEGINNING})|{_OF_TOPIC}")


class Grant(Struct, frozen=True):
    """One line of what is allowed or denied. A pattern that ends in * stands for all that begin alike."""

    denies: bool
    operations: frozenset[str]
    pattern: str

    @property
    def kind(self) -> str:
        """Its word in the file."""
        return "deny" if self.denies else "allow"

    def covers(self, operation: str, resource: str) -> bool:
        """Whether it is about this operation on this resource."""
        return operation in self.operations and (
            resource.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else resource == self.pattern
        )


class Patterns(NamedTuple):
    """The patterns of grants for one operation, so that a question is four look-ups however many there are."""

    allowed: frozenset[str]
    allowed_beginnings: tuple[str, ...]
    denied: frozenset[str]
    denied_beginnings: tuple[str, ...]

    @classmethod
    def of(cls, grants: Iterable[Grant], operation: str) -> Patterns:
        """Those of some grants."""
        found: dict[bool, list[str]] = {False: [], True: []}
        for grant in grants:
            if operation in grant.operations:
                found[grant.denies].append(grant.pattern)
        return cls(*_split(found[False]), *_split(found[True]))

    def allow(self, resource: str) -> bool:
        """Whether one of them allows it."""
        return resource in self.allowed or resource.startswith(self.allowed_beginnings)

    def deny(self, resource: str) -> bool:
        """Whether one of them denies it."""
        return resource in self.denied or resource.startswith(self.denied_beginnings)


def _split(patterns: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names, and what names begin with."""
    whole = frozenset(each for each in patterns if not each.endswith("*"))
    return whole, tuple(each[:-1] for each in patterns if each.endswith("*"))


class Principal:
    """A peer by the name it authenticated under, with all grants that concern it. Of one name are equal.

    `proof` is what it proved that it has or is, "key:HEX", "token:ID" or "uid:1000": a user may have several keys.
    `scope` is what this proof is for, if it is not for all that the user may do.
    """

    __slots__ = ("decided", "grants", "name", "passed", "patterns", "proof", "quota", "scope")

    def __init__(
        self, name: str, grants: Iterable[Grant] = (), proof: str = "", quota: Quota | None = None,
        scope: Iterable[Grant] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.proof = proof or name
        self.quota = quota
        self.scope = tuple(scope)
        self.grants = tuple(grants)
        self.patterns: dict[str, Patterns] = {}  # by operation, of those that were asked about
        self.decided: dict[tuple[str, str], bool] = {}
        self.passed: set[Hashable] = set()  # requests that were allowed, as their guard calls them

    def remember(self, key: Hashable) -> None:
        """Remember a request that was allowed."""
        if len(self.passed) >= DECIDED_MOST:
            self.passed.clear()
        self.passed.add(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Principal({self.name!r})"


EVERYTHING = (Grant(False, frozenset(OPERATIONS), "*"),)

ANYONE = Principal("default", EVERYTHING)
"""The peer of a door that lets any client in."""


def authorize(principal: Principal, operation: Operation, resource: str) -> bool:
    """Whether `principal` may do `operation` to `resource`."""
    found = principal.decided.get((operation, resource))
    return _decide(principal, operation, resource) if found is None else found


def _decide(principal: Principal, operation: Operation, resource: str) -> bool:
    found = principal.patterns.get(operation)
    if found is None:
        found = principal.patterns[operation] = Patterns.of(principal.grants, operation)
    allowed, denied = found.allow(resource), found.deny(resource)
    if operation == "see" and not allowed:
        allowed = any(_decide(principal, other, resource) for other in OPERATIONS if other != "see")
    answer = allowed and not denied and _in_scope(principal.scope, operation, resource)
    if len(resource) <= RESOURCE_MOST:
        if len(principal.decided) >= DECIDED_MOST:
            principal.decided.clear()
        principal.decided[operation, resource] = answer
    return answer


def shown(resource: str) -> str:
    """A resource for people, cut where it is too long for one."""
    return resource if len(resource) <= RESOURCE_MOST else f"{resource[:60]}..."


def _in_scope(scope: tuple[Grant, ...], operation: str, resource: str) -> bool:
    """Whether a proof is for this. To see is in its scope with any other operation."""
    operations = OPERATIONS if operation == "see" else (operation,)
    return not scope or any(grant.covers(each, resource) for grant in scope for each in operations)


def is_pattern(text: str) -> bool:
    """Whether a grant may have this as its pattern."""
    return _PATTERN.fullmatch(text) is not None
