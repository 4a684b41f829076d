"""A request for one answer, and the error that an answer may be.

Contract: a question is posted, sent, and sent again after a lost connection, until it is answered or cancelled.
Must not know: how a connection keeps itself up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...storage.errors import Error
from ...transport.codec import check_request
from ...transport.errors import ProtocolError
from ...transport.failures import error_of
from ...transport.messages import Answer, Failure, Message
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

A = TypeVar("A")


class QuestionConnection(Protocol):
    """What a question asks of its connection."""

    payload: Buffer
    ended: list[object]
    next_request: Callable[[], int]

    def send(self, message: Message, payload: Buffer = b"", *, asker: Any = None, ids: Sequence[str] = ()) -> bool:
        """Send now if that is possible."""
        ...

    def post(self, question: Any) -> None:
        """Send as soon as possible."""
        ...

    def forget(self, question: Any) -> None:
        """Drop a question, sent or not."""
        ...

    def arrived_at(self, asked_at: float) -> float:
        """When the present answer arrived."""
        ...


class Question:
    """A request for one answer, resent after a lost connection. Calls `then` with the answer."""

    def __init__(
        self,
        connection: QuestionConnection,
        make: Callable[[int], Message],
        then: Callable[[Answer], None] | None = None,
        *,
        payload: Buffer = b"",
    ) -> None:
        self.answer: Answer | None = None
        self.times_sent = 0
        self.request = 0
        self.ids: tuple[str, ...] = ()  # of the requests that it is part of
        self._connection = connection
        self._make = make
        self._then = then
        self._payload = payload

    def send(self, message: Any = None) -> bool:
        """Send `message`, or the request under a new id. Returns False if the channel cannot take it now."""
        if message is None:
            message = self._make(self._connection.next_request())
        if not self._connection.send(message, self._payload, asker=self, ids=self.ids):
            return False
        self.times_sent += 1
        self.request = message.request
        return True

    def checked(self) -> Message:
        """The request under a new id. Raises InvalidArgument for invalid fields: a broker would count the client as
        hostile."""
        message = self._make(self._connection.next_request())
        try:
            check_request(message)
        except ProtocolError as error:
            raise InvalidArgument(error.message) from None
        return message

    def answered(self, answer: Answer) -> None:
        if self.answer is None:
            self.answer = answer
        self._connection.ended.append(self)
        if self._then is not None:
            self._then(answer)

    def lost(self) -> None:
        self._connection.post(self)

    def unanswered(self, now: float) -> None:
        """Do nothing: a broker may take long, and the waiter has its own deadline."""

    def cancel(self) -> None:
        """Drop the answer: nothing waits for it any more."""
        self._connection.forget(self)


class BatchesQuestion(Question):
    """Keeps the batches of its answer.

    A `then` for that would be a cycle, which would keep them until garbage is collected.
    """

    batches: bytes = b""

    def answered(self, answer: Answer) -> None:
        super().answered(answer)
        self.batches = bytes(self._connection.payload)


def expect(answer: Answer, kind: type[A]) -> A:
    """Return the answer if it is of `kind`; raise the error of a Failure."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Failure):
        raise raised(answer)
    raise ProtocolError(f"the broker answered with {type(answer).__name__} where {kind.__name__} belongs")


def raised(failure: Failure) -> Error:
    """The error of a failure, with the offset where reading may go on."""
    error = error_of(failure)
    if failure.offset >= 0:
        error.offset = failure.offset
    return error
