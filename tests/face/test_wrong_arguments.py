"""Every parameter of every public verb refuses what it cannot be, where it is given, with an error of penstock's.

The cases come from the signatures, so that a new verb or parameter is held to it as well.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import penstock
import penstock.aio
import pytest
from penstock.clients import Stage
from penstock.clients.memory_broker import MemoryBroker
from penstock.storage.batch import encode
from support.awaited import connect_awaited

NAIVE = datetime(2026, 1, 1)
THING = object()
NO_TEXT = [5, b"x", ["x"], THING, "\ud800"]
NO_COUNT = ["1", 1.0, -1, True, 1 << 64, math.nan]
NO_TIME = ["5", "soon", -1, 10**400, math.nan, math.inf, [1], THING, True]
NO_MOMENT = [NAIVE, "now", THING, []]
NO_MAP = [5, "x", [1], {5: THING}, THING]

WRONG = {
    "str": NO_TEXT,
    "int": NO_COUNT,
    "bool": [1, "yes", THING],
    "float": ["1", -1, 10**400, math.nan, math.inf, THING, True],
    "bytes": ["text", 5, [1], THING],
    "Sent": ["text", 5, [1], THING],
    "datetime": [*NO_MOMENT, 5],
    "datetime | Duration": [NAIVE, *NO_TIME],
    "Duration": NO_TIME,
    "Keep": NO_TIME,
    "Size": [-1, "5 XB", 1.5, [1], THING, True, 10**30],
    "Start": [*NO_MOMENT, 5, "earlist"],
    "Start | Mapping[int, int]": [*NO_MOMENT, 5, "earlist", {0: "x"}, {0: -1}, {"0": 1}],
    "int | datetime | Literal['earliest', 'latest']": [*NO_MOMENT, -1, True, 1 << 64, "earlist"],
    "int | datetime": [*NO_MOMENT, 0, 1_600_000_000, 1_600_000_000_000, True],
    "Mapping[int, int]": [*NO_MAP, {0: -1}, {"0": 1}],
    "GivenHeaders": ["x", 5, {5: 1}, [5], [("a", "text")], {"a": "text"}, {"\ud800": b""}],
    "str | Names": [5, b"t", ["\ud800"], [5], THING, ("x", 5), "x*"],
    "Mapping[str, Mapping[int, int]]": [*NO_MAP, {"t": 5}, {"t": {0: -1}}, {5: {0: 1}}],
    "Mapping[str, bytes]": [*NO_MAP, {"a": "text"}, {"\ud800": b""}],
    "Mapping[str, TopicEnds]": [*NO_MAP, {"t": 5}],
    "Iterable[str]": ["x", 5, [5], ["\ud800"], [["x"]]],
    "Sequence[str]": ["x", 5, [5], ["nonsense"]],
    "Iterable[Stage]": ["x", 5, [5]],
    "Sequence[GroupTask]": ["x", 5, [5], [None], []],
    "Sequence[Message]": ["x", 5, [5], [None]],
    "Callback": ["x", 5],
    "Then": ["x", 5],
    "Iterable[tuple[int, int, int]]": ["x", 5, [5], [(1, 2)], [(1, 2, -3)], {0.5: 1}, {(1, 2): 3}],
    "Iterable[tuple[str, int, int]]": ["x", 5, [5], [("a", 2)], [(b"a", 0, 0)], [("0" * 32, 0, -1)], {"abc": 1}],
    "Sequence[Task[Any]]": ["x", 5, [5], [None]],
    "Sequence[AsyncTask[Any]]": ["x", 5, [5], [None]],
    "Task[Any]": ["x", 5],
    "AsyncTask[Any]": ["x", 5],
    "Message": ["x", 5],
    "Retry": ["x", 5],
    "KeyLike": [5, []],
    "Delivery": ["fast", 5, ["push"]],
    "Format": ["avro", 5],
    "Encoding": ["yaml", 5],
    "Serializer": ["yaml", 5, (1, 2), [print], (print, print, print), THING],
    "Outcome": ["done", 5],
    "Iterable[Sent | ArrowData | None] | ArrowData": [b"one", "text", 5, [5], ["text"], THING],
    "Iterable[bytes | None] | ArrowData": ["text", 5, [5], ["text"], THING],
    "Iterable[Sent | None]": ["text", 5, [5], ["text"], THING],
    "H": ["x", 5, None],
    "Messages": ["x", 5, [5], ["x"], THING],
    "Exceptions": ["x", 5, ValueError, [ValueError], ("ValueError",), (5,)],
    "Callable[..., str | bytes]": ["x", 5],
    "Callable[[Posted | Error], object]": ["x", 5],
    "Callable[[AssignmentChange], object]": ["x", 5],
}
"""By annotation without None."""

UNSAID = {"Any", "P.args", "P.kwargs"}
SETTINGS = [THING, [1], {"a": 1}, 1 << 70, "\ud800"]

GOOD: dict[str, Any] = {
    "topic": "t", "name": "n", "group": "g", "id": "t-0-0", "positions": {0: 0}, "epoch": 1,
    "stages": [Stage(bytes(16), 0, 1, 1)], "topics": ["t"], "spans": [(0, 0, 1)], "piece_bytes": 100, "at": "latest",
    "partition": 0, "start": 0, "end": 1, "offset": 0, "to": "latest", "spec": "@daily", "value": b"v",
    "batch": bytes(encode([b"v"], producer_id=1)), "values": [b"v"],
    "places": [("0" * 32, 0, 0)], "delay": 1, "ids": ["t-0-0"], "verb": "ack", "on_done": print, "worker": "w",
    "members": [penstock.GroupTask("t", "g", b"v")], "then": penstock.Callback("t"),
}  # fmt: skip
"""Of parameters that have no default."""

NEEDED: dict[str, dict[str, Any]] = {"claim": {"holder": "w"}}
"""Of verbs that need one of several parameters."""


class Bench:
    """One object of each public class, opened on a broker in memory."""

    def __init__(self, url: str, runner: asyncio.Runner | None) -> None:
        self.runner = runner
        kinds = penstock if runner is None else penstock.aio
        self.module = kinds
        self.client: Any = penstock.connect(url) if runner is None else connect_awaited(url, runner)
        client = self.client
        producer = client.producer("t")
        producer.send(b"work")
        worker = client.worker("t", group="g", prefetch=0)
        (self.task,) = worker.fetch(1, 5.0)
        self.app = penstock.Tasks(url)

        @self.app.task
        def function() -> None: ...

        prefix = "" if runner is None else "Async"
        self.objects = {
            "Client": client, "Producer": producer, "Consumer": client.consumer("t", group="c"),
            "TopicsConsumer": client.consumer(["t"], group="d"), "Worker": worker,
            "Task": self.task, "Staging": client.staging(), "Transaction": client.transaction(),
        }  # fmt: skip
        self.objects = {prefix + name: _bare(each) for name, each in self.objects.items()}
        self.objects[prefix + "Job"] = (function if runner is None else function.aio).job("t-0-0")
        if runner is None:
            self.objects["Tasks"] = self.app
        self.message = function.message((), {})

    def close(self) -> None:
        self.app.close()
        self.client.close()

    def verbs(self) -> Iterator[tuple[str, Any]]:
        """Name and bound function of every public verb."""
        yield f"{self.module.__name__}.connect", self.module.connect
        if self.runner is None:
            yield "penstock.Tasks", penstock.Tasks
            yield "penstock.Retry", penstock.Retry
        for kind, thing in self.objects.items():
            assert type(thing) is getattr(self.module, kind)
            for name in dir(type(thing)):
                found = inspect.getattr_static(type(thing), name)
                if inspect.isfunction(found) and not name.startswith("_"):
                    yield f"{kind}.{name}", getattr(thing, name)

    def call(self, verb: Any, /, **arguments: Any) -> Any:
        """Call it, and wait where that is awaited."""
        positional = [
            arguments.pop(parameter.name)
            for parameter in inspect.signature(verb).parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in arguments
        ]
        found = verb(*positional, **arguments)
        if self.runner is not None and inspect.iscoroutine(found):
            return self.runner.run(found)
        if self.runner is not None and inspect.isawaitable(found):
            return self.runner.run(_awaited(found))
        return found


async def _awaited(found: Any) -> Any:
    return await found


def _bare(thing: Any) -> Any:
    return getattr(thing, "_inner", thing)


@pytest.fixture(scope="module", params=["sync", "async"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    importlib.import_module("penstock.clients.tasks.aio")
    with ExitStack() as stack:
        broker = stack.enter_context(MemoryBroker())
        with broker.connect() as client:
            client.create_topic("t")
            client.set_queue("t", "g", start="earliest")
        runner = None if request.param == "sync" else stack.enter_context(asyncio.Runner())
        made = Bench(broker.url, runner)
        yield made
        made.close()


def written(verb: Any, name: str) -> str:
    """A parameter's annotation as its module writes it, without None."""
    target = verb.__init__ if inspect.isclass(verb) and "__init__" in vars(verb) else verb
    said = target.__annotations__[name]
    return said.removesuffix(" | None").removeprefix("None | ")


