"""How tasks end over penstock and over Redis: one body for both, with real workers."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import (
    ChordError,
    MaxRetriesExceededError,
    Reject,
    TaskRevokedError,
    TimeLimitExceeded,
    WorkerLostError,
)
from penstock.broker import ServeConfig
from support.celery_outcomes import Refused
from support.celery_shop import WAIT_S, CeleryWorker, make
from support.noted import noted
from support.processes import Serving

from perf.systems.redis_streams import SYSTEMS

REDIS = SYSTEMS[0]
LOOKS = 1000


@contextmanager
def penstock_url(place: Path) -> Iterator[str]:
    with Serving(ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=64)) as serving:
        yield f"penstock+{serving.url}"


@contextmanager
def redis_url(place: Path) -> Iterator[str]:
    if reason := REDIS.absent():
        pytest.skip(reason)
    with REDIS.serve(place, "written") as socket:
        yield f"redis+socket://{socket}"


@pytest.fixture(scope="module", params=[penstock_url, redis_url], ids=["penstock", "redis"])
def shop(request, tmp_path_factory) -> Iterator[Celery]:
    """An application whose tasks a worker with two children runs."""
    with request.param(tmp_path_factory.mktemp("served")) as url:
        made = make(url)
        with CeleryWorker(made, "prefork", tmp_path_factory.mktemp("log") / "worker") as worker:
            yield made
            worker.stop()
        gc.collect()  # results of Redis unsubscribe when they are collected
        made.close()


@pytest.fixture
def folder(tmp_path) -> str:
    return str(tmp_path)


def seen(shop: Celery, condition: Callable[[], bool]) -> bool:
    """Whether something that no verb waits for comes true: another task runs between two looks."""
    for _ in range(LOOKS):
        if condition():
            return True
        assert shop.tasks["add"].delay(1, 1).get(timeout=WAIT_S) == 2
    return False


def test_an_exception_comes_back_with_its_type_its_arguments_and_its_traceback(shop):
    result = shop.tasks["refuse"].delay("tea", 2)
    with pytest.raises(Refused) as caught:
        result.get(timeout=WAIT_S)
    assert (caught.value.order, caught.value.amount) == ("tea", 2)
    assert (result.state, result.successful(), result.failed()) == ("FAILURE", False, True)
    assert "raise Refused(order, amount)" in result.traceback
    assert repr(result.get(propagate=False)) == "Refused('tea', 2)"


def test_a_task_without_such_arguments_fails_as_a_call_does(shop):
    with pytest.raises(TypeError, match="unexpected keyword"):
        shop.tasks["text"].apply_async(kwargs={"size": 1}).get(timeout=WAIT_S)


def test_retries_end_with_the_reason_or_with_an_error_of_their_own(shop, folder):
    with pytest.raises(Refused):
        shop.tasks["give_up"].delay(folder, with_reason=True).get(timeout=WAIT_S)
    assert noted(Path(folder, "ran")) == ["0", "1", "2"]
    with pytest.raises(MaxRetriesExceededError):
        shop.tasks["give_up"].delay(folder, with_reason=False).get(timeout=WAIT_S)
    assert len(noted(Path(folder, "ran"))) == 6


@pytest.mark.parametrize("failures", [2, 3])
def test_retries_by_themselves_succeed_or_end_with_the_exception(shop, folder, failures):
    result = shop.tasks["by_itself"].delay(folder, failures)
    if failures == 2:
        assert result.get(timeout=WAIT_S) == 2
    else:
        with pytest.raises(Refused):
            result.get(timeout=WAIT_S)
    assert len(noted(Path(folder, "ran"))) == 3


def test_a_rejected_task_fails_and_a_requeued_one_is_redelivered(shop, folder):
    with pytest.raises(Reject):
        shop.tasks["reject"].delay(folder, requeue=False).get(timeout=WAIT_S)
    Path(folder, "ran").unlink()
    assert shop.tasks["reject"].delay(folder, requeue=True).get(timeout=WAIT_S) is True


def test_an_ignored_task_keeps_the_state_it_had(shop, folder):
    ignored, half = shop.tasks["ignore"].delay(), shop.tasks["progress"].delay(folder)
    assert seen(shop, lambda: (ignored.state, half.state) == ("STARTED", "HALF"))
    assert half.info == {"done": 1, "of": 2}


def test_a_task_that_expired_is_revoked(shop):
    late = datetime.now(UTC) - timedelta(seconds=1)
    with pytest.raises(TaskRevokedError):
        shop.tasks["add"].apply_async((1, 1), expires=late).get(timeout=WAIT_S)


def test_time_limits_end_a_task(shop):
    with pytest.raises(TimeLimitExceeded):
        shop.tasks["wait"].apply_async(time_limit=1).get(timeout=WAIT_S)
    assert shop.tasks["wait_patiently"].apply_async(soft_time_limit=1).get(timeout=WAIT_S) == "told in time"


def test_a_task_whose_process_dies_runs_again_with_late_acks_and_fails_with_early_ones(shop, folder, tmp_path_factory):
    late = shop.tasks["die"].delay(folder)
    early = shop.tasks["die_early"].delay(str(tmp_path_factory.mktemp("early")))
    assert late.get(timeout=WAIT_S) == 2
    with pytest.raises(WorkerLostError):
        early.get(timeout=WAIT_S)


def test_a_task_that_is_replaced_has_the_result_of_the_other(shop):
    assert shop.tasks["instead"].delay(2, 3).get(timeout=WAIT_S) == 5


def test_large_results_come_whole(shop):
    assert shop.tasks["text"].delay(1_000_000).get(timeout=WAIT_S) == "é" * 1_000_000


def test_a_forgotten_result_is_pending_again(shop):
    result = shop.tasks["add"].delay(1, 1)
    assert result.get(timeout=WAIT_S) == 2
    result.forget()
    assert shop.AsyncResult(result.id).state == "PENDING"


def test_links_are_told_of_results_and_error_callbacks_of_failures(shop, folder):
    told, file = shop.tasks["told"], Path(folder, "told")
    shop.tasks["add"].apply_async((1, 2), link=told.s(folder=folder))
    assert seen(shop, lambda: noted(file) == ["3"])
    failing = shop.tasks["refuse"].apply_async(("tea", 2), link_error=told.si("failed", folder=folder))
    assert isinstance(failing.get(timeout=WAIT_S, propagate=False), Refused)
    assert seen(shop, lambda: noted(file) == ["3", "failed"])


def test_a_chain_passes_results_on_and_ends_at_a_failure(shop, folder):
    add, refuse, tell = (shop.tasks[name] for name in ("add", "refuse", "told"))
    result = chain(add.s(1, 1), add.s(2), add.s(3)).delay()
    assert result.get(timeout=WAIT_S) == 7
    assert (result.parent.get(timeout=WAIT_S), result.parent.parent.get(timeout=WAIT_S)) == (4, 2)
    broken = chain(add.s(1, 1), refuse.si("tea", 2), tell.s(folder=folder)).delay()
    with pytest.raises(Refused):
        broken.get(timeout=WAIT_S)  # the failure of its parent, which may be there before its own
    deadline = time.monotonic() + WAIT_S
    while broken.state == "PENDING":
        assert time.monotonic() < deadline
    assert (broken.state, broken.parent.state, broken.parent.parent.state) == ("FAILURE", "FAILURE", "SUCCESS")
    assert noted(Path(folder, "told")) == []


def test_a_group_has_the_results_of_its_parts_in_order_or_the_first_failure(shop):
    add, refuse = shop.tasks["add"], shop.tasks["refuse"]
    result = group(add.s(number, number) for number in range(10)).delay()
    result.save()
    assert result.get(timeout=WAIT_S) == [2 * number for number in range(10)]
    assert shop.GroupResult.restore(result.id).get(timeout=WAIT_S) == [2 * number for number in range(10)]
    mixed = group(add.s(1, 1), refuse.s("tea", 2)).delay()
    with pytest.raises(Refused):
        mixed.get(timeout=WAIT_S)
    assert mixed.get(timeout=WAIT_S, propagate=False)[0] == 2


def test_chords_of_every_shape_call_back_once(shop, folder):
    add, total, tell, by_itself = (shop.tasks[name] for name in ("add", "total", "told", "by_itself"))
    parts = [add.s(number, 1) for number in range(5)]
    assert chord(parts, total.s()).delay().get(timeout=WAIT_S) == 15
    assert chord([parts[0]], total.s()).delay().get(timeout=WAIT_S) == 1
    assert chord([], total.s()).delay().get(timeout=WAIT_S) == 0
    assert chord([by_itself.s(folder, 1), add.s(1, 1)], total.s()).delay().get(timeout=WAIT_S) == 3
    assert chord([chain(add.s(1, 1), add.s(2)), add.s(1, 1)], total.s()).delay().get(timeout=WAIT_S) == 6
    inner = chord([add.s(1, 1), add.s(2, 2)], total.s())
    assert chord([inner, add.s(1, 1)], total.s()).delay().get(timeout=WAIT_S) == 8
    assert chain(add.s(1, 1), group(add.s(1), add.s(2)), total.s()).delay().get(timeout=WAIT_S) == 7
    assert chain(group(add.s(1, 1), add.s(2, 2)), total.s(), add.s(1)).delay().get(timeout=WAIT_S) == 7
    ending_in_a_group = chain(add.s(1, 1), group(add.s(1), add.s(2)))
    assert chord([ending_in_a_group, add.s(1, 1)], shop.tasks["same"].s()).delay().get(timeout=WAIT_S) == [[3, 4], 2]
    assert chord(parts, chain(total.s(), tell.s(folder=folder))).delay().get(timeout=WAIT_S) == 15
    assert noted(Path(folder, "told")) == ["15"]


def test_a_chord_with_a_part_that_fails_fails_and_tells_its_error_callback(shop, folder):
    add, total, refuse, tell = (shop.tasks[name] for name in ("add", "total", "refuse", "told"))
    callback = total.s().on_error(tell.si("failed", folder=folder))
    result = chord([add.s(1, 1), refuse.s("tea", 2), add.s(2, 2)], callback).delay()
    with pytest.raises(Refused):
        result.get(timeout=WAIT_S)  # of its part
    with pytest.raises(ChordError, match="Refused"):
        shop.AsyncResult(result.id).get(timeout=WAIT_S)
    assert seen(shop, lambda: noted(Path(folder, "told")) == ["failed"])


def test_chunks_and_maps_run_in_as_many_tasks_as_they_say(shop):
    add, text = shop.tasks["add"], shop.tasks["text"]
    assert add.chunks([(n, n) for n in range(5)], 2).delay().get(timeout=WAIT_S) == [[0, 2], [4, 6], [8]]
    assert text.map([1, 2]).delay().get(timeout=WAIT_S) == ["é", "éé"]
    assert add.starmap([(1, 2), (3, 4)]).delay().get(timeout=WAIT_S) == [3, 7]
