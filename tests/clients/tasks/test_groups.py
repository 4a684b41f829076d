"""`then=` and groups: one function that is called once tasks have ended, with what became of them."""

from __future__ import annotations

import asyncio
import functools
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import penstock
import pytest
from penstock import Call, Ended, Retry, Tasks, current_task
from penstock.clients.barriers.descriptions import BARRIER_HEADER
from penstock.clients.tasks.calls import Calls
from penstock.clients.tasks.child import TaskChild
from penstock.clients.tasks.outcome import Returned
from penstock.clients.tasks.wire import Order
from penstock.errors import InvalidArgument, TaskFailed
from penstock.testing import run_due
from support import task_functions


@pytest.fixture
def app(penstock_broker: Any) -> Any:
    with Tasks(penstock_broker.url) as made:
        yield made


class Shop:
    """An app with functions, and what its callbacks were called with."""

    def __init__(self, app: Tasks, **how: Any) -> None:
        self.app = app
        self.got: list[Any] = []

        @app.task(queue="prices", name="price", retry=Retry(1), **how)
        def price(shop: str) -> int:
            if shop == "closed":
                raise OSError("closed")
            return len(shop)

        @app.task(queue="offers", name="offer", priority=3)
        def offer(price: int | None) -> str:
            self.got.append(price)
            return f"{price} euros"

        @app.task(queue="offers", name="all")
        def everything(prices: list[int]) -> int:
            self.got.append(prices)
            return min(prices)

        @app.task(queue="offers", name="ends")
        async def ends(found: list[Ended[int]]) -> None:
            self.got.append(found)

        self.price, self.offer, self.all, self.ends = price, offer, everything, ends


@pytest.fixture
def shop(app: Tasks) -> Shop:
    return Shop(app)


def test_a_callback_gets_the_result_once(shop: Shop) -> None:
    job = shop.price.options(then=shop.offer).send("north")
    assert job.status().why.startswith("no worker asks")
    assert "barrier" in job.status().why
    assert run_due(shop.app) == {"done": 2}
    assert (job.result(), shop.got, run_due(shop.app)) == (5, [5], {})
    assert shop.offer.job("offers-0-0").result() == "5 euros"


def test_then_may_stand_among_the_arguments_unless_the_function_has_one(shop: Shop) -> None:
    send: Any = shop.price.send
    send("north", then=shop.offer)
    shop.price.send_in(60, "west", then=shop.offer)  # pyright: ignore[reportCallIssue]
    asyncio.run(_close_after(shop.app, shop.price.aio.send("east", then=shop.offer)))  # pyright: ignore

    @shop.app.task(queue="prices")
    def mine(then: str) -> str:
        return then

    assert run_due(shop.app) == {"done": 4}
    assert shop.got == [5, 4]
    job = mine.send(then="mine")
    assert run_due(shop.app) == {"done": 1}
    assert job.result() == "mine"


async def _close_after(app: Tasks, coroutine: Any) -> Any:
    try:
        return await coroutine
    finally:
        await app.aio.close()


def test_a_group_has_one_callback_with_all_results_in_order(shop: Shop) -> None:
    calls = [shop.price.call(name) for name in ("north", "by the sea", "x")]
    jobs = penstock.group(calls, then=shop.all)
    assert [job.id for job in jobs] == ["prices-0-0", "prices-0-1", "prices-0-2"]
    assert run_due(shop.app) == {"done": 4}
    assert (shop.got, [job.result() for job in jobs]) == ([[5, 10, 1]], [5, 10, 1])


def test_a_dead_letter_holds_a_callback_up_until_it_is_redriven(shop: Shop) -> None:
    penstock.group([shop.price.call("north"), shop.price.call("closed")], then=shop.all)
    assert run_due(shop.app) == {"done": 1, "failed": 1}
    client = shop.app.client()
    (stands,) = client.barriers()
    held = [(1, "dead-lettered", "OSError: closed", "prices-0-1")]
    assert (stands.members, stands.waiting, stands.holding) == (2, 0, held)
    assert stands.why == "task prices-0-1 is dead-lettered (OSError: closed): redrive it"
    assert stands.headers[BARRIER_HEADER] == b"all"

    @functools.wraps(shop.price.function)
    def open_again(shop: str) -> int:
        return 0

    shop.price.function = open_again
    client.redrive("prices", "tasks")
    assert run_due(shop.app) == {"done": 2}
    assert (shop.got, client.barriers()) == ([[5, 0]], [])


def test_ends_say_what_became_of_each(shop: Shop) -> None:
    calls = [shop.price.call("north"), shop.price.call("closed"), shop.price.options(delay="1h").call("late")]
    jobs = penstock.group(calls, then=shop.ends, on="ended")
    assert run_due(shop.app) == {"done": 1, "failed": 1}
    (stands,) = shop.app.client().barriers("offers")
    assert stands.why == "1 of 3 tasks have not ended: 2"
    jobs[2].cancel()
    assert run_due(shop.app) == {"done": 1}
    assert shop.got == [
        [
            Ended("completed", 5, ""),
            Ended("dead-lettered", None, "OSError: closed"),
            Ended("cancelled", None, ""),
        ]
    ]


