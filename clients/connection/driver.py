"""The sync shell: drives steps in the caller's thread, or in a pump thread between calls.

Idea: each calling thread does its own input and output, under one lock, so a closed loop of sends costs no thread
switch. A thread that has to wait becomes the leader: it releases the lock and waits for the channel; other waiting
threads follow. An outcome wakes the threads that wait for it; all others wake after each of the leader's turns. A
leader that is done wakes another to lead. The pump is one thread, started when first needed; every few milliseconds it
checks whether any thread has turned since, and if none did, turns itself (sends gathered records, takes answers, sends
heartbeats).

Contract: the lock is never held while waiting, nor while an application's callback runs. Threads may share everything
of one client.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from ...storage import forks
from ...storage.errors import Closed
from ..errors import TimedOut
from .connection import LOOK_PERIOD_S
from .readiness import waiting
from .steps import FOREVER, Pause, Sleeper, Steps

if TYPE_CHECKING:
    from .connection import Connection

T = TypeVar("T")

log = logging.getLogger("penstock.clients.connection")

PUMP_PERIOD_S = 0.002
"""How long gathered records wait at most while the application is away."""

REST_S = 0.05
"""How often the pump looks for the application while nothing was asked: only heartbeats can be due."""

WAIT_MAX_S = LOOK_PERIOD_S
"""Upper limit of any wait: a wake-up lost in a library costs a second, not a deadlock."""


class Driver:
    """See the module."""

    may_map = True
    """A thread of the application may sleep until the broker wakes it: mapped reading is what "auto" prefers."""

    may_append = True
    """A thread of the application may write the broker's files."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lock: Any = threading.RLock()
        self.closed = False
        self._turned = threading.Condition(self.lock)
        self._leader = False
        self._told = 0  # turns that all waiting threads were told of
        self._leader_turns = 0  # turns when the leader began to wait: what came since may be for it
        self._followers = 0  # that wait for anything
        self._expected: dict[object, list[threading.Lock]] = {}  # of those that wait for one outcome
        self._sleepers: list[Sleeper] = []
        self._calling: dict[int, object] = {}  # threads that run callbacks, each with a mark of those that it runs now
        self._wait = waiting(connection.channel.fileno())
        self.pump: Pump | None = None
        self.pump_idle = True
        self._said_no_thread = False
        forks.tell(self)

    def run(self, steps: Steps[T]) -> T:
        """Drive steps to their end, waiting in this thread. Raises what they raise."""
        if self.closed:
            self.check_open()
        with self.lock:
            try:
                try:
                    if self.closed:  # while the lock was another thread's
                        self.check_open()
                    while True:
                        self._pause(next(steps))
                except StopIteration as done:
                    return done.value
                finally:
                    steps.close()
                    if self.connection.ended or self.connection.finished or self.connection.turns != self._told:
                        self.tell()
                    if self._expected:
                        self.hand_over()
            except (KeyboardInterrupt, SystemExit):  # what it left half done goes on, whatever the application calls
                self.need_pump()
                raise

    def run_on(self, steps: Steps[T]) -> T:
        """As `run`, for steps that go on while the application is away: a session, leases, batches in flight."""
        found = self.run(steps)
        if self.pump_idle:
            self.need_pump()
        return found

    def run_aside(self, call: Callable[[Future[None]], T]) -> T:
        """Run what takes long, without the lock. Its argument is done once no caller waits for it: never, here."""
        self.check_open()
        return call(Future())

    def look(self, there: Callable[[], T]) -> T:
        """Take arrived messages without waiting or turning. Raises what `there` raises, and Closed."""
        if self.closed:
            self.check_open()
        with self.lock:
            return there()

    def glance(self) -> None:
        """Take answers in the middle of a call (lock held), unless a thread waits for them.

        An application that sends without a pause would else hear of them when the pump gets the interpreter.
        Callbacks wait for `call_back`, because the caller is not done yet. A node in this process works in turns of
        its own: it has nothing to be taken in between.
        """
        if self.connection.channel.remote and not self._leader and self.connection.look():
            self._turned.notify_all()
            self._tell_ended()
            for sleeper in self._sleepers:
                sleeper.wake()

    def told(self) -> None:
        """See Shell. A leader waits for the channel, on which nothing comes for these outcomes."""
        if self._followers:
            self._turned.notify_all()
        self._tell_ended()

    def call_back(self) -> None:
        """Run the callbacks that `glance` left (lock not held)."""
        with self.lock:
            if self.connection.finished:
                self._run_callbacks()

    def do(self, call: Callable[[], T]) -> T:
        """Run a step that does not wait."""
        with self.lock:
            try:
                return call()
            finally:
                self.tell()

    def tell(self) -> None:
        """Wake waiting threads after a turn, and run callbacks of applications (lock held)."""
        turns = self.connection.turns
        if self._followers:
            self._turned.notify_all()
        if self.connection.ended and not (self._leader or self._expected):
            self.connection.ended = []
        elif self.connection.ended:
            self._tell_ended()
        elif self._leader and self.connection.turns != self._leader_turns:
            self.connection.channel.wake()
        for sleeper in self._sleepers:
            sleeper.wake()
        self._told = turns  # now: an interrupt came later than all of them were told
        if self.connection.finished:
            self._run_callbacks()

    def _tell_ended(self) -> None:
        """Wake the leader and the waiters of ended outcomes; all waiters if the broker refused the client."""
        ended, self.connection.ended = self.connection.ended, []
        if self._leader:
            self.connection.channel.wake()
        if self.connection.refused is not None:
            self._tell_all()
        if self._expected:
            for outcome in ended:
                for asleep in self._expected.pop(outcome, ()):
                    asleep.release()

    def _tell_all(self) -> None:
        expected, self._expected = self._expected, {}
        for asleep in chain(*expected.values()):
            asleep.release()

    def hand_over(self) -> None:
        """Wake a sleeper that expects an outcome if no thread waits for the channel any more (lock held)."""
        if self._expected and not self._leader and not self._followers:
            for asleep in self._expected.pop(next(iter(self._expected))):
                asleep.release()

    def check_open(self) -> None:
        """Raise Closed after `close`, and in a forked child."""
        self.connection.check_ours()
        if self.closed:
            raise Closed(f"the client of {self.connection.url} was closed; connect again")

    def _forked(self) -> None:
        """Close the driver in a forked child, where no thread waits."""
        forks.renew(self.lock)
        self.closed = self.connection.forked = True
        self._leader, self._followers, self._sleepers = False, 0, []
        self._expected = {}
        self.connection.finished = []

    # -- waiting ----------------------------------------------------------------------------------------

    def _pause(self, pause: Pause) -> None:
        """Wait until something arrives or is due, and take it. A leader finds what has arrived by waiting for it."""
        if pause.sleeper is not None:
            self._sleep(pause.sleeper, pause.until)
            return
        connection = self.connection
        if connection.ended:  # by these steps: others wait for it while they go on
            self.tell()
        timeout = min(min(pause.until, connection.due()) - connection.clock(), WAIT_MAX_S)
        if timeout <= 0.0:
            connection.turn()
            self.tell()
        elif self._leader and pause.outcome is not None:
            self._expect(pause.outcome, min(pause.until - connection.clock(), WAIT_MAX_S))
        elif self._leader:
            self._follow(timeout)
        else:
            self._lead(timeout)
        if self.closed:
            self.check_open()  # by a callback, or meanwhile

    def _lead(self, timeout: float) -> None:
        connection = self.connection
        try:  # from here on: an interrupt may come with the return of any call, that of `release` too
            self._leader, self._leader_turns = True, connection.turns
            self.lock.release()
            arrived = self._wait(timeout * 1000)
        finally:
            self._leader = False
            try:
                self.lock.acquire()
            except BaseException:
                self._take_lock()
                raise
        if self.closed:
            return
        if not arrived and timeout >= WAIT_MAX_S:
            connection.channel.look_again()
        connection.turn()
        self.tell()

    def _follow(self, timeout: float) -> None:
        self._followers += 1
        try:
            self._turned.wait(timeout)
        finally:
            self._followers -= 1

    def _expect(self, outcome: object, timeout: float) -> None:
        """Wait for one outcome, as a follower. The leader does all other work."""
        asleep = threading.Lock()
        asleep.acquire()
        self._expected.setdefault(outcome, []).append(asleep)
        try:
            self._unlocked(lambda: asleep.acquire(timeout=max(timeout, 0.0)))
        finally:
            left = [each for each in self._expected.pop(outcome, ()) if each is not asleep]
            if left:
                self._expected[outcome] = left

    def _sleep(self, sleeper: Sleeper, until: float) -> None:
        """Wait for a sleeper. The pump does all other work, so waking up does not wait for it."""
        if self.pump_idle:
            self.need_pump()
        timeout = min(max(until - self.connection.clock(), 0.0), WAIT_MAX_S)
        self._sleepers.append(sleeper)
        try:
            self._unlocked(partial(sleeper.sleep, timeout))
        finally:
            self._sleepers.remove(sleeper)
        if self.closed:
            self.check_open()

    def _unlocked(self, wait: Callable[[], object]) -> None:
        """Wait without the lock, which this thread holds exactly once."""
        try:
            self.lock.release()
            wait()
        finally:
            try:
                self.lock.acquire()
            except BaseException:
                self._take_lock()
                raise

    def _take_lock(self) -> None:
        """Take the lock where `acquire` was interrupted: that ends a wait for it.

        `_lead` and `_unlocked` repeat the `try` around `acquire` in place: a method that held it would be called, and
        an interrupt may come where a function begins, before its `try`.
        """
        if not self.lock._is_owned():
            self.lock._acquire_restore((1, get_ident()))

    def _run_callbacks(self) -> None:
        """Callbacks may call anything of the client, so they run as if the application called by itself.

        What they finish is called when they have returned, not inside of them: one may lead to the next for ever.
        """
        me = get_ident()
        if me in self._calling:
            return
        try:
            while ready := self.connection.finished:
                self.connection.finished = []
                try:
                    self._calling[me] = object()
                    self._unlocked(lambda ready=ready: _call_back_each(ready))
                finally:  # what Ctrl-C in one of them kept from being called
                    self.connection.finished[:0] = ready
        finally:
            self._calling.pop(me, None)
            if self._leader:
                self.connection.channel.wake()
            elif self._followers:
                self._turned.notify_all()

    def called(self, deadline: float) -> Steps[None]:
        """Wait until other threads are done with the callbacks that they run now. Inside of a callback: do not wait.

        Raises TimedOut.
        """
        running = set() if get_ident() in self._calling else set(self._calling.values())
        while running & set(self._calling.values()):
            if self.connection.clock() >= deadline:
                raise TimedOut("timed out: all records are settled, and callbacks of them run on in another thread")
            yield Pause(deadline)

    # -- the pump ---------------------------------------------------------------------------------------

    def need_pump(self) -> None:
        """Keep work going while the application is away. Cheap to repeat."""
        with self.lock:
            if self.closed:
                return
            if self.pump is None:
                try:
                    self.pump = Pump(self)
                except RuntimeError as error:  # none is left, or the interpreter ends: what was taken stays taken
                    self._say_no_thread(error)
                    return
            else:
                self.pump.rouse()
            self.pump_idle = False  # last: until then Ctrl-C may have kept the pump from it

    def _say_no_thread(self, error: RuntimeError) -> None:
        if not self._said_no_thread:
            self._said_no_thread = True
            log.warning(
                "the client of %s has no thread of its own (%s): until it has one, what it sends and the heartbeats of "
                "what it reads wait for the next call", self.connection.url, error,
            )  # fmt: skip

    @property
    def busy(self) -> bool:
        """Whether a thread waits for the channel and takes whatever arrives."""
        return self._leader

    def close(self) -> None:
        """Stop the pump, close the connection, end all waits. In a forked child it does nothing.

        A callback that the pump runs is waited for as long as any verb waits. Repeating it finishes what an interrupted
        close has begun.
        """
        if self.connection.forked:
            return
        with self.lock:
            self.closed = True
            self.connection.channel.wake()
            self._turned.notify_all()
            self._tell_all()
            for sleeper in self._sleepers:
                sleeper.wake()
        pump = self.pump
        if pump is not None:
            pump.stop(max(self.connection.timeout, WAIT_MAX_S))
        with self.lock:
            while self._leader:  # it polls the channel's descriptor, which must not be another file's meanwhile
                self.connection.channel.wake()
                self._turned.wait(0.01)
            self.connection.close()


