"""The broker's loop: one thread that reads, appends once per partition, publishes, and answers.

Idea: every turn is the same. The node takes messages from clients, as many as a turn allows; `flush` appends once per
partition; the watermarks start syncs; `advance` answers committed requests. Then it waits, for sockets, for the
keeper's bell, for the warmer, for the supervisor, or for the next deadline.

Contract: a turn waits for nothing but a short inline sync. Clients' messages, full disks and failing syncs never end
the loop; SIGTERM, or a supervisor that closes the control socket, drains it.
Must not know: how logs, groups and the keeper work.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..storage.errors import Corrupt
from . import control
from .diagnostics import say
from .engine import Now
from .intake import Intake
from .keeper import messages
from .keeper.link import KeeperLink
from .packets import PeerGone

if TYPE_CHECKING:
    from ..transport.descriptors import DescriptorRoom
    from ..transport.sockets import Server
    from ..transport.zmq_curve import GateSocket
    from .access import BrokerAccess
    from .admission import Admission
    from .cold_reads import Warmer
    from .config import ServeConfig
    from .engine import Node
    from .keeper.jobs import KeeperJobs
    from .lenders import Lenders
    from .member.member import ShardMember
    from .member.recovering import RecoveringMember
    from .packets import PacketSocket
    from .poller import Poller
    from .port import SocketPort
    from .watermarks import Watermarks

IDLE_MESSAGES = 8
IDLE_BYTES = 64 << 10
"""Limit on the messages of a turn for the broker to count as idle: it may then sync inline."""

TELL_REFUSED_S = 1.0
"""Interval between log lines about refused connections."""

_NEW = tuple.__new__

FLUSH_LINK_S = 0.005
KEEPER_STOP_S = 20.0


def now() -> Now:
    """Both clocks."""
    return _NEW(Now, (time.time_ns() // 1000, time.monotonic()))  # a named tuple's own `new` is a function of Python


class Broker:
    """All parts of a running broker, put together by `broker_process`."""

    def __init__(
        self,
        config: ServeConfig,
        *,
        node: Node | ShardMember | RecoveringMember,
        port: SocketPort,
        servers: list[Server],
        poller: Poller,
        watermarks: Watermarks,
        jobs: KeeperJobs,
        warmer: Warmer,
        supervisor: PacketSocket,
        signals: int,
        lock: int,
        room: DescriptorRoom,
        lenders: Lenders,
        access: BrokerAccess | None = None,
        admission: Admission | None = None,
        gate: GateSocket | None = None,
        watched: Sequence[int] = (),
    ) -> None:
        """`signals` becomes readable when a signal asks for the end; `lock` is the directory's, for keepers.

        `watched`: other descriptors that begin a turn, in which `node` looks at them.
        """
        self.ended = False
        self._is_told = False  # by a signal, to end
        self._config = config
        self._node = node
        self._guard, self._portions = node.guard, node.portions
        self._port = port
        self._names = port.names
        self._poller = poller
        self._watermarks = watermarks
        self._jobs = jobs
        self._warmer = warmer
        self._supervisor = supervisor
        self._signals = signals
        self._lock = lock
        self._lenders = lenders
        self._link: KeeperLink | None = None
        self._scrubbed: dict[str, str] = {}  # what scrubbing has found, by log
        self._told_stuck = 0
        self._room = room
        self._told_refused = 0
        self._tell_refused_s = self._tell_forbidden_s = 0.0
        self._told_forbidden = 0
        self._admission = admission
        self._intake = Intake(node, port, servers, time.monotonic, time.thread_time, access)
        port.counting += [self._intake.stats, watermarks.stats, self._connections, self._rot]
        self._on_ready = {
            supervisor.fd: self._on_supervisor, signals: self._on_signal, warmer.fd: self._on_warm,
            port.fd: self._on_eased,
        }  # fmt: skip
        if gate is not None:
            gate.answer()  # the descriptor tells of what comes after one looked
            self._on_ready[gate.fd] = gate.answer
        for server in servers:
            self._on_ready |= server.guards()
        for member in (*servers, *self._on_ready, *watched):
            poller.add(member)

    # -- the loop ---------------------------------------------------------------------------------

    def run(self, on_serving: Callable[[], None]) -> None:
        """Until told to end. `on_serving` is called once, when the keeper watches too."""
        timeout = 0.0
        while not self.ended and not self.keeper_started:
            timeout = self.turn(self._poller.poll(timeout))
        on_serving()
        while not self.ended:
            timeout = self.turn(self._poller.poll(timeout))

    def turn(self, ready: list) -> float:
        """Handle what is readable. Returns the seconds until the next turn is needed."""
        at, lenders = now(), self._lenders
        if lenders.logs:
            lenders.wake()
        intake = self._intake
        intake.begin()
        for member in ready:
            if isinstance(member, int):
                handler = self._on_ready.get(member)
                if handler is not None:
                    handler()
            else:
                intake.take(member, at)
        self._settle(at)
        port = self._port
        if port.holds:
            port.send_answers()  # before work that no client waits for
        wait = self._tick(at)
        if wait <= 0.0:
            self._settle(at)
            wait = self._tick(at)
        if port.holds:
            port.send_answers()
        if self._is_told and not self._node.leaving():
            self.ended = True
        wait = min(wait, self._watermarks.after_answers(at.monotonic_s) - at.monotonic_s)
        wait = self._patience(wait, at)
        if self._node.rests != intake.rests:
            intake.rest(self._poller, not intake.rests)
        return lenders.sleep(wait) if lenders.logs else wait

    def _tick(self, at: Now) -> float:
        """Do what is due, and a portion of what takes long."""
        begun_s = time.monotonic()
        wait = self._node.tick(at)
        if steps := self._portions.worked:
            self._intake.worked(steps, time.monotonic() - begun_s)
        return wait

    def _settle(self, at: Now) -> None:
        """Append proposals, start their syncs, answer committed requests."""
        intake, node = self._intake, self._node
        idle = not intake.exhausted and intake.messages <= IDLE_MESSAGES and intake.bytes <= IDLE_BYTES
        dirty = node.flush(at, hurry=idle)
        waiting = self._names.take_waiting() if self._names.fresh else ()
        if dirty:
            is_synced = self._watermarks.flushed(dirty, idle=idle, now_s=at.monotonic_s, named=waiting)
            if is_synced and node.answer_ahead():
                self._port.send_answers()  # the rest of the turn goes by while the client goes on
        node.advance(at)

    def _patience(self, wait: float, at: Now) -> float:
        if self._room.refused != self._told_refused and at.monotonic_s >= self._tell_refused_s:
            self._tell_refused(at)
        if self._guard.refused != self._told_forbidden and at.monotonic_s >= self._tell_forbidden_s:
            self._tell_forbidden(at)
        if self._admission is not None:
            self._admission.refusals.show(at.monotonic_s)
        if self._lenders.refusals.count:
            self._lenders.refusals.show(at.monotonic_s)
        resume_s = self._intake.end()
        if resume_s is not None:
            wait = min(wait, max(0.0, resume_s - time.monotonic()))
        link = self._link
        if link is not None and link.waiting and not link.gone:
            link.flush()
            wait = min(wait, FLUSH_LINK_S)
        watermarks = self._watermarks
        if watermarks.waiting:
            timeout = self._config.keeper_timeout_s
            wait = min(wait, timeout)
            if at.monotonic_s - watermarks.progress_s > timeout:
                self._replace(link, at)
        return wait

    def _connections(self) -> dict[str, int]:
        """Descriptors of connections: now, and the most there may be; and what was refused since the start."""
        room, admission = self._room, self._admission
        return {
            "connections.descriptors": room.used,
            "connections.most": room.most,
            "connections.refused": room.refused,
            "access.refused": admission.refusals.count if admission is not None else 0,
            "access.forbidden": self._guard.refused,
        }

    def _rot(self) -> dict[str, int]:
        """Logs that scrubbing has found damage in since the start."""
        return {"scrub.rotten": len(self._scrubbed)}

    def _replace(self, link: KeeperLink | None, at: Now) -> None:
        """Ask for another keeper, once, if this one is stuck."""
        is_stuck = self._watermarks.stuck(at.monotonic_s, self._config.keeper_timeout_s)
        if link is not None and is_stuck and self._told_stuck != link.pid:
            self._told_stuck = link.pid
            self._supervisor.send([control.encode(control.KeeperStuck(link.pid))])

    def _tell_refused(self, at: Now) -> None:
        room, self._tell_refused_s = self._room, at.monotonic_s + TELL_REFUSED_S
        refused, self._told_refused = room.refused - self._told_refused, room.refused
        say(
            f"refused {refused} connections: {room.used} descriptors are taken by connections, of at most "
            f"{room.most}, half of what this process may open; raise its limit (ulimit -n)"
        )

    def _tell_forbidden(self, at: Now) -> None:
        """The log of what grants do not allow: one line a second, with the last of them."""
        guard, self._tell_forbidden_s = self._guard, at.monotonic_s + TELL_REFUSED_S
        refused, self._told_forbidden = guard.refused - self._told_forbidden, guard.refused
        say(f"forbidden requests: {refused}, the last: user {guard.last_refusal}")

    # -- what else becomes readable ---------------------------------------------------------------

    def _on_signal(self) -> None:
        self._is_told = self._is_told or signal.SIGTERM in os.read(self._signals, 64)

    def _on_warm(self) -> None:
        for token in self._warmer.done():
            self._node.warmed(token)

    def _on_eased(self) -> None:
        for session in self._port.eased():
            self._node.eased(session)

    def _on_supervisor(self) -> None:
        try:
            while (received := self._supervisor.receive()) is not None:
                packet, descriptors = received
                if isinstance(control.decode(packet), control.NewKeeper):
                    self._lose_keeper()
                    self.attach(KeeperLink(*descriptors))
        except PeerGone:
            self.ended = True

    # -- the keeper -------------------------------------------------------------------------------

    def attach(self, link: KeeperLink) -> None:
        """A keeper was spawned: tell it what to watch. It is used once it says that it does."""
        self._link = link
        self._on_ready[link.socket_fd] = self._on_link
        self._on_ready[link.bell_fd] = self._on_bell
        self._poller.add(link.socket_fd)
        self._poller.add(link.bell_fd)
        link.attach(self._watermarks.board_name, self._config.data, self._lock)

    def _on_bell(self) -> None:
        assert self._link is not None
        self._link.answered()
        self._watermarks.settle(time.monotonic())

    def _on_link(self) -> None:
        link = self._link
        if link is None:
            return
        had_started = link.started
        for report in link.receive():
            self._take(report)
        if link.gone:
            self._watermarks.settle(time.monotonic())
            self._lose_keeper()
        elif link.started and not had_started:
            self._jobs.keeper_started(link)
            self._watermarks.keeper_started(link)

    def _take(self, report: messages.Report) -> None:
        if isinstance(report, messages.Forgotten):
            self._watermarks.forgotten(report.row)
        elif isinstance(report, messages.Spared):
            log = self._watermarks.log_at(report.row)
            if log is not None:
                log.adopt_spare(report.path)
        elif isinstance(report, messages.Refused) and report.job == 0 and report.row >= 0:
            self._watermarks.refused(report.row, report.message)
        elif isinstance(report, messages.Rotten):
            self._rotten(report)
        else:
            self._jobs.answered(report)

    def _rotten(self, report: messages.Rotten) -> None:
        """A closed segment has rotted: tell it, and have a member fetch what it has lost."""
        directory = report.directory
        if directory not in self._scrubbed:
            say(f"{report.message}: penstock log verify says what is lost")
        self._scrubbed[directory] = report.message
        damage = Corrupt(report.message, path=directory, next_offset=report.next_offset)
        self._node.rotten(damage, lambda: self._mended(directory))

    def _mended(self, directory: str) -> None:
        self._scrubbed.pop(directory, None)
        say(f"{directory}: what had rotted is written anew, as another node has it")

    def _lose_keeper(self) -> None:
        """The keeper is gone: the broker finishes its open syncs."""
        link, self._link = self._link, None
        if link is None:
            return
        for fd in (link.socket_fd, link.bell_fd):
            self._poller.remove(fd)
            del self._on_ready[fd]
        link.close()
        self._jobs.keeper_lost()
        self._watermarks.keeper_lost()

    @property
    def keeper_started(self) -> bool:
        """Whether the keeper watches the board."""
        return self._link is not None and self._link.started

    # -- the end ----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Stop accepting requests; then sync, answer, snapshot and close."""
        at = now()
        self._settle(at)
        if self._link is not None:
            for report in self._link.stop(KEEPER_STOP_S):
                self._take(report)
            self._watermarks.settle(time.monotonic())
            self._lose_keeper()
        self._watermarks.sync_all()
        self._node.advance(now())
        self._node.close(now())
        self._port.send_answers()
        self._jobs.do_the_rest()
