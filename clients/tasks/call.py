"""Calls that are sent with a group, and the functions that may be called once tasks have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from ..errors import InvalidArgument
from .jobs import JobApp, JobFunction
from .message import How, Message, Then

if TYPE_CHECKING:
    from .aio import AsyncLink

R = TypeVar("R")


class GroupApp(JobApp, Protocol):
    """The app of a group's functions."""

    def send_group(self, messages: Sequence[Message], then: Then) -> list[str]:
        """Commit calls, and one of `then` once they have ended."""
        ...

    @property
    def aio(self) -> AsyncLink:
        """The same for event loops."""
        ...


class GroupFunction(JobFunction[R], Protocol[R]):
    """A function of a group."""

    @property
    def app(self) -> GroupApp:
        """The application that defines it."""
        ...


class Call(Generic[R]):
    """A call that is to be sent with a group. Made by `TaskFunction.call`."""

    def __init__(self, function: GroupFunction[R], message: Message) -> None:
        self.function = function
        self.message = message

    def __repr__(self) -> str:
        return f"<call of {self.function.name}>"


@runtime_checkable
class CallbackFunction(Protocol):
    """A task function, as what may be called once others have ended."""

    def as_then(self, how: How, app: object) -> Then:
        """What is sent of it once calls of `app` have ended. Raises InvalidArgument."""
        ...


def callback(then: Any) -> CallbackFunction:
    """The function of a `then=`. Raises InvalidArgument."""
    if not isinstance(then, CallbackFunction):
        raise InvalidArgument(f"then={then!r} is no task function: give the function itself, as @app.task made it")
    return then
