"""The supervisor: starts broker and keeper, keeps them up, ends them in good order.

Idea: one thread over pidfds, the broker's control socket and a wake-up descriptor for signals.

    keeper ends            reap it, start another, send its link to the broker: the broker goes on meanwhile
    keeper is stuck        the broker says so: kill it, which is the case above
    a companion ends       start another, at the same addresses; it follows a broker that is started again
    broker ends            its keeper finishes by itself (what was written becomes durable); then a new pair
    SIGHUP                 the caller reads its settings again; what may change at once does
    SIGTERM or SIGINT      the broker drains: stops accepting, syncs, snapshots, marks its logs clean; exit code 0
    another, 1 s later     both are killed; nothing acknowledged is lost, the next start recovers

The caller may block these signals: `run` lets them through once it handles them, and blocks them again at its end.

Contract: a new keeper or broker is only started when the one before is gone for certain, so no two of them
ever act at once. A child that dies is restarted after a pause that doubles up to a bound, and so is one that the system
cannot start now (a limit of processes or descriptors, no memory): the others go on. A broker that does not come up many
times in a row ends the supervisor.
Must not know: logs, boards, messages of clients.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ..storage.errors import Error
from ..transport.url import local_address
from . import control, log_levels
from .children import Child, link_descriptors, part_of_broker
from .companions import MODULES, Companion
from .config import ServeConfig
from .diagnostics import say
from .errors import CannotStart
from .packets import PacketSocket, PeerGone
from .poller import milliseconds
from .stop import Stop

STABLE_S = 10.0
"""A child that lived so long starts over with the shortest pause."""

FAILURES_MAX = 5
"""So many starts of the broker in a row without serving, and the supervisor gives up."""


_ROLES: tuple[str, ...] = ("broker", "keeper", *MODULES)


class RestartPause:
    """The bounded back-off of one role."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = self._next_s = first_s
        self._most_s = most_s

    def after(self, lived_s: float) -> float:
        """Seconds to wait before the next start of a child that lived so long."""
        if lived_s >= STABLE_S:
            self._next_s = self._first_s
        pause, self._next_s = self._next_s, min(self._most_s, 2 * self._next_s)
        return pause


