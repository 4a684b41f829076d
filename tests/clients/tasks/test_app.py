"""What a decorated function is, and what it says where it cannot be a task."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime

import penstock
import pytest
from penstock import Retry, Tasks
from penstock.clients.tasks.message import ENCODING_HEADER, NAME_HEADER
from penstock.clients.tasks.sends import CallOptions
from penstock.errors import InvalidArgument, InvalidUrl
from support import task_functions


def make(**options):
    app = Tasks("mem://nowhere")

    @app.task(**options)
    def mail(to: str, copies: int = 1) -> str:
        """Send it."""
        return to * copies

    return app, mail


def test_a_task_function_is_called_as_it_was_before():
    _, mail = make()
    assert mail("a", copies=2) == "aa"
    assert mail.__doc__ == "Send it."
    assert str(inspect.signature(mail)) == "(to: 'str', copies: 'int' = 1) -> 'str'"
    assert asyncio.run(task_functions.add_async(1, 2)) == 3


def test_bare_and_called_decorators_are_the_same():
    app = Tasks("mem://nowhere")

    @app.task
    def one() -> None: ...

    @app.task()
    def two() -> None: ...

    assert [function.queue for function in app.functions.values()] == ["tasks", "tasks"]
    assert one.name == f"{__name__}.test_bare_and_called_decorators_are_the_same.<locals>.one"


def test_a_call_becomes_a_record():
    _, mail = make(queue="mails", key=lambda to, copies=1: to, priority=7, name="mail")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    message = mail.message(("a",), {"copies": 2}, CallOptions(at=at))
    assert (message.queue, message.value, message.key) == ("mails", b'[["a"],{"copies":2}]', b"a")
    assert message.headers == {NAME_HEADER: b"mail", ENCODING_HEADER: b"json"}
    assert (message.priority, message.delay_s, message.at) == (7, None, at)


def test_a_key_is_text_or_bytes():
    _, mail = make(key=lambda to, copies=1: 5, name="mail")
    with pytest.raises(InvalidArgument, match="the key of mail is 5"):
        mail.message(("a",), {})


def test_functions_with_a_key_have_their_queue_keep_the_order_of_keys():
    app, _ = make(key=lambda to, copies=1: to)
    assert app.queues["tasks"].settings == {"order": "key"}


def test_one_attempt_for_a_queue_with_functions_that_say_nothing_is_warned_of(caplog):
    once, twice = Retry(max_attempts=1), Retry(max_attempts=2)
    for retries, queues, warned in [
        ((once, None), "aa", True), ((None, once), "aa", True), ((None, once), "ab", False),
        ((once, None), "ab", False), ((once, once), "aa", False), ((twice, None), "aa", False),
        ((once, twice, None), "aaa", False),
    ]:  # fmt: skip
        caplog.clear()
        app = Tasks("mem://warned")
        for number, (retry, queue) in enumerate(zip(retries, queues, strict=True)):
            app.task(queue=queue, retry=retry, name=f"f{number}")(lambda: None)
        silent = f"f{retries.index(None)}" if warned else ""
        said = [record.getMessage() for record in caplog.records]
        assert [text.split(" will")[0] for text in said] == ([f"{silent} of queue a"] if warned else []), retries


def test_a_queue_has_the_retry_of_its_functions_and_of_several_the_loosest_number_of_attempts():
    app, _ = make(retry=Retry(max_attempts=3))

    @app.task()
    def other() -> None: ...

    @app.task(retry=Retry(max_attempts=3), key=lambda: "k")
    def third() -> None: ...

    assert app.queues["tasks"].wanted == {**Retry(max_attempts=3).settings(), "order": "key"}
    app.task(retry=Retry(max_attempts=4), name="fourth")(lambda: None)
    app.task(retry=Retry(max_attempts=2), name="fifth")(lambda: None)
    assert app.queues["tasks"].wanted == {"max_attempts": 4, "order": "key"}
    app.task(retry=Retry(max_attempts=None), name="sixth")(lambda: None)
    assert app.queues["tasks"].wanted == {"max_attempts": None, "order": "key"}


def test_a_lease_of_the_app_is_that_of_its_queues():
    app = Tasks("mem://nowhere", lease="2s")
    app.task(name="x")(lambda: None)
    assert app.queues["tasks"].wanted == {"lease_s": 2.0}


def test_what_is_finished_is_kept_for_a_day_in_queues_that_the_app_creates():
    with Tasks("mem://keeping") as app, penstock.connect("mem://keeping") as client:
        app.task(queue="new", name="new")(lambda: None).send()
        assert client.queue("new", "tasks").settings["keep_finished_s"] == 86400
        client.create_topic("stream")
        app.task(queue="stream", name="old")(lambda: None).send()
        assert client.queue("stream", "tasks").settings["keep_finished_s"] is None, "others may read it"


def test_how_long_what_is_finished_is_kept_is_said_by_app_and_queue():
    with Tasks("mem://kept", keep="2h") as app, penstock.connect("mem://kept") as client:
        client.create_topic("stream")
        for queue, keep, kept_s in (("stream", None, 7200), ("short", "1m", 60), ("long", "forever", None)):
            app.task(queue=queue, name=queue, keep=keep)(lambda: None).send()
            assert client.queue(queue, "tasks").settings["keep_finished_s"] == kept_s
        app.task(queue="short", name="another")(lambda: None)
        with pytest.raises(InvalidArgument, match=r"wants keep_finished_s=120.0 of queue short, where an earlier"):
            app.task(queue="short", name="third", keep="2m")(lambda: None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"priority": 256}, "priority=256"),
        ({"priority": -1}, "priority=-1"),
        ({"timeout": 0}, "leaves a task no time"),
        ({"timeout": "soon"}, "timeout"),
        ({"process": True}, "cannot be found by a process"),
        ({"queue": "a b"}, "queue='a b' is not allowed as a name"),
        ({"keep": 0}, "keep=0"),
        ({"name": "taken"}, "there is a task function 'taken' already"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(options, says):
    app = Tasks("mem://nowhere")
    app.task(name="taken")(lambda: None)
    with pytest.raises(InvalidArgument, match=says):
        app.task(**options)(lambda: None)


def test_a_process_has_no_loop():
    async def far() -> None: ...

    with pytest.raises(InvalidArgument, match="is an async def"):
        Tasks("mem://nowhere").task(process=True)(far)


def test_a_generator_is_no_task():
    app = Tasks("mem://nowhere")

    def some():
        yield 1

    async def later():
        yield 1

    for function in (some, later):
        with pytest.raises(InvalidArgument, match=f"{function.__name__} is a generator.*: return a list"):
            app.task(function)
    assert not app.functions


@pytest.mark.parametrize("url", ["shop", "redis://localhost"])
def test_an_address_that_cannot_be_is_refused_when_the_app_is_made(url: str):
    with pytest.raises(InvalidUrl, match=url):
        Tasks(url)


@pytest.mark.parametrize("given", [{"partitions": 0}, {"lease": 0}, {"keep": 0}, {"group": ""}, {"zone": "Mars/X"}])
def test_what_no_queue_can_be_is_refused_when_the_app_is_made(given):
    with pytest.raises(InvalidArgument, match=next(iter(given))):
        Tasks("mem://nowhere", **given)


def test_an_unknown_encoding_is_refused():
    with pytest.raises(InvalidArgument, match="encoding='pickle' is none of 'json', 'msgpack'"):
        Tasks("mem://nowhere", encoding="pickle")  # pyright: ignore[reportArgumentType]


class Job:
    """What is made of a class is no result that can be sent."""


@pytest.mark.parametrize(
    ("what", "says"),
    [(Job, "Job is a class: make a task of a function"), (5, "5 is not a function"), ("f", "'f' is not a function")],
)
def test_only_a_function_becomes_a_task(what: object, says: str) -> None:
    for decorate in (Tasks("mem://none").task, Tasks("mem://none").task()):
        with pytest.raises(InvalidArgument, match=says):
            decorate(what)


def test_verbs_of_other_task_queues_name_ours() -> None:
    function = Tasks("mem://none").task(name="f")(lambda: None)
    with pytest.raises(AttributeError, match=r"a TaskFunction has no 'delay': .* use \.send\(\.\.\.\)$"):
        function.delay(1)
    with pytest.raises(AttributeError, match=r"has no 'apply_async': .* \.send_in\(\.\.\.\)"):
        function.apply_async()
    with pytest.raises(AttributeError, match=r"a TaskFunction has no 'dealy'$"):
        function.dealy()
