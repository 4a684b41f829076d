"""The trace context in headers: what a sender adds, what spans continue, and what happens without OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator

import penstock
import pytest
from penstock import tracing
from penstock.clients import tracing as clients_tracing
from penstock.clients.tasks.calls import Calls, RunningCall
from penstock.clients.tasks.child import TaskChild
from penstock.clients.tasks.message import ENCODING_HEADER, NAME_HEADER
from penstock.clients.tasks.wire import Order
from support.task_functions import app

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Spans that end. A process has one provider, so it is set once."""
    made, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = (each for each in spans.get_finished_spans() if each.name == name)
    return found


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def test_a_record_carries_the_span_that_is_current_and_is_processed_in_a_child(url, topic, spans):
    with penstock.connect(url) as client:
        client.create_topic(topic)
        with client.producer(topic) as producer, trace.get_tracer("app").start_as_current_span("order"):
            producer.send(b"one", headers=tracing.headers({"day": b"1"}))
        (record,) = client.read(topic, 0, 0)
    with tracing.processing(record, attributes={"messaging.destination.name": topic}) as span:
        assert trace.get_current_span() is span
    order, done = named(spans, "order"), named(spans, "process")
    assert set(record.headers) == {"day", "traceparent"}
    assert (parent_of(done), done.context.trace_id) == (order.context.span_id, order.context.trace_id)
    assert done.kind is SpanKind.CONSUMER
    assert dict(done.attributes or {}) == {
        "messaging.system": "penstock", "messaging.operation.type": "process", "messaging.destination.name": topic,
    }  # fmt: skip


class Sent:
    def __init__(self, **headers: bytes) -> None:
        self.headers = headers


def test_several_records_are_linked(spans):
    work = [Sent(traceparent=PARENT.encode(), tracestate=b"a=1"), Sent(), Sent(traceparent=b"\xffwrong")]
    with tracing.processing(work, "store"):
        pass
    found = named(spans, "store")
    (link,) = found.links
    assert (found.parent, f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (
        None, PARENT[3:35], PARENT[36:52],
    )  # fmt: skip
    assert (link.context.trace_state.get("a"), dict(found.attributes or {})["messaging.batch.message_count"]) == (
        "1",
        3,
    )


def test_a_record_without_a_context_begins_a_trace_even_inside_of_another_span(spans):
    with trace.get_tracer("app").start_as_current_span("around"), tracing.processing(Sent(other=b"x")):
        pass
    assert named(spans, "process").parent is None


def test_a_span_of_today_replaces_the_context_that_a_record_had(spans):
    with trace.get_tracer("app").start_as_current_span("again") as span:
        made = tracing.headers({"traceparent": PARENT.encode(), "a": b"1"})
    assert made["a"] == b"1"
    assert made["traceparent"].split(b"-")[2].decode() == f"{span.get_span_context().span_id:016x}"


def test_without_a_current_span_headers_stay(spans):
    given = {"a": b"1"}
    assert tracing.headers(given) == given
    assert tracing.headers(given) is not given
    assert tracing.headers() == {}


def test_an_error_is_recorded_and_goes_on(spans):
    with pytest.raises(ValueError, match="no"), tracing.processing(Sent()):
        raise ValueError("no")
    found = named(spans, "process")
    assert (found.status.status_code, [each.name for each in found.events]) == (StatusCode.ERROR, ["exception"])


def test_without_the_package_there_are_no_spans_and_headers_stay(monkeypatch, spans):
    monkeypatch.setattr(clients_tracing, "_installed", lambda: False)
    with trace.get_tracer("app").start_as_current_span("order"):
        assert tracing.headers({"a": b"1"}) == {"a": b"1"}
    with tracing.processing(Sent(traceparent=PARENT.encode())) as span:
        assert span is None
    assert [each.name for each in spans.get_finished_spans()] == ["order"]


class Leased(Sent):
    """A task of `support.task_functions`, leased."""

    id, attempt, cancelled = "math-0-7", 2, False

    def __init__(self, function: str, value: bytes) -> None:
        named = {NAME_HEADER: function.encode(), ENCODING_HEADER: b"json"}
        super().__init__(**named, traceparent=PARENT.encode())
        self.value = value


def check_task(span: ReadableSpan, *, status: StatusCode) -> None:
    assert f"{parent_of(span):016x}" == PARENT[36:52]
    said = dict(span.attributes or {})
    assert (said["messaging.message.id"], said["penstock.attempt"], span.status.status_code) == ("math-0-7", 2, status)


@pytest.mark.parametrize(
    ("function", "value", "status"),
    [
        ("add", b"[[1,2],{}]", StatusCode.UNSET),
        ("add_async", b"[[1,2],{}]", StatusCode.UNSET),
        ("divide", b"[[1,0],{}]", StatusCode.ERROR),
    ],
)
def test_a_task_runs_in_a_span_that_continues_its_sender(spans, function, value, status):
    calls = Calls(app, 1)
    try:
        started = calls.start(Leased(function, value), lambda progress: None, 0)
        assert isinstance(started, RunningCall)
        started.future.result(30)
    finally:
        calls.close()
    check_task(named(spans, f"process {function}"), status=status)


def test_a_task_of_a_child_process_does_too(spans):
    taken: list[Order] = []
    calls = Calls(app, 1)
    task = Leased("add", b"[[1,2],{}]")
    calls._processes.run = lambda order, *rest: taken.append(order)  # type: ignore[method-assign]
    calls._start_process(app.functions["add"], task, "json", lambda progress: None, None).future.result(30)
    calls.close()
    assert taken[0].headers == {"traceparent": PARENT.encode()}
    TaskChild(None)._outcome(taken[0])  # type: ignore[arg-type]
    check_task(named(spans, "process add"), status=StatusCode.UNSET)


def test_a_sent_task_carries_the_current_span_and_a_schedule_none(spans):
    with trace.get_tracer("app").start_as_current_span("request"):
        message = app.functions["add"].message((1, 2), {})
        sent, scheduled = message.sending(0)["headers"], message.scheduling("UTC")["headers"]
    assert {*sent} - {*scheduled} == {"traceparent"}
    assert {*scheduled} == {NAME_HEADER, ENCODING_HEADER}
