"""Tasks that run in the calling thread: everything that is due by the broker's clock, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import penstock
import penstock.testing
import pytest
from penstock import Again, Reject, Retry, Tasks, current_task
from penstock.clients.tasks import inline
from penstock.errors import ClientError, InvalidArgument, TaskFailed
from penstock.testing import run_due


@pytest.fixture
def app(penstock_broker: Any) -> Any:
    with Tasks(penstock_broker.url) as made:
        yield made


def test_what_is_due_runs_and_what_it_sends_too(app: Tasks, penstock_broker: Any) -> None:
    @app.task(queue="mails")
    def mail(to: str) -> str:
        current_task().progress(0.5)
        return f"to {to}"

    @app.task(queue="flights")
    async def flight(number: int) -> int:
        mail.send(f"{number}")
        return number

    job, later = flight.send(7), mail.send_in(60, "late")
    assert run_due(app) == {"done": 2}
    assert (job.result(), mail.job("mails-0-1").result(), later.status().state) == (7, "to 7", "delayed")
    assert run_due(app) == {}
    penstock_broker.advance(61)
    assert run_due(app) == {"done": 1}
    assert later.result() == "to late"


def test_failures_are_retried_by_the_clock_of_the_broker(app: Tasks, penstock_broker: Any, caplog: Any) -> None:
    @app.task(queue="mails", name="mail", retry=Retry(2, backoff=10, jitter=0))
    def mail(to: str) -> None:
        raise OSError(to)

    job = mail.send("a")
    assert run_due(app) == {"failed": 1}
    assert (job.status().state, run_due(app)) == ("retrying", {})
    penstock_broker.advance(11)
    assert run_due(app) == {"failed": 1}
    with pytest.raises(TaskFailed, match="in attempt 2: OSError: a"):
        job.result()
    (last,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (last.name, "dead-lettered" in last.getMessage()) == ("penstock.tasks", True)


def test_a_function_may_reject_its_task_or_have_it_again(app: Tasks, penstock_broker: Any) -> None:
    seen: list[int] = []

    @app.task(queue="mails", retry=Retry(1))
    def mail(kind: str) -> int:
        seen.append(current_task().attempt)
        if kind == "no":
            raise Reject("no seat")
        if len(seen) < 4:
            raise Again(delay=600)
        return len(seen)

    refused, patient = mail.send("no"), mail.send("wait")
    assert run_due(app) == {"rejected": 1, "deferred": 1}
    with pytest.raises(TaskFailed, match="no seat"):
        refused.result()
    for _ in range(2):
        assert (patient.status().state, run_due(app)) == ("retrying", {})
        penstock_broker.advance(601)
        run_due(app)
    assert (patient.result(), seen) == (4, [1, 1, 1, 1])


def test_what_expired_is_dead_lettered(app: Tasks, penstock_broker: Any) -> None:
    @app.task(queue="mails")
    def mail(to: str) -> None: ...

    late, soon = mail.options(expires=5).send("a"), mail.options(expires="1h").send_many(["b"])
    penstock_broker.advance(6)
    assert run_due(app) == {"rejected": 1, "done": 1}
    assert ("it expired at" in late.status().reason, soon[0].status().state) == (True, "completed")


def test_a_function_with_a_process_of_its_own_runs_here_with_middleware(penstock_broker: Any) -> None:
    from support import task_functions

    app = Tasks(penstock_broker.url)
    app.task(queue="heavy", name="square", process=True)(task_functions.square.function)
    seen: list[str] = []

    @app.middleware
    def note(task: penstock.CurrentTask) -> Any:
        seen.append(task.name)
        yield

    job = app.functions["square"].send(3)
    assert (run_due(app), job.result()[0], seen) == ({"done": 1}, 9, ["square"])
    app.close()


def test_tasks_without_an_end_are_an_error(app: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "RUNS_MAX", 5)

    @app.task(queue="mails")
    def mail() -> None:
        mail.send()

    mail.send()
    with pytest.raises(ClientError, match="5 tasks ran, and more are due"):
        run_due(app)


def test_an_app_takes_its_address_late(monkeypatch: pytest.MonkeyPatch, penstock_broker: Any) -> None:
    app = Tasks()
    assert repr(app) == "<Tasks of the default broker: no functions>"
    monkeypatch.setenv("PENSTOCK_URL", "mem://late")
    assert app.url == "mem://late"
    app.url = penstock_broker.url
    assert app.url == penstock_broker.url
    with pytest.raises(penstock.errors.InvalidUrl):
        app.url = "nowhere"
    with pytest.raises(InvalidArgument, match=r"set app\.url"):
        _ = penstock.clients.tasks.Tasks(None).url  # pyright: ignore[reportAttributeAccessIssue]


def test_an_app_with_another_address_sends_there_whatever_it_was_connected_to() -> None:
    """A test that failed before it closed its app leaves the next one alone."""
    app = penstock.Tasks()

    @app.task(queue="notices")
    def notify(flight: str) -> str:
        return flight

    async def asend() -> None:
        await notify.aio.send("c")

    for name in ("first", "second"):
        with penstock.connect(f"mem://{name}-address") as client:
            app.url = f"mem://{name}-address"
            notify.send("a")
            app.url = f"mem://{name}-address"  # the same: nothing is closed
            notify.send("b")
            assert client.topic("notices").records == 2
    with asyncio.Runner() as runner:
        for name in ("first", "second"):
            with penstock.connect(f"mem://{name}-loop") as client:
                app.url = f"mem://{name}-loop"
                runner.run(asend())
                assert client.topic("notices").records == 1
        runner.run(app.aio.close())
    app.close()