def test_ends_need_no_annotation(app: Tasks) -> None:
    got: list[Any] = []

    @app.task(queue="q")
    def nothing() -> None:
        return None

    @app.task(queue="q")
    def ends(found):  # pyright: ignore
        got.extend(found)

    penstock.group([nothing.call()], then=ends, on="ended")
    assert run_due(app) == {"done": 2}
    assert got == [Ended("completed", None, "")]


def test_results_come_in_the_encoding_and_to_the_types_of_their_functions(penstock_broker: Any) -> None:
    with Tasks(penstock_broker.url, encoding="msgpack") as app:
        got: list[Any] = []

        @app.task(queue="q")
        def raw() -> bytes:
            return b"\x00\xff"

        @app.task(queue="q")
        def pause() -> timedelta:
            return timedelta(seconds=5)

        @app.task(queue="q")
        def both(found: tuple[bytes, timedelta]) -> None:
            got.append(found)

        penstock.group([raw.call(), pause.call()], then=both)
        assert run_due(app) == {"done": 3}
        assert got == [(b"\x00\xff", timedelta(seconds=5))]


def test_ends_have_results_of_the_annotated_type(app: Tasks) -> None:
    got: list[Any] = []

    @app.task(queue="q")
    def pause() -> timedelta:
        return timedelta(seconds=5)

    @app.task(queue="q")
    def ends(found: list[Ended[timedelta]]) -> None:
        got.extend(found)

    penstock.group([pause.call()], then=ends, on="ended")
    assert run_due(app) == {"done": 2}
    assert got == [Ended("completed", timedelta(seconds=5), "")]


def test_a_callback_in_a_process_of_its_own_gets_its_results() -> None:
    orders: list[Order] = []
    calls = Calls(task_functions.app, 1)
    calls._processes.run = lambda order, *rest: orders.append(order)  # type: ignore[method-assign]
    add, value = task_functions.app.functions["add"], b"\x91\x93\xa9completed\xc4\x015\xa0"
    task: Any = SimpleNamespace(id="t-0-0", attempt=1, cancelled=False, value=value, headers={BARRIER_HEADER: b"one"})
    calls._start_process(add, task, "json", lambda progress: None, None).future.result(30)
    calls.close()
    assert TaskChild(None)._outcome(orders[0]) == Returned(b"5")  # type: ignore[arg-type]


def test_calls_of_a_group_have_no_more_attempts_than_their_queue(shop: Shop) -> None:
    with refused("attempts"):
        penstock.group([shop.price.options(retry=Retry(99)).call("a")], then=shop.all)
    assert shop.app.client().barriers() == []


def test_calls_of_a_group_have_the_priorities_of_their_options(shop: Shop) -> None:
    assert shop.price.options(priority=7).call("a").message.grouped("g", 0).priority == 7
    low, high = (shop.price.options(priority=level).call("x" * level) for level in (1, 9))
    penstock.group([low, high], then=shop.all)
    with shop.app.client().worker("prices", group="tasks") as worker:
        (task,) = worker.fetch(max_records=1, wait=0)
        assert task.id.endswith("-1")


def test_a_callback_may_go_on_itself_and_has_what_its_function_declares(shop: Shop, penstock_broker: Any) -> None:
    @shop.app.task(queue="chain", retry=Retry(2, backoff=10, jitter=0))
    def next_one(price: int) -> int:
        task = current_task()
        if task.attempt == 1:
            raise OSError("once")
        shop.price.options(then=shop.offer).send("x" * price)
        return price

    shop.price.options(then=next_one).send("abc")
    assert run_due(shop.app) == {"done": 1, "failed": 1}
    penstock_broker.advance(11)
    assert run_due(shop.app) == {"done": 3}
    assert shop.got == [3]
    assert shop.offer.as_then("one", shop.app).callback().priority == 3


def test_delays_and_keys_are_those_of_the_calls(app: Tasks, penstock_broker: Any) -> None:
    shop = Shop(app, key=lambda shop: shop)
    app.client().create_topic("prices", partitions=8)
    jobs = penstock.group([shop.price.options(delay="10m").call(name) for name in "abcdefgh"], then=shop.all)
    partitions = {job.id.split("-")[1] for job in jobs}
    assert len(partitions) > 2
    sent = app.client().producer("prices")
    for job, name in zip(jobs, "abcdefgh", strict=True):
        future = sent.send_nowait(b"x", key=name.encode())
        future.result()
        assert f"-{future.partition}-" in job.id
    assert run_due(app)["done"] == 0
    penstock_broker.advance(601)
    assert run_due(app)["done"] == 9
    assert shop.got == [[1] * 8]


