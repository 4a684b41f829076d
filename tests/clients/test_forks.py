"""A forked child and the clients of its parent: every verb says so at once, and nothing the child does reaches them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import penstock
from penstock.clients import connect
from penstock.clients.aio import client as aio
from penstock.storage import Log
from penstock.storage.batch import encode
from penstock.storage.errors import Error
from penstock.storage.files import Files
from penstock.storage.following import Follower

PATIENCE_S = 60.0
VERB_PATIENCE_S = 10.0
"""A verb in a child that has not ended by then hangs."""

QUIET = {"close", "done"}
"""They end in peace, and so does a `with` block."""

OURS = {"expect", "ignore", "raise_error", "refuse", "told"}
"""Verbs of futures and logs that are the library's own."""

TASK = "topic-0-0"
READY_BATCH = bytes(encode([b"v"], producer_id=1))
GIVEN: dict[str, Any] = {
    "at": "latest", "batch": READY_BATCH, "callback": print,
    "end": 1, "epoch": 1, "group": "g", "id": TASK, "ids": [TASK], "name": "n",
    "offset": 0, "on_done": print, "partition": 0, "piece_bytes": 4096, "places": [("0" * 32, 0, 0)],
    "before": 0, "positions": {0: 0}, "query": "select 1", "spans": [(0, 0, 1)], "spec": "@hourly",
    "stages": [], "start": 0, "to": "latest", "topics": ["t"], "value": b"v", "values": [b"v"], "verb": "ack",
    "where": "latest", "worker": "w",
    "members": [penstock.GroupTask("t", "g", b"v")], "then": penstock.Callback("t"),
}  # fmt: skip
"""What verbs are given, by the names of their arguments."""


