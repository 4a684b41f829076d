"""Many calls of a function sent at once: the same bytes as one by one, and a job for each in order."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import penstock
import pytest
from penstock import Retry, Tasks
from penstock.clients.tasks import bulk_arguments
from penstock.clients.tasks.arguments import Arguments
from penstock.clients.tasks.job_lists import JobList
from penstock.errors import InvalidArgument


@dataclass
class Seat:
    row: int


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    pass


def untyped(value, other=None): ...
def typed(value: float, other: str = "") -> None: ...
def flag(value: int) -> None: ...
def date(value: datetime) -> None: ...
def seat(value: Seat) -> None: ...
def rest(*values: int) -> None: ...


ALIKE = [
    (untyped, [("a\nb", 1), ("é", True)]),
    (untyped, [(1.5, None), ([1, {"a": [2]}], False)]),
    (untyped, [("a",), ("b", 2)]),
    (untyped, [(2**70,), (1,)]),
    (typed, [(1.5, "x"), (-0.0, "y")]),
    (typed, [(1, "x"), (2.5, "y")]),
    (date, [(datetime(2026, 1, 1, tzinfo=UTC),)]),
    (seat, [(Seat(3),)]),
    (rest, [(1, 2, 3), (4, 5, 6)]),
    (rest, [(), ()]),
    (untyped, [(f"{number}",) for number in range(4321)]),
]


def packed(arguments: Arguments, encoding: Any, calls: list[Any]) -> list[bytes]:
    return [value for run in bulk_arguments.pack_many(arguments, encoding, calls) for value in run]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(("function", "calls"), ALIKE)
def test_many_calls_become_the_bytes_of_each(function: Any, calls: list[Any], encoding: Any) -> None:
    if encoding == "msgpack" and calls[0] == (2**70,):
        calls = [(2**63,), (1,)]
    arguments = Arguments(function, "it")
    alone = [arguments.pack(encoding, call, {}) for call in calls]
    assert packed(arguments, encoding, calls) == alone


@pytest.mark.parametrize(
    ("function", "calls", "says"),
    [
        (untyped, [("a",), (("b", 2),)], "'value' of it would arrive as"),
        (untyped, [(Level.LOW,)], "'value' of it would arrive as 1"),
        (untyped, [(Text("x"),)], "argument 'value' of it cannot be sent"),
        (untyped, [(float("nan"),)], "argument 'value' of it cannot be sent"),
        (untyped, [(b"x",)], "argument 'value' of it cannot be sent"),
        (untyped, [({1: 2},)], "'value' of it would arrive as"),
        (flag, [(1,), (True,)], "argument 'value' does not fit"),
        (flag, [("x",)], "argument 'value' does not fit"),
        (flag, [(1, 2)], "cannot be called with these arguments"),
        (flag, [()], "cannot be called with these arguments"),
    ],
)
def test_what_cannot_be_sent_alone_cannot_be_sent_with_others(function: Any, calls: list[Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        packed(Arguments(function, "it"), "json", calls)


def test_plain_calls_are_not_packed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Arguments, "pack")
    arguments = Arguments(typed, "it")
    for encoding in ("json", "msgpack"):
        assert len(packed(arguments, encoding, [(1.5, "x")] * 2001)) == 2001
        assert len(packed(Arguments(flag, "it"), encoding, [(1,)] * 501)) == 501


@pytest.fixture
def app(penstock_broker: Any) -> Any:
    with Tasks(penstock_broker.url, partitions=3) as made:
        yield made


def values(app: Tasks, queue: str) -> dict[str, tuple[bytes, int, dict[str, bytes]]]:
    """What a worker gets, by id, in its order."""
    with app.client().worker(queue, group="tasks") as worker:
        tasks = worker.fetch(max_records=10_000)
        found = {task.id: (task.value, task.offset, dict(task.headers)) for task in tasks}
        while more := worker.ack_and_fetch(tasks, max_records=10_000):
            found |= {task.id: (task.value, task.offset, dict(task.headers)) for task in more}
            tasks = more
    return found


@pytest.mark.parametrize("options", [{}, {"key": lambda to: to[-1]}, {"dedup": lambda to: to}])
def test_each_job_is_that_of_its_call(app: Tasks, options: dict[str, Any]) -> None:
    @app.task(queue="mails", name="mail", **options)
    def mail(to: str) -> None: ...

    jobs = mail.send_many([f"to {number}" for number in range(1000)])
    assert (len(jobs), len(jobs[:10])) == (1000, 10)
    found = values(app, "mails")
    assert [found[job.id][0] for job in jobs] == [b'[["to %d"],{}]' % number for number in range(1000)]
    assert found[jobs[0].id][2] == {"penstock-task": b"mail", "penstock-encoding": b"json"}
    assert jobs[-1].status().state == "completed"


def test_a_call_that_was_sent_before_has_the_job_of_then(app: Tasks) -> None:
    @app.task(queue="mails", dedup=lambda to: to)
    def mail(to: str) -> None: ...

    jobs = mail.send_many(["a", "b", "a"])
    assert (jobs[0].id == jobs[2].id, jobs[0].id == jobs[1].id) == (True, False)


def test_tuples_are_arguments_and_everything_else_is_one(app: Tasks) -> None:
    @app.task(queue="mails", name="mail")
    def mail(to: Any, copies: int = 1) -> None: ...

    jobs = mail.send_many([("a", 2), {"b": 1}, ["c"]])
    found = values(app, "mails")
    assert [found[job.id][0] for job in jobs] == [b'[["a",2],{}]', b'[[{"b":1}],{}]', b'[[["c"]],{}]']
    assert len(mail.send_many([])) == 0
    with pytest.raises(InvalidArgument, match="is not a list"):
        mail.send_many("abc")


def test_many_are_sent_from_a_loop(app: Tasks) -> None:
    @app.task(queue="mails")
    def mail(to: str) -> None: ...

    async def send() -> list[str]:
        jobs = await mail.aio.options(delay=60).send_many(["a", "b"])
        states = [(await job.status()).state for job in jobs]
        await app.aio.close()
        return states

    assert asyncio.run(send()) == ["delayed", "delayed"]


def test_calls_may_have_options_of_their_own(app: Tasks, penstock_broker: Any) -> None:
    @app.task(queue="mails", priority=3)
    def mail(to: str) -> None: ...

    mail.send("last")
    urgent = mail.options(priority=9, retry=Retry(2, only=(OSError,)), expires="1h")
    jobs = [urgent.send("first"), *urgent.send_many(["second"]), urgent.send_in(1, "later")]
    penstock_broker.advance(2)
    found = values(app, "mails")
    assert [value[0] for value in found.values()][:3] != [b'[["last"],{}]']
    headers = found[jobs[1].id][2]
    expires = int(headers["penstock-expires"])
    assert expires == app.client().now_us - 2_000_000 + 3_600_000_000
    assert b'"only":["builtins.OSError"]' in headers["penstock-retry"]
    with pytest.raises(InvalidArgument, match="wants 50 attempts, and queue mails gives 20 at most"):
        mail.options(retry=Retry(50)).send("x")
    with pytest.raises(InvalidArgument, match="wants any number of attempts"):
        mail.options(retry=Retry(None)).send_many(["x"])
    with pytest.raises(InvalidArgument, match="is of one call"):
        urgent.schedule("daily", "every 30s", "x")


@pytest.mark.parametrize("given", [{"priority": 256}, {"retry": 3}, {"expires": "soon"}, {"delay": -1}])
def test_options_that_cannot_be_are_refused(app: Tasks, given: dict[str, Any]) -> None:
    @app.task(queue="mails")
    def mail(to: str) -> None: ...

    with pytest.raises(InvalidArgument, match=next(iter(given))):
        mail.options(**given)


def test_jobs_are_a_sequence_over_runs() -> None:
    jobs = JobList("mails", [(1, 10, 2), (0, 5, 1)], str)
    assert list(jobs) == ["mails-1-10", "mails-1-11", "mails-0-5"]
    assert (jobs[-1], jobs[1:]) == ("mails-0-5", ["mails-1-11", "mails-0-5"])
    with pytest.raises(IndexError):
        jobs[3]
    with pytest.raises(IndexError):
        jobs[-4]
    assert list(JobList("mails", [], str)) == []
    assert jobs + jobs[:1] == [*jobs, "mails-1-10"]
    more = ["mails-2-0"]
    assert more + jobs == ["mails-2-0", *jobs]
    assert jobs + jobs == 2 * [*jobs]
    with pytest.raises(TypeError, match="JobList"):
        jobs + 1  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(TypeError, match="JobList"):
        1 + jobs  # pyright: ignore[reportOperatorIssue]


def test_records_with_one_headers_of_all_are_placed_in_order(penstock_client: Any) -> None:
    penstock_client.create_topic("plain", partitions=2)
    with penstock_client.producer("plain") as producer:
        runs = producer.place_many([b"%d" % number for number in range(600)], headers={"kind": b"x"}, priority=2)
    read = []
    for partition, first, count in runs:
        records = penstock_client.read("plain", partition, first, max_records=count)[:count]
        assert all(record.headers == {"kind": b"x"} for record in records)
        read += [record.value for record in records]
    assert read == [b"%d" % number for number in range(600)]
    assert penstock.Retry(2) == Retry(max_attempts=2)
