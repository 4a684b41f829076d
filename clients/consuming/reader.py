"""What reads for an application: the core of one topic, or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...storage.record import Record
from ...transport.consumer_session import ConsumerSession
from ..connection.steps import Steps
from .columnar import Convert
from .handout import Handout, Load
from .telling import AssignmentNews

if TYPE_CHECKING:
    from ..connection.connection import Connection


class Reader(Protocol):
    """See ConsumerCore, which is one."""

    connection: Connection
    begun: Any
    back_to: Any

    @property
    def load(self) -> Load | None:
        """What makes the records that the application gets; None where it gets bytes."""
        ...

    def run_there(self, *, holds: bool = False) -> Handout | None:
        """The next run of records, without waiting. If the caller `holds` records, errors are left to its next call."""
        ...

    @property
    def telling(self) -> AssignmentNews | None:
        """The application, of partitions given and taken."""
        ...

    @property
    def session(self) -> ConsumerSession | None:
        """The session of which it is told."""
        ...

    def fetch(self, max_records: int, deadline: float) -> Steps[list[Record[Any]]]:
        """At most `max_records` records: what is there, or what comes first by the deadline."""
        ...

    def next_list(self, deadline: float, *, one_by_one: bool) -> Steps[Handout | None]:
        """The next run of records."""
        ...

    def next_batch(self, convert: Convert, deadline: float) -> Steps[Any]:
        """The next batch."""
        ...

    def batch_there(self, convert: Convert) -> Any:
        """The next batch, without waiting."""
        ...