def verbs_of(thing: Any, **given: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every public verb of an object with what it needs to be called with, and iteration."""
    given = GIVEN | given
    for name in dir(type(thing)):
        found = inspect.getattr_static(type(thing), name)
        hidden = name.startswith("_") and name not in ("__iter__", "__aiter__")
        if hidden or name in OURS or not inspect.isroutine(found):
            continue
        needed = [
            parameter
            for parameter in list(inspect.signature(found).parameters.values())[1:]
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        ]
        ordered = [given[p.name] for p in needed if p.kind is p.POSITIONAL_OR_KEYWORD]
        named = {p.name: given[p.name] for p in needed if p.kind is p.KEYWORD_ONLY}
        yield f"{type(thing).__name__}.{name}", lambda name=name, o=ordered, n=named: getattr(thing, name)(*o, **n)


def used(verb: Callable[[], Any]) -> None:
    """Call it; what comes of it is entered, and iterated."""
    found = verb()
    if inspect.isawaitable(found) or hasattr(found, "__anext__") or hasattr(found, "__aenter__"):
        asyncio.run(_awaited(found))
    elif hasattr(found, "__enter__"):
        found.__enter__()
    elif hasattr(found, "__next__"):
        next(found)


async def _awaited(found: Any) -> None:
    if inspect.isawaitable(found):
        await found
    elif hasattr(found, "__anext__"):
        await anext(found)
    else:
        await found.__aenter__()


def told(name: str, verb: Callable[[], Any]) -> str:
    """What is wrong with a verb in a child; nothing when it says that it is one."""
    signal.setitimer(signal.ITIMER_REAL, VERB_PATIENCE_S)
    try:
        used(verb)
    except Error as error:
        return "" if "in the child" in str(error) and name not in QUIET else f"{type(error).__name__}: {error}"
    except BaseException as error:
        return repr(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "" if name in QUIET else "no error"


def _too_long(*_: object) -> None:
    raise TimeoutError("hangs")


def in_child(run: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Run it in a forked child; what it says of each verb that is wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGALRM, _too_long)
            os.write(writing, json.dumps(run()).encode())
        except BaseException as error:
            os.write(writing, json.dumps({"child": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        found = json.loads(answer.read())
    os.waitpid(child, 0)
    return found


def complaints(things: list[Any], **given: Any) -> dict[str, str]:
    """Of every verb of all of them."""
    verbs = [found for thing in things for found in verbs_of(thing, **given)]
    verbs.sort(key=lambda found: found[0].endswith(".close"))
    assert len(verbs) > len(things)
    wrong = {name: told(name.rpartition(".")[2], verb) for name, verb in verbs}
    things.clear()
    verbs.clear()
    gc.collect()
    return {name: what for name, what in wrong.items() if what}


def test_every_verb_of_a_forked_child_is_refused_and_the_parent_goes_on(url, topic) -> None:
    with connect(url, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        client.set_queue(topic, "g")
        producer, worker = client.producer(topic), client.worker(topic, group="g")
        producer.send_many([b"0", b"1"])
        task, later = worker.fetch(2)
        consumer, reading = client.consumer(topic), client.consumer(topic)
        taken = iter(consumer)
        tasks = iter(client.worker(topic, group="h", lease_records=2))
        assert (next(taken).value, next(tasks).value) == (b"0", b"0")
        ranged = client.range(topic, 0, 0, 2)
        staging, transaction = client.staging(), client.transaction()
        waiting = [producer.send_nowait(b"%d" % number) for number in range(2, 100)]
        futures = [worker.ack_nowait(later), producer.send_nowait(b"100")]
        things = [client, producer, consumer, reading, worker, task, staging, transaction]
        held, end = threading.Event(), threading.Event()

        def hold() -> None:
            with client._driver.lock:
                held.set()
                end.wait(PATIENCE_S)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(PATIENCE_S)
        things += [future for future in futures if not future.done()]
        begun = {"range": ranged, "tasks": tasks, "batches": reading.batches()}
        wrong = in_child(
            lambda: (
                {name: what for name, one in begun.items() if (what := told(name, lambda one=one: one))}
                | complaints(things, task=task, tasks=[task], topic=topic)
            )
        )
        end.set()
        holder.join()
        assert wrong == {}
        assert [future.result() for future in waiting] == list(range(2, 100))
        assert producer.send(b"101") == 101
        assert next(taken).value == b"1"
        assert [record.offset for record in client.read(topic, 0, 0)] == list(range(102))
        task.ack()


def test_a_loops_verbs_are_refused_in_a_forked_child_as_well(url, topic) -> None:
    with asyncio.Runner() as runner:
        run = runner.run

        async def opened() -> list[Any]:
            client = await aio.connect(url, timeout=PATIENCE_S)
            await client.create_topic(topic)
            await client.set_queue(topic, "g")
            producer, worker = await client.producer(topic), await client.worker(topic, group="g")
            await producer.send_many([b"0", b"1"])
            task = (await worker.fetch(1))[0]
            consumer = await client.consumer(topic)
            return [client, producer, consumer, worker, task, client.staging(), client.transaction()]

        things = run(opened())
        client, producer, consumer, task = things[0], things[1], things[2], things[4]
        assert in_child(lambda: complaints(things, task=task, tasks=[task], topic=topic)) == {}
        assert run(producer.send(b"2")) == 2
        assert [record.value for record in run(consumer.fetch(3))] == [b"0", b"1", b"2"]
        run(task.ack())
        run(client.close())


def test_a_log_is_its_parents(tmp_path) -> None:
    with Log(tmp_path / "log", flush_seconds=60) as log, Log(tmp_path / "log", read_only=True) as reader:
        log.append(b"0")
        things: list[Any] = [log, reader]
        wrong = in_child(lambda: complaints(things))
        assert wrong == {}
        assert Follower(str(tmp_path / "log"), Files()).limit() is not None, "the child took the log's board away"
        log.append(b"1")
        assert [record.value for record in reader] == [b"0", b"1"]


def test_a_child_connects_by_itself(url, topic) -> None:
    """To a memory of its own, or to the broker; a directory belongs to its parent until that closes it."""
    with connect(url, timeout=PATIENCE_S) as client:
        client.create_topic(topic)

        def run() -> dict[str, str]:
            with penstock.connect(url, timeout=PATIENCE_S) as own:
                found = [topic.name for topic in own.topics()]
                return {} if (topic in found) != url.startswith("mem") else {"topics": repr(found)}

        assert in_child(run) == {}


ENDS = """
import os, sys
from penstock.clients import connect
client = connect(sys.argv[1])
client.create_topic(sys.argv[2])
with client.producer(sys.argv[2]) as producer, client.consumer(sys.argv[2], group='g') as consumer:
    with client.worker(sys.argv[2], group='w') as worker, client.staging() as staging:
        future = producer.send_nowait(b'0')
        child = os.fork()
        if not child:
            sys.exit(7)  # through every block, and the end of the interpreter
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert future.result() == 0 and producer.send(b'1') == 1
        assert consumer.fetch() and worker.fetch()
        print('fine')
"""


def test_a_child_that_ends_as_programs_do_leaves_its_parent_alone(url, topic) -> None:
    quiet = "-Wignore:This process:DeprecationWarning"  # from 3.12 on, Python warns of forks beside threads
    done = subprocess.run([sys.executable, quiet, "-c", ENDS, url, topic], timeout=PATIENCE_S, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"fine\n", b"")
