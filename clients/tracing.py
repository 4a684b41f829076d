"""Trace context of OpenTelemetry in the headers of records, as W3C has it: `traceparent` and `tracestate`.

    producer.send(b"...", headers=tracing.headers())            # the span that is current here
    with tracing.processing(record):                            # a span that continues the sender's
        ...

Idea: `Tasks` does both by itself; other programs say where a span begins and ends, which only they know.

Contract: uses the API of OpenTelemetry alone: which spans are recorded, and where they go, is decided by the SDK that
the application sets up. Without its package (extra `opentelemetry`), headers stay what they were and there are no
spans. A header that is no trace context is passed over. Raises nothing of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

FIELDS = ("traceparent", "tracestate")
"""The headers that carry it."""


class Traced(Protocol):
    """A record or a task, as far as a trace sees it."""

    @property
    def headers(self) -> Mapping[str, bytes]: ...


def headers(given: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """`given` with the context of the current span, which replaces one that is there."""
    made = dict(given or {})
    if _installed():
        carrier: dict[str, str] = {}
        _format().inject(carrier)
        made.update((name, value.encode()) for name, value in carrier.items())
    return made


@contextmanager
def processing(
    work: Traced | Sequence[Traced], name: str = "process", attributes: Mapping[str, Any] | None = None
) -> Iterator[Span | None]:
    """A span around the work on a record or a task: a child of the sender's. On several, it is linked to each sender's.

    An exception that leaves the block is recorded with the span. Yields the span, or None without OpenTelemetry.

    Args:
        work: what has the headers.
        name: of the span.
        attributes: of the span, beside `messaging.system` and the like.
    """
    if not _installed():
        yield None
        return
    from opentelemetry import trace

    is_several = isinstance(work, Sequence)
    works: list[Any] = list(work) if isinstance(work, Sequence) else [work]
    senders = [_sender(each.headers) for each in works]
    said = {"messaging.system": "penstock", "messaging.operation.type": "process", **(attributes or {})}
    links = []
    if is_several:
        said["messaging.batch.message_count"] = len(works)
        found = (trace.get_current_span(each).get_span_context() for each in senders)
        links = [trace.Link(each) for each in found if each.is_valid]
    tracer = trace.get_tracer("penstock")
    parent = None if is_several else senders[0]
    with tracer.start_as_current_span(name, parent, trace.SpanKind.CONSUMER, said, links) as span:
        yield span


def carried(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Of headers, those that carry a trace context."""
    return {name: bytes(headers[name]) for name in FIELDS if name in headers}


def _sender(headers: Mapping[str, bytes]) -> Context:
    """The context that headers carry, beside nothing of the context here; an empty one where they carry none."""
    from opentelemetry.context import Context

    found = {name: value.decode("ascii", "replace") for name, value in carried(headers).items()}
    return _format().extract(found, Context())


@cache
def _installed() -> bool:
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.trace") is not None


@cache
def _format() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
