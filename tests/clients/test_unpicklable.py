"""What is bound to a connection says what to pass on instead; what is a name or an id survives the passage."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.errors import Unpicklable
from support import task_functions
from support.awaited import connect_awaited


@pytest.fixture(params=["sync", "async"])
def bound(request, penstock_broker) -> Iterator[dict[str, Any]]:
    """One of each that is bound to a connection, by name."""
    runner = None if request.param == "sync" else request.getfixturevalue("runner")
    client = connect(penstock_broker.url) if runner is None else connect_awaited(penstock_broker.url, runner)
    client.create_topic("t")
    producer = client.producer("t")
    producer.send(b"work")
    worker = client.worker("t", group="g")
    (task,) = worker.fetch(1)
    made = [
        client, producer, client.consumer("t"), worker, task, client.staging(), client.transaction(),
        producer.send_nowait(b"x"), worker.ack_nowait(task),
    ]  # fmt: skip
    made = [getattr(each, "_inner", each) for each in made]
    yield {type(each).__name__.removeprefix("Async"): each for each in made}
    client.close()


@pytest.fixture
def runner():
    import asyncio

    with asyncio.Runner() as made:
        yield made


INSTEAD = {
    "Client": "its `url`",
    "Producer": "the URL and the topic",
    "Consumer": "the URL, the topic and the group",
    "Worker": "the URL, the topic and the group",
    "Task": "its `id` or its `value`",
    "Staging": "its `stages()`",
    "Transaction": "its `stages()`",
    "Future": "its `result()`",
    "SettleFuture": "what `exception()` says",
}


@pytest.mark.parametrize("passed", [ForkingPickler.dumps, copy.deepcopy], ids=["pickled", "copied"])
def test_what_is_bound_says_what_to_pass_on(bound: dict[str, Any], passed: Callable[..., object]) -> None:
    assert bound.keys() == INSTEAD.keys()
    for name, thing in bound.items():
        with pytest.raises(Unpicklable) as caught:
            passed(thing)
        assert isinstance(caught.value, TypeError)
        assert f"{type(thing).__name__} is bound to a connection" in caught.value.message
        assert f"pass on {INSTEAD[name]}" in caught.value.message


def test_an_app_says_so_too() -> None:
    with pytest.raises(Unpicklable, match=r"a Tasks is bound .* pass on the name of its module"):
        ForkingPickler.dumps(task_functions.app)


@pytest.mark.parametrize(
    "passed", [lambda it: ForkingPickler.loads(ForkingPickler.dumps(it)), copy.copy, copy.deepcopy]
)
def test_task_functions_are_passed_on_by_name_and_jobs_by_id(passed: Callable[[Any], Any]) -> None:
    for function in (task_functions.add, task_functions.add_async):
        assert passed(function) is function
        for job in (function.job("math-0-7"), function.aio.job("math-0-7")):
            found = passed(job)
            assert (type(found), found.id, repr(found)) == (type(job), "math-0-7", repr(job))