def _call_back_each(callbacks: list[Callable[[], None]]) -> None:
    """Call them, and take those that are done out of the list: one that is interrupted knows what of it is left."""
    called = 0
    try:
        for callback in callbacks:
            _call_back(callback)
            called += 1
    finally:
        del callbacks[:called]


def _call_back(callback: Callable[[], object]) -> None:
    """Call it. Exceptions are reported, not raised in the verb or pump that runs it."""
    try:
        callback()
    except Exception as error:
        told = type(error), error, error.__traceback__, threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs(told))


class Pump:
    """The thread that keeps a client going while its application is away."""

    def __init__(self, driver: Driver) -> None:
        self._roused: SimpleQueue[None] = SimpleQueue()  # not an Event: the garbage collector may rouse it anywhere
        self._driver = weakref.ref(driver, lambda _: self.rouse())
        self._wait = waiting(driver.connection.channel.fileno())
        self._thread = threading.Thread(target=self._run, name="penstock-pump", daemon=True)
        self._thread.start()

    def rouse(self) -> None:
        """There is something to do again."""
        self._roused.put(None)

    def stop(self, patience_s: float) -> None:
        """Wait for the thread to end, unless it is the one that asks. The driver is closed, and the channel woken."""
        self.rouse()
        if threading.current_thread() is not self._thread:
            self._thread.join(patience_s)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException:
            if (driver := self._driver()) is not None and driver.pump is self:
                with driver.lock:  # the next verb that needs one makes another
                    driver.pump, driver.pump_idle = None, True
            raise

    def _work(self) -> None:
        """Sleep for a period after each sign of the application; without one, wait for the channel."""
        turns = -1
        while (driver := self._driver()) is not None and (found := self._look(driver, turns)) is not None:
            del driver
            turns, away, wait_s = found
            if away:
                self._wait(None if wait_s is None else wait_s * 1000)
                continue
            with suppress(Empty):
                self._roused.get(timeout=wait_s)
                while True:
                    self._roused.get_nowait()

    def _look(self, driver: Driver, turns: int) -> tuple[int, bool, float | None] | None:
        """Turn if no thread did since `turns`. Returns turns now, whether the application is away, how long to wait.

        None: the driver is closed, or an interrupt kept this pump from it.
        """
        connection = driver.connection
        with driver.lock:
            if driver.closed or driver.pump is not self:
                return None
            if driver.busy or connection.turns != turns:
                rests = not connection.asking and connection.due() > connection.clock() + REST_S
                driver.pump_idle = rests  # a sender must now rouse the pump
                return connection.turns, False, REST_S if driver.pump_idle else PUMP_PERIOD_S
            arrived = False
            while connection.turn():
                arrived = True
            if arrived or connection.ended:
                _tell(driver)
                if driver.closed:  # by a callback, or meanwhile
                    return None
            driver.hand_over()
            due = connection.due()
            driver.pump_idle = due == FOREVER and not connection.expecting
            if driver.pump_idle:
                return connection.turns, False, None
            return connection.turns, True, min(max(due - connection.clock(), PUMP_PERIOD_S), WAIT_MAX_S)


def _tell(driver: Driver) -> None:
    """Tell of a turn of the pump, whose thread a callback cannot end: it is not the application's."""
    while True:
        try:
            return driver.tell()
        except SystemExit:
            continue  # with the callbacks behind it
