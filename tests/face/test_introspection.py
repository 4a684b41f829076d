"""What tools ask of public names: `help`, type hints, and copies, which multiprocessing makes of values and errors."""

from __future__ import annotations

import copy
import gc
import inspect
import pydoc
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, get_type_hints

import penstock
import penstock.aio
import penstock.errors
import pytest
from penstock.clients.memory_broker import MemoryBroker
from penstock.clients.tasks import JobStatus, Retry
from penstock.storage.record import NO_HEADERS
from penstock.transport.messages import Stage

MODULES = [penstock, penstock.aio, penstock.errors]
NAMED_LATE = {"pa": ModuleType("pyarrow"), "pyarrow": ModuleType("pyarrow"), "Buffer": bytes}
"""What annotations name without importing it: an extra, and a class of Python 3.12."""
for _module in (NAMED_LATE["pa"], NAMED_LATE["pyarrow"]):
    _module.Table = _module.RecordBatch = object  # pyright: ignore[reportAttributeAccessIssue]
ERRORS = [getattr(penstock.errors, name) for name in penstock.errors.__all__]


def public() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def functions() -> Iterator[tuple[str, Any]]:
    """All public functions, the methods and properties of all public classes, and what makes these."""
    assert penstock.Tasks("mem://none").aio is not None  # loaded by the first use of `Tasks.aio`
    for name, thing in public():
        if not inspect.isclass(thing):
            yield name, thing
            continue
        yield name, thing
        for member in dir(thing):
            found = inspect.getattr_static(thing, member)
            found = getattr(found, "fget", getattr(found, "__func__", found))
            is_ours = str(getattr(found, "__module__", "")).startswith("penstock")
            if inspect.isfunction(found) and is_ours and (member == "__init__" or not member.startswith("_")):
                yield f"{name}.{member}", found


def test_help_renders():
    for module in MODULES:
        assert "Error" in pydoc.render_doc(module) or module is penstock.aio
    for name, thing in public():
        if not isinstance(thing, str):
            assert pydoc.render_doc(thing), name


def test_every_annotation_resolves():
    wrong = {}
    for name, thing in functions():
        if callable(thing):
            try:
                get_type_hints(thing, localns=NAMED_LATE)
            except NameError as error:
                wrong[name] = str(error)
    assert wrong == {}


def passed(value: Any) -> Any:
    """`value` as another process gets it from this one."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))


COPIES = [passed, copy.copy, copy.deepcopy]
VALUES = [
    penstock.Record(b"v", b"k", {"a": b"1"}, 7, 1_000_000, 2, "topic"),
    penstock.Record(b"v", None, NO_HEADERS, 7, 1_000_000),
    JobStatus("completed", 2, "it is done", "", {"done": 3}),
    Retry(max_attempts=3),
    Stage(b"t" * 16, 1, 2, 3),
]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_survive_a_copy(value, copied):
    assert copied(value) == value


def test_records_of_a_log_survive_a_copy(tmp_path):
    with penstock.Log(tmp_path) as log:
        log.append([b"a", b"b"])
        log.append(b"c", key=b"k", headers={"h": b"1"})
        found = log.read(0)
    assert passed(found) == found
    assert passed(found)[0].headers is found[0].headers


def test_records_without_headers_cannot_be_given_some():
    for change in (
        lambda headers: headers.update(a=b"1"),
        lambda headers: headers.setdefault("a", b"1"),
        lambda headers: headers.__setitem__("a", b"1"),
        lambda headers: headers.__ior__({"a": b"1"}),
    ):
        with pytest.raises(TypeError, match="make a dict of them"):
            change(NO_HEADERS)
    assert NO_HEADERS == {}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors_survive_a_copy_with_all_they_say(kind, copied):
    takes = inspect.signature(kind.__init__).parameters.values()
    given = {one.name: f"some {one.name}" for one in takes if one.kind is one.KEYWORD_ONLY}
    error = kind("what is wrong", **given)
    error.offset = 17
    error.add_note("and a note")
    found = copied(error)
    assert type(found) is kind
    assert (str(found), found.message, found.offset) == ("what is wrong", "what is wrong", 17)
    assert {name: getattr(found, name) for name in given} == given
    assert found.__notes__ == ["and a note"]
    assert (found.code, found.retry) == (error.code, error.retry)


def test_errors_are_what_python_calls_them():
    """`except TimeoutError` and the like find them; what they are called tells which."""
    kinds = {TimeoutError: "TimedOut", ValueError: "Invalid", LookupError: "Unknown", ImportError: "Missing"}
    alone = {"MissingJava"}  # no module of Python
    alone |= {
        "UnknownEffect",
        "UnknownProducer",
        "UnknownQuery",
        "UnknownSession",
    }  # asked for by no name
    beside = {"BadChecksum", "BatchTooLarge", "OutOfBounds", "RecordTooLarge", "StillFull", "TaskForgotten"}
    for kind, begins in kinds.items():
        found = {error.__name__ for error in ERRORS if issubclass(error, kind)}
        named = {error.__name__ for error in ERRORS if error.__name__.startswith(begins)}
        assert found - beside == named - alone
    assert issubclass(penstock.errors.OutOfBounds, LookupError)


def test_what_is_open_says_in_a_word_what_it_is(tmp_path):
    with MemoryBroker() as broker, penstock.connect(broker.url) as client:
        client.create_topic("t")
        assert repr(client) == f"<Client of {broker.url}>"
        with client.consumer("t", group="g") as consumer, client.producer("t") as producer:
            assert (repr(consumer), repr(producer)) == ("<Consumer of topic t, group g>", "<Producer to topic t>")
        assert repr(consumer) == "<Consumer of topic t, group g, closed>"
        with client.worker("t", group="q", name="w") as worker:
            assert repr(worker) == "<Worker w of topic t, group q>"
    with penstock.Log(tmp_path) as log:
        assert repr(log) == f"<Log {tmp_path}>"
    assert repr(log) == f"<Log {tmp_path}, closed>"


def test_an_app_that_is_not_closed_is_closed_with_what_it_opened(tmp_path):
    app = penstock.Tasks(f"file://{tmp_path}/data")
    client = app.client()
    assert not client.closed
    del app
    gc.collect()
    assert client.closed
