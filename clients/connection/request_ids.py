"""The request that a program works on, by an id that follows it into the logs of gateway, broker and keeper.

Idea: the id is a context variable, so it follows the calls of a thread or a task and is passed to no function. What a
verb asks of the broker carries it; what the client asks by itself (sessions, leases, acks in batches) carries none.

Contract: read once for each verb, never for each record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context

from ...transport.naming_messages import REQUEST_ID, REQUEST_ID_MAX
from ..errors import InvalidArgument

_VALID = re.compile(REQUEST_ID)
_CURRENT: ContextVar[tuple[str, ...]] = ContextVar("penstock.request_id", default=())

current_ids = _CURRENT.get
"""The id that is current in this context, as what a request carries; () without one."""


def request_id(id: str) -> AbstractContextManager[None]:
    """Have what a block asks of a broker carry an id, which the logs of penstock's processes name with it.

    Args:
        id: 1 to 128 visible ASCII characters, such as the `X-Request-Id` of a request that the program answers.

    It holds for this thread, or this task of an event loop and tasks that begin inside, and for every client. Verbs
    carry it; records of `send_nowait` and `post` carry none, and cost nothing for it. Inside of another block, the
    inner id holds.

    Raises: InvalidArgument for an id that cannot be one.
    """
    if not isinstance(id, str) or not _VALID.fullmatch(id):
        shown = repr(id)[:REQUEST_ID_MAX]
        raise InvalidArgument(
            f"id={shown} is no id of a request: it has 1 to {REQUEST_ID_MAX} visible ASCII characters"
        )
    return _current(id)


@contextmanager
def _current(id: str) -> Iterator[None]:
    token = _CURRENT.set((id,))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def context_of(id: str) -> Context:
    """A context like the present one, where an id is current. `id` must be one that `request_id` takes."""
    context = copy_context()
    context.run(_CURRENT.set, (id,))
    return context
