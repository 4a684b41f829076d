"""Celery's result backend over penstock: states, results, groups, chords and waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from celery import Celery, chord, group, states
from celery.exceptions import TimeoutError as CeleryTimeoutError
from penstock.adapters.celery.results import GROUPS, RESULTS, PenstockBackend
from penstock.adapters.celery.table import ValuesByKey
from penstock.clients import connect
from penstock.clients.memory_broker import MemoryBroker

WAIT_S = 10.0


def app_of(url: str) -> Celery:
    app = Celery("shop", broker=url, backend=url, set_as_current=False)

    @app.task(name="add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="total", shared=False)
    def total(values: list[int]) -> int:
        return sum(values)

    return app


@pytest.fixture
def app(url) -> Iterator[Celery]:
    made = app_of(url)
    yield made
    made.close()


@pytest.fixture
def backend(app) -> PenstockBackend:
    assert isinstance(app.backend, PenstockBackend)
    return app.backend


def test_a_result_is_read_by_another_process_and_by_the_one_that_sent_the_task(app, url, name):
    backend = app.backend
    backend.on_task_call(None, f"{name}.mine")
    for task in (f"{name}.mine", f"{name}.other"):
        assert app_of(url).backend.get_state(task) == states.PENDING
        backend.store_result(task, {"x": [1, "é"]}, states.SUCCESS)
    assert backend.get_result(f"{name}.mine") == {"x": [1, "é"]}
    assert app_of(url).backend.get_result(f"{name}.other") == {"x": [1, "é"]}
    assert backend.get_state(f"{name}.none") == states.PENDING


def test_states_follow_each_other_and_a_success_stays(app, name):
    backend = app.backend
    for state, result in ((states.STARTED, {"pid": 1}), (states.RETRY, ValueError("again"))):
        backend.store_result(name, result, state)
        assert backend.get_state(name) == state
    backend.store_result(name, 7, states.SUCCESS)
    backend.store_result(name, ValueError("late"), states.FAILURE)
    backend._cache.clear()
    assert (backend.get_state(name), backend.get_result(name)) == (states.SUCCESS, 7)
    backend.forget(name)
    assert backend.get_state(name) == states.PENDING
    backend.store_result(name, 8, states.STARTED)
    assert backend.get_state(name) == states.STARTED


def test_waiting_ends_with_the_timeout(served, name):  # in memory, the broker's clock stands still
    with pytest.raises(CeleryTimeoutError):
        app_of(f"penstock+{served.url}").AsyncResult(name).get(timeout=0.01)


def test_waiting_ends_with_the_result(app, url, name):
    result = app.AsyncResult(name)
    other = app_of(url).backend
    storing = threading.Timer(0.05, other.store_result, (name, 3, states.SUCCESS))
    storing.start()
    assert result.get(timeout=WAIT_S) == 3
    storing.join()


def test_a_failure_is_raised_where_its_result_is_asked_for(app, name):
    app.backend.store_result(name, KeyError("missing"), states.FAILURE, traceback="Traceback")
    with pytest.raises(KeyError, match="missing"):
        app.AsyncResult(name).get(timeout=WAIT_S)


def test_a_group_that_is_saved_twice_is_restored(app, name):
    for _ in range(2):
        app.GroupResult(name, [app.AsyncResult(f"{name}.0")]).save()
    assert [each.id for each in app.GroupResult.restore(name)] == [f"{name}.0"]


def test_results_of_a_group_come_as_they_are_ready(app, name):
    ids = [f"{name}.{number}" for number in range(20)]
    saved = app.GroupResult(name, [app.AsyncResult(each) for each in ids])
    saved.save()
    for number, each in enumerate(ids):
        app.backend.store_result(each, number, states.SUCCESS)
    found = app.GroupResult.restore(name)
    assert found.join_native(timeout=WAIT_S) == list(range(20))
    assert found.ready()
    found.delete()
    assert app.GroupResult.restore(name) is None


class Request:
    """A part of a chord, as its task has it."""

    def __init__(self, group: str, id: str, index: int, callback: dict, size: int) -> None:
        self.group, self.id, self.group_index = group, id, index
        self.chord = {**callback, "chord_size": size}


def parts_of(app: Celery, name: str, count: int) -> list[Request]:
    ids = [f"{name}.{index}" for index in range(count)]
    app.backend.apply_chord((name, [app.AsyncResult(each) for each in ids]), None)
    callback = app.tasks["total"].s().set(queue=name, task_id=f"{name}.body")
    return [Request(name, each, index, callback, count) for index, each in enumerate(ids)]


def sent(app: Celery, queue: str) -> int:
    with app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue).message_count


def finish(app: Celery, part: Request, value: int) -> None:
    app.backend.store_result(part.id, value, states.SUCCESS)
    app.backend.on_chord_part_return(part, states.SUCCESS, value)


def test_the_last_part_of_a_chord_sends_its_callback_once(app, name):
    parts = parts_of(app, name, 3)
    for part in parts:
        assert sent(app, name) == 0
        finish(app, part, 1)
    assert sent(app, name) == 1
    finish(app, parts[0], 1)  # its worker died before its ack: it ran again
    assert sent(app, name) == 1


def test_the_group_of_a_chord_is_restored_for_the_part_that_completes_it_alone(app, name, monkeypatch):
    parts = parts_of(app, name, 5)
    restored = []
    restore = app.backend._restore_group
    monkeypatch.setattr(app.backend, "_restore_group", lambda id_: restored.append(id_) or restore(id_))
    for part in [*parts[:4], parts[0]]:
        finish(app, part, 1)
    assert restored == []
    finish(app, parts[4], 1)
    assert restored == [name]
    assert sent(app, name) == 1


def test_a_chord_waits_for_all_parts_of_the_groups_at_the_ends_of_its_chains(app, name):
    parts = parts_of(app, name, 3)
    inner = app.GroupResult(f"{name}.inner", [app.AsyncResult(part.id) for part in parts[1:]])
    app.backend.apply_chord((name, [app.AsyncResult(parts[0].id), inner]), None)
    app.backend.set_chord_size(name, len(parts))
    for part in parts:
        del part.chord["chord_size"]
        assert sent(app, name) == 0
        finish(app, part, 1)
    assert sent(app, name) == 1


def test_a_part_that_runs_twice_counts_once(app, name):
    parts = parts_of(app, name, 3)
    for part in (parts[0], parts[0], parts[1], parts[0]):
        finish(app, part, 1)
    assert sent(app, name) == 0
    finish(app, parts[2], 1)
    assert sent(app, name) == 1


def test_a_part_whose_worker_died_before_the_callback_sends_it_when_it_runs_again(app, url, name):
    parts = parts_of(app, name, 2)
    finish(app, parts[0], 1)
    dying = app_of(url).backend
    dying.store_result(parts[1].id, 1, states.SUCCESS)
    assert dying._counted(parts[1])[0] == 2  # counted, and killed before it sent
    finish(app, parts[1], 1)
    assert sent(app, name) == 1


def test_a_part_that_runs_again_where_a_worker_died_behind_the_callback_is_no_error(app, url, name):
    parts = parts_of(app, name, 2)
    finish(app, parts[0], 1)
    dying = app_of(url)
    delete = dying.backend.delete

    def die_at_the_count(key: bytes) -> None:
        if key == dying.backend.get_key_for_chord(name):
            raise InterruptedError
        delete(key)

    dying.backend.delete = die_at_the_count
    with pytest.raises(InterruptedError):
        finish(dying, parts[1], 1)
    finish(app, parts[1], 1)
    assert sent(app, name) == 2  # with one id, as any task that runs twice
    assert app.AsyncResult(f"{name}.body").state == states.PENDING


def test_a_part_that_comes_to_its_chord_when_that_is_over_counts_nothing(app, name):
    parts = parts_of(app, name, 2)
    for part in parts:
        finish(app, part, 1)
    assert app.backend._counted(parts[0])[0] == 0


def test_a_table_reads_what_retention_left_and_what_was_announced_only_from_then_on(name):
    with MemoryBroker() as broker, broker.connect() as client:
        table = ValuesByKey(client, name, None)
        for value in (b"1", b"2"):
            table.put(b"k", value)
        assert table.values(b"k") == [b"1", b"2"]
        fresh = ValuesByKey(connect(broker.url), name, None)
        fresh.begin(b"k")
        table.put(b"k", b"3")
        assert fresh.values(b"k") == [b"3"]
        client.trim(name, before="latest")
        table.put(b"k", b"4")
        assert ValuesByKey(connect(broker.url), name, None).values(b"k") == [b"4"]
        assert table.values(b"k") == [b"1", b"2", b"4"]
        assert table.values_of([b"a", b"k"]) == [[], [b"1", b"2", b"4"]]


def test_results_expire_with_the_retention_of_their_topics(url):
    app = Celery("shop", broker=url, backend=url, set_as_current=False, result_expires=3600)
    with MemoryBroker() as broker:
        app.conf.result_backend = f"penstock+{broker.url}"
        app.backend.store_result("x", 1, states.SUCCESS)
        with broker.connect() as client:
            assert [client.topic(topic).settings["retention_s"] for topic in (RESULTS, GROUPS)] == [3600, 3600]


def test_groups_and_chords_are_sent(app, name):
    add, total = app.tasks["add"], app.tasks["total"]
    group(add.s(1, 1), add.s(2, 2)).apply_async(queue=name)
    chord([add.s(1, 1), add.s(2, 2)], total.s()).apply_async(queue=name)
    assert sent(app, name) == 4
