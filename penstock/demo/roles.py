"""How the conductor of the demo talks to its processes: JSON lines over two pipes.

    conductor -> role   Go, once the broker serves; Stop, when a consumer has seen all there is
    role -> conductor   Ready, Progress now and then, and at the end Done or Failed

Idea: a role is a process of its own. It is forked while the broker starts, before the conductor has a thread, a
socket or a ZeroMQ context, so six of them cost what one import costs; then it waits for Go.
Contract: a role whose conductor is gone sees the end of its pipe, which is a Stop. What a role writes to standard
error goes to memory of its own: RoleFailed quotes its last line, and the conductor passes it all on when the role ends.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Literal, NoReturn

import msgspec
from msgspec import Struct

from ..storage.errors import Error
from .errors import DemoError, RoleFailed

PROGRESS_S = 0.05
"""Between two words about progress."""

END_S = 2.0
"""How long a role may take to end once its conductor lets go of it."""


class Go(Struct, tag=True, frozen=True):
    """Begin. Tells consumers how to read and where to report.

    A role with a topic of its own is told its name; a role that keeps files is told where.
    """

    url: str
    topic: str
    flights: int
    group: str = ""
    delivery: Literal["auto", "push", "control", "mapped"] = "auto"
    report: str = ""
    target: str = ""
    place: str = ""


class Stop(Struct, tag=True, frozen=True):
    """Tells a role that no more input comes."""


class Ready(Struct, tag=True, frozen=True):
    """The role has started and waits for Go."""


class Progress(Struct, tag=True, frozen=True):
    """Records done so far."""

    records: int


class RoleDone(Struct, tag=True, frozen=True):
    """All done, in `seconds` from the first record to the last."""

    records: int
    seconds: float


class Failed(Struct, tag=True, frozen=True):
    """The role ends because of an error."""

    code: str
    message: str


Event = Ready | Progress | RoleDone | Failed
_ORDERS = msgspec.json.Decoder(Go | Stop)
_EVENTS = msgspec.json.Decoder(Event)


# -- in the role -----------------------------------------------------------------------------------


class Conductor:
    """The conductor, as a role sees it."""

    def __init__(self, orders: int, events: int) -> None:
        """Over the descriptors of two pipes."""
        self._orders = os.fdopen(orders, "rb", buffering=0)
        self._events = os.fdopen(events, "wb", buffering=0)
        self._told = 0.0
        self._stopped = False

    def say(self, event: Event) -> None:
        """Tell the conductor. Raises SystemExit if it is gone."""
        try:
            self._events.write(msgspec.json.encode(event) + b"\n")
        except BrokenPipeError:
            raise SystemExit(1) from None

    def progress(self, records: int) -> None:
        """Report progress, unless it was just reported."""
        now = time.monotonic()
        if now - self._told >= PROGRESS_S:
            self._told = now
            self.say(Progress(records))

    def wait_for_go(self) -> Go | None:
        """Wait for the order to begin; None if there will be none."""
        self.say(Ready())
        order = self._read()
        return order if isinstance(order, Go) else None

    def should_stop(self) -> bool:
        """Whether Stop has arrived. Never waits."""
        if not self._stopped and select.select([self._orders], [], [], 0)[0]:
            self._stopped = isinstance(self._read(), Stop)
        return self._stopped

    def _read(self) -> Go | Stop:
        line = self._orders.readline()
        return _ORDERS.decode(line) if line else Stop()


Part = Callable[[Conductor], None]
"""The function of a role."""


def _play(part: Part, conductor: Conductor) -> NoReturn:
    """Play a role until its part is done. Expected errors go to the conductor."""
    code = 1
    try:
        part(conductor)
        code = 0
    except Error as error:
        conductor.say(Failed(error.code, error.message))
    except (KeyboardInterrupt, SystemExit):
        pass  # the conductor is gone, or was told by the same signal
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _fork() -> int:
    """`os.fork` with ^C and the like deferred: an exception in Python's own code around a fork is lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the conductor ------------------------------------------------------------------------------


class Role:
    """One process of the demo, as the conductor sees it."""

    def __init__(self, name: str, part: Part, siblings: Sequence[Role]) -> None:
        """Fork. `siblings` are those already there: the new process must not keep their pipes open."""
        self.name = name
        self.records = 0
        self.seconds = 0.0
        self.done = False
        self._rest = b""
        self._errors = os.memfd_create(name)
        (orders, self._orders), (self._events, events) = os.pipe(), os.pipe()
        self._pid = _fork()
        if not self._pid:
            for role in (self, *siblings):
                role.close_pipes()
            os.dup2(self._errors, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
            _play(part, Conductor(orders, events))
        os.close(orders)
        os.close(events)
        os.set_blocking(self._events, False)

    def fileno(self) -> int:
        """For select: readable when the role has sent a message."""
        return self._events

    def tell(self, order: Go | Stop) -> None:
        """Send an order. Raises the role's error if it has ended before it was done; without orders it may be done."""
        try:
            os.write(self._orders, msgspec.json.encode(order) + b"\n")
        except BrokenPipeError:
            while not self.done:
                select.select([self], [], [])
                self.hear()

    def hear(self) -> None:
        """Take the role's messages. Raises the role's error."""
        said = os.read(self._events, 1 << 16)
        if not said and not self.done:
            raise RoleFailed(f"{self.name} ended before it was done, {self._why()}")
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            self._take(_EVENTS.decode(line))

    def _take(self, event: Event) -> None:
        match event:
            case Ready():
                pass
            case Progress(records):
                self.records = records
            case RoleDone(records, seconds):
                self.records, self.seconds, self.done = records, seconds, True
            case Failed(code, message):
                raise Error.by_code.get(code, DemoError)(f"{self.name}: {message}")

    def _why(self) -> str:
        """How the process ended, and the last line it wrote to standard error. Leaves it for `end` to reap."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None, "it was waited for"
        how = "with exit code" if ended.si_code == os.CLD_EXITED else "by signal"
        wrote = self._wrote().rstrip().rpartition("\n")[2]
        return f"{how} {ended.si_status}: {wrote or 'it wrote nothing to standard error'}"

    def _wrote(self) -> str:
        return os.pread(self._errors, os.fstat(self._errors).st_size, 0).decode(errors="replace")

    def kill(self) -> None:
        """Kill it in the middle of its work. It reports nothing more."""
        os.kill(self._pid, signal.SIGKILL)
        self.done = True

    def close_pipes(self) -> None:
        os.close(self._orders)
        os.close(self._events)

    def end(self) -> None:
        """End the process: without its pipes a role ends by itself, or it is killed. Pass its standard error on."""
        self.close_pipes()
        deadline = time.monotonic() + END_S
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                break
            time.sleep(0.01)
        sys.stderr.write(self._wrote())
        os.close(self._errors)
