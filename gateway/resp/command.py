"""A row of the table of commands, and how handlers see the connection that they answer.

Idea: one row per command says its arity, its handler, and what people and clients read about it. Dispatch, COMMAND,
HELP and the table in docs/resp.md are made from the rows.

Contract: a handler takes the session and the arguments behind the command's name. It returns a reply (replies.py), the
Tickets of records on their way, or a coroutine of either. A coroutine begins when everything before it is
answered, and nothing behind it begins earlier. It raises CommandRefused or penstock's errors.

The handler of a row with `shared` takes a run: commands one behind the other, of as many words, that begin with the
same ones. It gets these, without the name, and the words behind them by column. Its reply is that of all, one behind
the other. Where it raises an error, the run has had no effect; then each of the commands runs alone, and only those to
blame are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from ...broker.rights import NODE, Operation, Principal, authorize, shown
from ..appending import Told
from ..holding import HeldBytes
from ..link import BrokerLink
from ..turns import Turns
from ..users import Users
from .refusals import CommandRefused

Group = Literal["connection", "server", "transactions", "keys", "streams", "groups", "topics"]

Handler = (
    Callable[["RespSession", list[bytes]], Any] | Callable[["RespSession", list[bytes], list[Sequence[bytes]]], Any]
)
"""Of one command, or of a run."""


class Command(Struct, frozen=True):
    """One row. `arity` counts the name; a negative one is the least."""

    name: str
    arity: int
    handler: Callable[..., Any]  # a Handler
    group: Group
    usage: str
    summary: str
    operation: Operation | None = None  # None: about no topic
    keys: tuple[int, int, int] = (0, 0, 0)  # first, last and step, as COMMAND has them
    flags: tuple[str, ...] = ()
    before_auth: bool = False
    shared: Callable[[list[bytes]], int] | None = None  # how many words of a command others of its run have, too

    def fits(self, count: int) -> bool:
        """Whether a command of so many words, its name included, has the right arity."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


class Door(Protocol):
    """What all connections of a door share."""

    link: BrokerLink
    table: Mapping[str, Command]
    users: Users | None
    may_create: bool
    trims: Any  # TrimsBeside
    turns: Turns
    held: HeldBytes

    def facts(self) -> dict[str, dict[str, Any]]:
        """What INFO says, by section."""
        ...

    def sessions(self, principal: Principal) -> list[RespSession]:
        """The sessions of a principal."""
        ...


class RespSession(Protocol):
    """The state of one connection."""

    door: Door
    id: int
    version: int  # of RESP
    name: bytes
    library: tuple[bytes, bytes]  # name and version
    principal: Principal | None  # None: has to authenticate
    peer: str
    wrong: int  # passwords so far
    seconds: Callable[[], int]  # since it connected
    executing: int  # commands of an EXEC that are left

    @property
    def teller(self) -> Told:
        """What hears that records are settled."""
        ...

    def authenticated(self, principal: Principal) -> None:
        """Go on as `principal`."""
        ...

    def reset(self) -> None:
        """Be as a new connection."""
        ...

    def hold(self, size: int) -> None:
        """Know that the reply to come grows by so much. Raises CommandRefused if there is no room for it."""
        ...

    def blocks(self, waits: bool) -> None:
        """Say that the command waits for records that may never come, or that it does not any more."""
        ...

    def close_after_replies(self) -> None:
        """Take no further command, and close once everything is answered."""
        ...


def may(session: RespSession, operation: Operation, topic: str, group: str = "") -> None:
    """Raise CommandRefused unless the session's principal may do this to a topic, or to a group of it; "": the node."""
    about = f"group:{topic}/{group}" if group else f"topic:{topic}" if topic else NODE
    if not _allows(session, operation, about):
        if session.door.users is not None and session.principal is not None:
            session.door.users.forbid(session.principal, operation, about)
        raise CommandRefused(f"this user has no permission to {operation} {shown(about)}", "NOPERM")


def sees(session: RespSession, topic: str, group: str = "") -> bool:
    """Whether the session's principal may know of a topic, or of a group of it."""
    return _allows(session, "see", f"group:{topic}/{group}" if group else f"topic:{topic}")


def _allows(session: RespSession, operation: Operation, about: str) -> bool:
    principal, users = session.principal, session.door.users
    if principal is None:
        return False
    return authorize(principal if users is None else users.current(principal), operation, about)