def test_a_callback_waits_thirty_days_longer_than_its_tasks_are_delayed(shop: Shop) -> None:
    calls = [shop.price.options(delay=delay).call("a") for delay in (None, "40d", "1h")]
    penstock.group(calls, then=shop.all)
    shop.price.options(then=shop.offer).send("a")
    days = timedelta(microseconds=shop.app.client().now_us)
    lives = [each.until.timestamp() - days.total_seconds() for each in shop.app.client().barriers()]
    assert lives == [pytest.approx(70 * 86400, abs=5), pytest.approx(30 * 86400, abs=5)]


def test_a_group_of_a_thousand_in_large_pieces(app: Tasks) -> None:
    sizes: list[int] = []

    @app.task(queue="q")
    def size(text: str) -> int:
        return len(text)

    @app.task(queue="q")
    def total(found: list[int]) -> None:
        sizes.extend(found)

    calls = [size.call("x" * (number * 10)) for number in range(1000)]
    jobs = penstock.group(calls, then=total)
    assert len({job.id for job in jobs}) == 1000
    assert run_due(app) == {"done": 1001}
    assert sizes == [number * 10 for number in range(1000)]


def test_results_without_room_dead_letter_their_callback(shop: Shop) -> None:
    app = shop.app
    app.client().create_topic("small", max_record_bytes=400)

    @app.task(queue="small", name="small")
    def small(found: str) -> None:
        shop.got.append(found)

    @app.task(queue="q")
    def long() -> str:
        return "x" * 400

    long.options(then=small).send()
    assert run_due(app) == {"done": 1, "rejected": 1}
    with pytest.raises(TaskFailed, match="no room"):
        small.job("small-0-0").result()
    assert shop.got == []


def test_on_an_event_loop(shop: Shop) -> None:
    async def main() -> None:
        jobs = await penstock.aio.group([shop.price.call("a"), shop.price.call("bc")], then=shop.all)
        one = await shop.price.aio.options(then=shop.offer).send("def")
        assert await asyncio.to_thread(run_due, shop.app) == {"done": 5}
        assert [await job.result() for job in (*jobs, one)] == [1, 2, 3]
        await shop.app.aio.close()

    asyncio.run(main())
    assert sorted(shop.got, key=str) == [3, [1, 2]]


def refused(said: str) -> Any:
    return pytest.raises(InvalidArgument, match=said)


def test_what_cannot_be_a_group_is_refused_before_anything_is_sent(shop: Shop) -> None:
    app, call = shop.app, shop.price.call("a")

    @app.task(queue="q", key=lambda found: "k")
    def keyed(found: int) -> None: ...

    @app.task(queue="q", dedup=lambda found: "k")
    def deduplicated(found: int) -> None: ...

    @app.task(queue="q")
    def two(one: int, other: int) -> None: ...

    other: Any = Tasks("mem://elsewhere")

    @other.task(queue="q")
    def elsewhere(found: int) -> int:
        return found

    group: Any = penstock.group
    for calls, then, said in [
        ([], shop.all, "0 calls"),
        ([call] * 1001, shop.all, "1001 calls"),
        ([shop.price], shop.all, "no call"),
        (call, shop.all, "not a list"),
        ([call, elsewhere.call(1)], shop.all, "one app"),
        ([call], elsewhere, "another app"),
        ([call], keyed, "key="),
        ([call], deduplicated, "dedup="),
        ([call], two, "one argument"),
        ([call], print, "no task function"),
        ([call], "all", "no task function"),
        ([shop.price.options(then=shop.offer).call("a")], shop.all, "of its own"),
        ([deduplicated.call(1)], shop.all, "dedup="),
    ]:
        with refused(said):
            group(calls, then=then)
    with refused("on="):
        group([call], then=shop.all, on="done")
    with refused("penstock.group"):
        shop.price.options(then=shop.offer).send_many(["a"])
    with refused("^then='offer' is of one call"):
        shop.price.options(then=shop.offer).schedule("s", "every 1h", "a")
    with refused("dedup="):
        deduplicated.options(then=shop.offer).send(1)
    assert app.client().barriers() == []
    assert run_due(app) == {}


def test_a_call_says_what_it_is(shop: Shop) -> None:
    call = shop.price.call("a")
    assert isinstance(call, Call)
    assert repr(call) == "<call of price>"
    assert shop.price.options(priority=7).call("a").message.priority == 7


def test_a_record_that_only_looks_like_a_callback_is_dead_lettered(shop: Shop) -> None:
    shop.offer.send(1)
    run_due(shop.app)
    headers = {"penstock-task": b"offer", BARRIER_HEADER: b"one"}
    for value in (b"[]", b"\x90", b"\x91\x93\xa9completed\xc4\x04nope\xa0"):
        shop.app.client().producer("offers").send(value, headers=headers)
    assert run_due(shop.app) == {"rejected": 3}
