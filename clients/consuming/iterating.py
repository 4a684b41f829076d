"""Iteration over a consumer, for threads.

Contract: iteration ends when another thread closes the consumer. Records of one batch cost no Python each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from ...storage.errors import Closed
from ...storage.record import Record
from ..arguments.checking import count
from ..connection.driver import Driver
from ..connection.steps import FOREVER, Steps
from .columnar import Convert
from .core import ConsumerCore
from .loading import loaded
from .reader import Reader
from .telling import Untold

T = TypeVar("T")


def run_told(driver: Driver, core: Reader, begin: Callable[[], Steps[T]]) -> T:
    """Run steps; the application is told of changes of the assignment first."""
    while True:
        try:
            return driver.run(begin())
        except Untold:
            tell(driver, core)


def fetched(driver: Driver, core: Reader, most: int, deadline: float) -> list[Record[Any]]:
    """What `fetch` returns. Records are loaded without the client's lock."""
    if core.load is None or not most:
        return run_told(driver, core, lambda: core.fetch(most, deadline))
    count("max_records", most)
    run = run_told(driver, core, lambda: core.next_list(deadline, one_by_one=False))
    return loaded(core, run, most, lambda: driver.look(lambda: core.run_there(holds=True)))


def tell(driver: Driver, core: Reader) -> None:
    """Tell the application what it was given and what was taken."""
    telling = core.telling
    if telling is not None:
        with telling.whole():
            telling.callback(driver.do(lambda: telling.change(core.session)))


def run_last_told(core: ConsumerCore) -> None:
    """Tell the application, while it can still commit, that everything is taken."""
    telling, core.telling = core.telling, None
    if telling is not None and telling.known:
        telling.callback(telling.change(None))


def each_record(driver: Driver, core: Reader) -> Iterator[Record[Any]]:
    """Every record; waits for new ones."""
    return chain.from_iterable(_runs(driver, core))


def _runs(driver: Driver, core: Reader) -> Iterator[Iterator[Record[Any]]]:
    run = driver.run
    while True:
        try:
            found = run(core.next_list(FOREVER, one_by_one=True))
        except Untold:
            tell(driver, core)
            continue
        except Closed:
            core.connection.check_ours()
            return
        assert found is not None, "a wait without a deadline ends with records"
        yield found.iterator


def each_batch(driver: Driver, core: Reader, convert: Convert, patience: float) -> Iterator[Any]:
    """Every batch, until none comes for `patience` seconds. An available one costs no steps."""
    clock, there, look = core.connection.clock, partial(core.batch_there, convert), driver.look
    while True:
        core.begun = {}
        try:
            found = look(there)
            if found is None:
                found = driver.run(core.next_batch(convert, clock() + patience))
        except Untold:
            tell(driver, core)
            continue
        except Closed:
            core.connection.check_ours()
            return
        except (KeyboardInterrupt, SystemExit):
            if core.begun:  # as in `Consumer.fetch`
                core.back_to = core.begun
            raise
        if found is None:
            return
        yield found if core.load is None else loaded(core, found, found.left)