class Supervisor:
    """One node's processes. Use from one thread: `start`, then `run`; `stop` may be called from a signal."""

    def __init__(self, config: ServeConfig, *, say: Callable[[str], None] = say) -> None:
        """`say` gets sentences for people about what happens to the children."""
        self._config = config
        self._say = say
        self._broker: Child | None = None
        self._keeper: Child | None = None
        self._companions: dict[str, Companion] = {}  # by role
        self._bound: dict[str, list[str]] = {}  # where they listen, or listened
        self._page = -1  # that they share
        self._control: PacketSocket | None = None
        self._serving: control.Serving | None = None
        self._failed: control.StartFailed | None = None
        self._roles: list[dict[str, Any]] = []  # what the broker said of its role, and was not handed on yet
        self._failures = 0
        self._killed_by = ""  # the signal that ended the latest broker
        self._has_served = False
        self._stop = Stop()
        self._hung_up = False
        self._reload: Callable[[], dict[str, Any]] = dict
        self._started_s = dict.fromkeys(_ROLES, 0.0)
        self._pauses = {role: RestartPause(config.restart_first_s, config.restart_most_s) for role in _ROLES}
        self._due: dict[str, float] = {}
        self._wake, self._wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    # -- from outside -----------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Start them and wait until they serve. Returns the ready event.

        Raises:
            Error: it cannot start; the class is the one of the reason, the message one sentence.
        """
        self._config.addresses()
        self._spawn_pair()
        while not self._is_up:
            self._turn(self._seconds_to_start())
            self._start_due()
            if self._stop or self._failed is not None or self._broker is None:
                self._end_all()
                raise self._start_error()
        self._has_served = True
        return self.ready_event()

    def ready_event(self) -> dict[str, Any]:
        """The event that `penstock serve --json` prints once it serves."""
        assert self._serving is not None, "start() comes first"
        beside = [companion.process for companion in self._companions.values()]
        pids = {child.role: child.pid for child in (self._broker, self._keeper, *beside) if child is not None}
        serving = self._serving
        addresses = {"listen": serving.listen, "advertise": serving.advertise}
        return {"event": "ready", **addresses, "data": serving.data, "pids": pids, **self._bound}

    @property
    def _is_up(self) -> bool:
        """Whether clients can connect everywhere."""
        up = {role for role, companion in self._companions.items() if companion.bound}
        return self._serving is not None and up == set(self._config.companions())

    def run(
        self,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        reload: Callable[[], dict[str, Any]] | None = None,
    ) -> int:
        """Start (unless done), then supervise until stopped. Returns the exit code: 0 after a drain.

        Args:
            on_event: gets the ready event, again after every restart of a child (pids change); of a member of a
                cluster also an event when its role or term changes.
            reload: called after SIGHUP; returns settings of ServeConfig that change now, by name.
        """
        previous = {number: signal.signal(number, signal.SIG_IGN) for number in log_levels.SIGNALS.values()}
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or nothing tells how a child ended
        previous |= {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        if reload is not None:
            previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._on_hangup)
            self._reload = reload
        previous_wake = signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, previous)
        try:
            event = self.start() if self._serving is None else self.ready_event()
            return self._supervise(event, on_event or (lambda event: None))
        finally:
            self._end_all()
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            signal.set_wakeup_fd(previous_wake)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Drain and end; called again a second later: kill. `run` returns soon after."""
        self._stop.tell()
        os.write(self._wake_end, b"s")

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop.tell()

    def _on_hangup(self, number: int, frame: object) -> None:
        self._hung_up = True

    # -- the loop ---------------------------------------------------------------------------------

    def _supervise(self, event: dict[str, Any], on_event: Callable[[dict[str, Any]], None]) -> int:
        on_event(event)
        told = event
        self._tell_roles(on_event)
        while not self._stop:
            if self._hung_up:  # perhaps while the broker started
                self._hung_up = False
                self._config = msgspec.structs.replace(self._config, **self._reload())
                log_levels.use(self._config.log.level)
            self._tell_level()
            self._turn(self._seconds_to_start())
            self._start_due()
            if self._failures >= FAILURES_MAX:
                raise self._start_error()
            if self._is_up and self._keeper is not None:
                event = self.ready_event()
                if event != told:
                    on_event(event)
                    told = event
                self._tell_roles(on_event)
        return self._drain()

    def _tell_level(self) -> None:
        """Have the children that serve log as much as the settings say. Those to come are started so."""
        pair = (self._broker, self._keeper) if self._serving is not None else ()
        beside = (companion.process for companion in self._companions.values() if companion.bound)
        for child in (*pair, *beside):
            if child is not None:
                child.tell_level(self._config.log.level)

    def _tell_roles(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        while self._roles:
            on_event(self._roles.pop(0))

    def _turn(self, timeout_s: float | None) -> None:
        """Wait for one thing to happen, and see to it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for child in (self._broker, self._keeper):
            if child is not None:
                poll.register(child.fd, select.POLLIN)
        for companion in self._companions.values():
            poll.register(companion.process.fd, select.POLLIN)
            if companion.said_fd >= 0:
                poll.register(companion.said_fd, select.POLLIN)
        if self._control is not None and not self._control.gone:
            poll.register(self._control.fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(milliseconds(timeout_s))}
        if self._wake in ready:
            os.read(self._wake, 64)
        if self._control is not None and self._control.fd in ready:
            self._listen()
        if self._broker is not None and self._broker.ended():
            self._listen()
            self._on_broker_end()
        if self._keeper is not None and self._keeper.ended():
            self._on_keeper_end()
        for role, companion in list(self._companions.items()):
            self._hear_companion(role, companion, ready)

    def _listen(self) -> None:
        """Hear what the broker says."""
        assert self._control is not None
        try:
            while (received := self._control.receive()) is not None:
                message = control.decode(received[0])
                if isinstance(message, control.Serving):
                    self._serving, self._failures = message, 0
                elif isinstance(message, control.StartFailed):
                    self._failed = message
                elif isinstance(message, control.RoleChanged):
                    self._roles.append({"event": "role", "role": message.role, "term": message.term})
                elif isinstance(message, control.KeeperStuck):
                    self._replace_stuck_keeper(message.pid)
        except PeerGone:
            return  # its end is seen at the pidfd

    def _seconds_to_start(self) -> float | None:
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    def _start_due(self) -> None:
        now = time.monotonic()
        if self._due.get("broker", now + 1) <= now:
            self._drop_plans()
            self._try("broker", self._spawn_pair)
        elif self._due.get("keeper", now + 1) <= now:
            del self._due["keeper"]
            self._try("keeper", self._spawn_next_keeper)
        for role, settings in self._config.companions().items():
            if self._serving is not None and self._due.get(role, now) <= now:
                self._due.pop(role, None)
                self._try(role, partial(self._meet_broker, role, settings, local_address(self._serving.listen)))

    def _try(self, role: str, start: Callable[[], None]) -> None:
        """Start a child, after another pause if the system cannot now."""
        try:
            start()
        except OSError as error:
            self._put_off(role, f"cannot start the {role}: {error.strerror}: trying again", lived_s=0.0)

    def _drop_plans(self) -> None:
        """The broker and its keeper are started together."""
        for role in ("broker", "keeper"):
            self._due.pop(role, None)

    # -- children ---------------------------------------------------------------------------------

    def _spawn_pair(self) -> None:
        """Broker and keeper, joined by a fresh link."""
        ours, theirs = PacketSocket.pair()
        self._control = PacketSocket(ours)
        self._serving = self._failed = None
        (link, doorbell, bell_back), of_keeper = link_descriptors()
        of_broker = {"control": theirs, "link": link, "doorbell": doorbell, "bell-back": bell_back}
        try:
            self._broker = self._spawn("broker", of_broker)
        except OSError:
            for descriptor in of_keeper.values():
                os.close(descriptor)
            raise
        self._try("keeper", partial(self._spawn_keeper, of_keeper))

    def _spawn_keeper(self, of_keeper: dict[str, int]) -> None:
        self._keeper = self._spawn("keeper", of_keeper)

    def _spawn_next_keeper(self) -> None:
        """Another keeper for the broker that runs."""
        of_broker, of_keeper = link_descriptors()
        try:
            self._spawn_keeper(of_keeper)
            self._give_keeper(of_broker)
        finally:
            for descriptor in of_broker:
                os.close(descriptor)

    def _give_keeper(self, of_broker: Sequence[int]) -> None:
        """Send the broker its end of the link to the keeper."""
        assert self._control is not None
        assert self._keeper is not None
        try:
            self._control.send_descriptors(control.encode(control.NewKeeper(self._keeper.pid)), of_broker)
        except OSError as error:
            # The broker is ending: the keeper sees its link end, and both are seen to by the loop.
            self._say(f"cannot give the new keeper to the broker: {error}")

    def _spawn(self, role: str, descriptors: dict[str, int]) -> Child:
        self._started_s[role] = time.monotonic()
        child = Child(role, part_of_broker(role, self._config), descriptors)
        child.log_level = self._config.log.level
        return child

    def _meet_broker(self, role: str, settings: str, url: str) -> None:
        """Have a companion for the broker that serves at `url`. One for another address ends first."""
        companion = self._companions.get(role)
        if companion is None:
            self._started_s[role] = time.monotonic()
            self._companions[role] = Companion(role, settings, url, self._bound, self._config.log, self._shared_page())
        elif companion.url != url:
            companion.process.terminate()

    def _shared_page(self) -> int:
        """A page of memory, where there are several companions; -1 for none."""
        if self._page < 0 and len(self._config.companions()) > 1:
            self._page = os.memfd_create("penstock-beside", os.MFD_CLOEXEC)
            os.ftruncate(self._page, mmap.PAGESIZE)
        return self._page

    def _hear_companion(self, role: str, companion: Companion, ready: set[int]) -> None:
        """Hear what a companion says, and see to its end."""
        if companion.said_fd in ready:
            companion.hear()
            self._bound |= companion.bound
        if companion.process.ended():
            while companion.said_fd >= 0:
                companion.hear()
            if not self._has_served:
                ended = control.StartFailed(
                    CannotStart.code, f"the {role} ended ({companion.process.how}) before it served"
                )
                self._failed = self._failed or companion.failed or ended
            elif not self._stop:
                if companion.failed is not None:
                    self._say(f"the {role} cannot serve: {companion.failed.message}")
                self._plan(role, companion.process)
            companion.close()
            del self._companions[role]

    def _replace_stuck_keeper(self, pid: int) -> None:
        if self._keeper is not None and self._keeper.pid == pid:
            self._say(f"keeper {pid} has synced nothing for {self._config.keeper_timeout_s:g} s: replacing it")
            self._keeper.kill_nowait()  # one that waits for its disk is gone when that answers

    def _on_keeper_end(self) -> None:
        assert self._keeper is not None
        if not self._stop and self._failed is None:
            self._plan("keeper", self._keeper)
        self._keeper.close()
        self._keeper = None

    def _on_broker_end(self) -> None:
        """The broker is gone: let its keeper finish, so that the next broker finds nothing in doubt."""
        assert self._broker is not None
        broker, self._broker = self._broker, None
        self._killed_by = broker.how if (broker.exit_code or 0) < 0 else ""
        self._end_keeper()
        if not self._stop:
            if self._serving is None:
                self._failures += 1
            self._drop_plans()
            if self._has_served:
                self._plan("broker", broker)
        self._serving = None
        broker.close()
        if self._control is not None:
            self._control.close()
            self._control = None

    def _end_keeper(self) -> None:
        """Its link has ended with the broker, so it syncs what was written and ends; or it is killed."""
        if self._keeper is not None:
            if not self._keeper.wait(self._config.keeper_timeout_s):
                self._say(f"keeper {self._keeper.pid} did not end: killing it")
                self._keeper.kill()
            self._keeper.close()
            self._keeper = None

    def _plan(self, role: str, child: Child) -> None:
        """Restart a child after its pause."""
        why = f"{role} {child.pid} ended ({child.how}): starting another"
        self._put_off(role, why, lived_s=time.monotonic() - self._started_s[role])

    def _put_off(self, role: str, why: str, lived_s: float) -> None:
        """Start a child after the pause of one that lived so long."""
        pause = self._pauses[role].after(lived_s)
        self._due[role] = time.monotonic() + pause
        self._say(f"{why} in {pause:g} s")

    # -- the end ----------------------------------------------------------------------------------

    def _drain(self) -> int:
        """End in good order: the companions first, which are clients. 0 when the broker did.

        It takes `drain_s` at most, of which the companions have half.
        """
        deadline = time.monotonic() + self._config.drain_s
        self._drain_companions(deadline - self._config.drain_s / 2)
        if self._broker is None:
            return 0  # it was between two starts: the logs recover at the next one
        self._broker.terminate()
        broker = self._broker
        while self._broker is not None and not self._stop.again and (left := deadline - time.monotonic()) > 0:
            self._turn(left)
        if self._broker is None:
            return 0 if broker.exit_code == 0 else 1
        why = (
            "told again to stop while the broker drains"
            if self._stop.again
            else f"the broker did not drain in {self._config.drain_s:g} s"
        )
        self._say(f"{why}: killing it; the next start recovers its logs")
        return 1

    def _drain_companions(self, deadline: float) -> None:
        """Have the companions answer their clients, and end."""
        for companion in self._companions.values():
            companion.process.terminate()
        while self._companions and not self._stop.again and (left := deadline - time.monotonic()) > 0:
            self._turn(left)
        self._end_companions()

    def _end_companions(self) -> None:
        while self._companions:
            self._companions.popitem()[1].end()

    def _end_all(self) -> None:
        """Leave no child behind."""
        self._end_companions()
        if self._page >= 0:
            os.close(self._page)
            self._page = -1
        if self._broker is not None:
            self._broker.kill()
            self._broker.close()
            self._broker = None
        self._end_keeper()
        if self._control is not None:
            self._control.close()
            self._control = None

    def _start_error(self) -> Error:
        if self._stop:
            return CannotStart("told to stop before the broker served")
        if self._failed is not None:
            return Error.by_code.get(self._failed.code, CannotStart)(self._failed.message)
        if self._killed_by:
            return CannotStart(
                f"the broker was ended by {self._killed_by} before it served, and a process that a signal ends says "
                "nothing: the kernel's log names it when memory was short; start it again"
            )
        return CannotStart("the broker ended before it served; what it wrote to standard error says why")