def wrong_values(verb: Any, parameter: inspect.Parameter) -> list[Any]:
    said = written(verb, parameter.name)
    if parameter.kind is parameter.VAR_KEYWORD and said.startswith("Unpack["):
        return SETTINGS
    if said in UNSAID:
        return []
    wrong = [*WRONG[said]]
    if parameter.name == "reason":  # of an exception, say: what has no UTF-8 in it is replaced
        wrong = [value for value in wrong if value != "\ud800"]
    if parameter.name in ("group", "member"):
        wrong += ["\0", ".x", "x" * 201]
    if parameter.name == "max_processing":
        wrong.append(0)
    if parameter.default is not None and "None" not in str(parameter.annotation):
        wrong.append(None)
    return wrong


def calls(bench: Bench) -> Iterator[tuple[str, Any, dict[str, Any], str]]:
    """Each verb with one argument wrong, and the others right; which one."""
    good = {**GOOD, "tasks": [bench.task._inner if bench.runner else bench.task], "message": bench.message}
    good["messages"] = [bench.message]
    good["task"] = good["tasks"][0]
    for name, verb in bench.verbs():
        parameters = inspect.signature(verb).parameters
        needed = {each.name: good.get(each.name) for each in parameters.values() if each.default is each.empty}
        needed = {key: value for key, value in needed.items() if value is not None}
        needed |= NEEDED.get(name.rpartition(".")[2], {})
        for parameter in parameters.values():
            for value in wrong_values(verb, parameter):
                key = "some_setting" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
                yield name, verb, {**needed, key: value}, key


def is_named(argument: str, message: str) -> bool:
    """Whether a message says which argument it is about."""
    return re.search(rf"\b{argument.removesuffix('s')}s?\b", message) is not None


def test_every_wrong_argument_is_refused_with_an_error_of_ours_that_names_it(bench: Bench) -> None:
    seen, broken = 0, []
    for name, verb, arguments, wrong in calls(bench):
        seen += 1
        try:
            found = bench.call(verb, **arguments)
        except penstock.Error as error:
            if isinstance(error, TimeoutError) or not is_named(wrong, error.message) or "Expected" in error.message:
                broken.append(f"{name}({arguments}): {wrong}: {error!r}")
        except Exception as error:
            broken.append(f"{name}({arguments}): {error!r}")
        else:
            broken.append(f"{name}({arguments}) took it, and gave {found!r}")
    assert not broken, "\n".join(broken)
    assert seen > 500


def test_more_than_one_request_takes_is_refused_with_the_limit(bench: Bench) -> None:
    with pytest.raises(penstock.errors.InvalidArgument, match="positions: over 16384 entries"):
        bench.call(bench.client.reset_group, topic="t", name="n", to=dict.fromkeys(range(20_000), 0))
