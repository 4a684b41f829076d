"""One connection of a RESP client: commands in, replies out, in order and within bounds.

Idea: what arrives is parsed at once, and its commands run one after the other; neighbours that append to one topic
are a run, and run as one (command.py). Records that are on their way leave a Ticket among the replies, so that the
commands behind them can run; whatever has to ask the broker holds the connection until it is answered, and begins when
everything before it is. While the connection is held, or its peer does not read, nothing is read from it; other
connections do not notice.

Contract: replies leave in the order of commands. Memory: what one read brings, one command that is not complete, and
the replies of `OUT_BYTES_MAX` and one command, also while they wait for a record before them. A peer that stays in the
middle of a command, does not read its replies, or does not authenticate is cut off by `overdue`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import Any

from ...broker.rights import ANYONE, Principal
from ...clients.connection.request_ids import context_of
from ...storage.errors import Error
from ..appending import Told
from ..connections import Connections, has_closed
from ..holding import TOO_MUCH
from ..lingering import linger
from . import replies
from .command import Command, Door
from .parsing import ARGUMENT_BYTES, PORTION, RequestLimits
from .refusals import CommandRefused, sentence_of, wrong_arity
from .requests import RequestReader
from .runs import CommandQueue, Run
from .tickets import Tickets
from .transactions import QueuedCommands

log = logging.getLogger("penstock.gateway")

BEFORE_AUTH = RequestLimits(arguments=16, command_bytes=16 << 10)
ARGUMENTS_MAX = 8_192

AT_ONCE = 64
"""Arguments that the strict parser looks at when they arrive; further ones wait for a turn of the loop."""

COMMANDS_A_TURN = 256
"""Commands before what else there is waits for a turn of the loop."""

CHEAPER_IN_RUNS = 16
"""So many commands of a run take as long as one that is alone."""

OUT_BYTES_MAX = 1 << 20
"""Replies that wait for a peer to read before its commands wait."""

COMMAND_BYTES = 3 * ARGUMENT_BYTES
"""What a command that waits takes about."""

FLUSH_BYTES = 64 << 10
"""Replies are handed to the socket when there are so many, and whenever there are no more commands."""

AUTH_S = 10.0
"""To authenticate, where there are users."""

COMMAND_S = 120.0
"""From the first byte of a command to its last one."""

READ_S = 60.0
"""For a peer to read some of the replies that wait for it."""

NEVER = float("inf")

NAME_SHOWN = 100
"""Characters of the name of a connection that its requests have in logs."""

NONE = Run([], count=0)

NO_AUTH = replies.error("NOAUTH Authentication required.")


class RespConnection(asyncio.Protocol):
    """See the module. `seconds` and the like are what handlers see of it (command.py, RespSession).

    Invariant: `_replies` are those of commands in order; behind a Ticket that is not settled none is sent. Commands run
    only while there is no `_task` and the peer reads.
    """

    __slots__ = (
        "__weakref__", "_answered", "_began", "_blocked", "_commands", "_connections", "_cut_at", "_had_turn",
        "_is_full", "_last", "_limits", "_number", "_out_bytes", "_read_by", "_reading", "_reads", "_replies",
        "_requests", "_run_now", "_sends_on", "_table", "_task", "_transaction", "_transport", "_unpaid", "_unread",
        "door", "executing", "id", "library", "name", "peer", "principal", "version", "wrong",
    )  # fmt: skip

    def __init__(
        self, door: Door, id_: int, requests: RequestReader, command_bytes: int,
        connections: Connections[RespConnection],
    ) -> None:  # fmt: skip
        """It says to `connections` when it is open, and when it is not any more."""
        self.door = door
        self.id = id_
        self.peer = ""
        self.wrong = 0
        self.library: tuple[bytes, bytes] = (b"", b"")
        self.executing = 0
        self._blocked = False
        self._unpaid = 0  # bytes that no command was charged for yet
        self.version, self.name = 2, b""
        self.principal: Principal | None = None
        self._table = door.table
        self._requests = requests
        self._limits = RequestLimits(arguments=ARGUMENTS_MAX, command_bytes=command_bytes)
        self._connections = connections
        self._began = time.monotonic()
        self._commands = CommandQueue()
        self._run_now = NONE  # the commands that run
        self._number = 1  # of the first of them
        self._replies: list[Any] = []
        self._reading = 0  # bytes of the reply to come
        self._out_bytes = 0  # of replies, those of tickets left out
        self._is_full = False  # more of them wait than commands may go on for
        self._had_turn = False  # commands wait for another one
        self._transaction = QueuedCommands(command_bytes)
        self._task: asyncio.Task[None] | None = None
        self._answered: asyncio.Future[None] | None = None  # waits until no reply waits
        self._reads = True
        self._unread = False  # the peer does not read
        self._last = False  # take no further command
        self._sends_on = False  # the peer may send more than is read
        self._cut_at = NEVER  # when the peer is to have authenticated, or completed a command
        self._read_by = NEVER  # when it is to have read some of what waits for it
        self._transport: Any = None

    @property
    def teller(self) -> Told:
        """Itself; an attribute of it would keep what the peer did not read until the collector comes."""
        return self

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(OUT_BYTES_MAX)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) and name else "unix"
        self._begin()
        self._connections.opened(self)

    def data_received(self, data: bytes) -> None:
        self._unpaid += len(data)
        self._commands.add(self._requests.feed(data, AT_ONCE))
        if self._requests.more:
            self._wait_for_turn()
        self._run()
        self._time_command()

    def _wait_for_turn(self) -> None:
        """Go on parsing, when it is this connection's turn."""
        turns = self.door.turns
        if turns.take():
            self._parse_on()
        else:
            turns.wait(self._parse_on)

    def _parse_on(self) -> None:
        if self._transport.is_closing() or self._sends_on:
            return
        self._commands.add(self._requests.feed(b"", PORTION))
        if self._requests.more:
            self.door.turns.wait(self._parse_on)
        self._run()
        self._time_command()

    def _time_command(self) -> None:
        """Give the peer its time to complete a command, or take that away."""
        if self.principal is not None:
            if self._requests.between_commands:
                self._cut_at = NEVER
            elif self._cut_at == NEVER:
                self._cut_at = time.monotonic() + COMMAND_S

    def eof_received(self) -> bool:
        self.drain()
        return True  # what is on its way is answered, for a peer that closed its sending half alone

    def connection_lost(self, exc: Exception | None) -> None:
        self._last = True
        self._commands.clear()
        self._replies.clear()
        self._out_bytes = 0  # records on their way may be settled yet, and what is held is counted then
        self._requests.forget()
        self._transaction.discard()
        if self._task is not None:
            self._task.cancel()
        self._connections.closed(self)
        self.door.held.holds(self, 0)
        if self.door.users is not None:
            self.door.users.took(self, self._unpaid)
            self.door.users.meters.lost(self)

    def pause_writing(self) -> None:
        self._unread, self._read_by = True, time.monotonic() + READ_S

    def resume_writing(self) -> None:
        self._unread, self._read_by = False, NEVER
        self._run()

    # -- from the door and from tickets ---------------------------------------------------------------------

    def overdue(self, now: float) -> bool:
        """Whether the peer has used up its time."""
        return now >= min(self._cut_at, self._read_by)

    def cut(self) -> None:
        """Close at once."""
        self._last = True
        self._transport.abort()

    def drain(self) -> None:
        """Close once everything that was received is answered. What waits for records finds none."""
        self._last, self._sends_on = True, False
        self._wait_no_more()
        self._run()

    def blocks(self, waits: bool) -> None:
        """See RespSession."""
        self._blocked = waits
        if self._last:
            self._wait_no_more()

    def look(self) -> None:
        """End the wait of a command whose peer has closed its end, where commands behind it hide that."""
        if self._blocked and not (self._reads or self._transport.is_closing()) and has_closed(self._transport):
            self._wait_no_more()

    def _wait_no_more(self) -> None:
        """End a command that waits for records: its peer sends nothing more, or the door closes."""
        if self._blocked and self._task is not None:
            self._task.cancel()

    def settled(self) -> None:
        """See Told: a batch with tickets of this connection is settled."""
        self._flush()
        self._finish()
        self.door.held.holds(self, self.held())
        if self._is_full:
            asyncio.get_running_loop().call_soon(self._run)  # later: this may be inside of a command

    def held(self) -> int:
        """See ByteHolder."""
        waiting = self._out_bytes + self._transport.get_write_buffer_size()
        return waiting + self._requests.held + self._transaction.size + COMMAND_BYTES * len(self._commands)

    def shed(self) -> bool:
        """See ByteHolder. One whose command runs stays, and that command is refused where it needs more."""
        if self._task is not None:
            return False
        log.warning("cut off %s: %s, and this connection held %d", self.peer, TOO_MUCH, self.held())
        self._commands.clear()
        self._requests.forget()
        if self._replies or self._transport.get_write_buffer_size():  # it does not read
            self.cut()
            return True
        self._last = self._sends_on = True
        self._reply(replies.error(f"ERR {TOO_MUCH}: this connection held the most"))
        self._flush()
        self._finish()
        return True

    # -- what handlers do (see RespSession) -----------------------------------------------------------------------

    def seconds(self) -> int:
        return int(time.monotonic() - self._began)

    def authenticated(self, principal: Principal) -> None:
        self.principal, self._cut_at = principal, NEVER
        self._requests.trust(self._limits)

    def hold(self, size: int) -> None:
        if not self.door.held.take(size):
            raise CommandRefused(f"{TOO_MUCH}: try again, or ask for fewer with COUNT")
        self._reading += size

    def reset(self) -> None:
        self.version, self.name = 2, b""
        self._transaction.discard()
        if self.principal is not None:  # the time of a stranger goes on
            self._begin()

    def close_after_replies(self) -> None:
        self._last = self._sends_on = True
        self._commands.clear()

    def _begin(self) -> None:
        """Be anyone, or have to authenticate."""
        if self.door.users is None:
            self.authenticated(ANYONE)
        else:
            self.principal, self._cut_at = None, time.monotonic() + AUTH_S

    # -- running commands -------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Run commands until one holds the connection, and send what can be sent."""
        commands, left = self._commands, 0 if self._had_turn else COMMANDS_A_TURN
        while commands and left > 0 and self._task is None and not self._unread and self._out_bytes <= OUT_BYTES_MAX:
            before = len(commands)
            self._execute()
            left -= 1 + max(before - len(commands), 0) // CHEAPER_IN_RUNS
            if self._out_bytes > FLUSH_BYTES:
                self._flush()
        if left <= 0 and not self._had_turn:
            self._had_turn = True
            self.door.turns.take()  # which this was
            self.door.turns.wait(self._run_on)
        self._is_full = self._out_bytes > OUT_BYTES_MAX
        if self._requests.error and not commands and self._task is None and not self._last:
            self._connections.refused.add("protocol")
            self._reply(replies.error(f"ERR {self._requests.error}"))
            self._last = self._sends_on = True
        self._flush()
        waits = commands or self._had_turn or self._unread or self._is_full
        self._read(not (waits or self._last or self._requests.more))
        self._finish()
        self.door.held.holds(self, self.held())

    def _run_on(self) -> None:
        """Run the commands that waited for a turn."""
        self._had_turn = False
        if not self._transport.is_closing():
            self._run()

    def _read(self, wanted: bool) -> None:
        """Read from the peer, or let it wait. One that has nothing to run is read, so that its end is noticed."""
        if wanted != self._reads and not self._transport.is_closing():
            self._reads = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _execute(self) -> None:
        """Run the next command, or begin to, and with it those that can run as one with it."""
        run = self._commands.take()
        row = self._table.get(run.head[0].decode("latin-1").upper())
        if run.count > 1 and not self._takes_runs(row):
            self._commands.put_back(run.commands())
            run = self._commands.take()
        self._run_now = run
        context = context_of(self._request_id) if self.name else None
        try:
            found = self._result(row, run) if context is None else context.run(self._result, row, run)
        except (CommandRefused, Error) as error:
            self._refuse(error)
        else:
            if inspect.iscoroutine(found):
                self._task = asyncio.get_running_loop().create_task(self._answer(found), context=context)
                self._task.add_done_callback(lambda _: found.close())  # also when it was cancelled before it began
                return
            self._keep(found)
        self._count_run()

    @property
    def _request_id(self) -> str:
        """Of the commands that run now, for logs: the name of the connection, and their number."""
        return f"{self.name[:NAME_SHOWN].decode() or self.peer}:{self._number}"

    def _takes_runs(self, row: Command | None) -> bool:
        """Whether commands of a row may run as one."""
        if row is None or row.shared is None or self.principal is None:
            return False
        return not self._transaction.takes(row.name)

    def _result(self, row: Command | None, run: Run) -> Any:
        """What the handler of a command returns. Raises CommandRefused, Error."""
        words = run.head
        if self.principal is None and (row is None or not row.before_auth):
            return replies.Encoded(NO_AUTH)
        if row is None:
            shown = words[0][:64].decode("utf-8", "replace")
            raise CommandRefused(f"unknown command '{shown}': HELP lists those that there are")
        if not row.fits(run.words):
            raise wrong_arity(row.name.lower())
        if self._transaction.takes(row.name):
            return self._transaction.queue(words)
        if row.group == "transactions":
            return self._transact(row.name)
        if row.shared is None:
            self._charge(row)
            return row.handler(self, words[1:])
        shared = row.shared(words)
        if run.count == 1:
            self._run_now = run = self._commands.take_with(run, shared)
        self._charge(row)
        return row.handler(self, words[1:shared], run.behind(shared))

    def _charge(self, row: Command) -> None:
        """Count the commands that are about to run, for a user with a quota. Raises Overloaded."""
        users, principal = self.door.users, self.principal
        if users is None or principal is None or row.before_auth:
            return
        meter = users.admit(self, principal)
        if meter is not None:
            meter.take(self._unpaid, time.monotonic(), self._run_now.count)
        self._unpaid = 0  # without a quota, too: one that comes later does not count what was before

    def _refuse(self, error: CommandRefused | Error) -> None:
        """Answer a command that was refused. Those of a run are to run alone where one of them may be to blame, and not
        where the broker could not do it now: each would wait for as long."""
        passes = isinstance(error, Error) and error.retry
        if self._run_now.count > 1 and not passes:
            self._commands.put_back(self._run_now.commands(), alone=True)
            self._run_now = NONE
            return
        self._transaction.refused()
        if self.name:
            log.info("request %s: %s", self._request_id, sentence_of(error))
        self._reply(replies.error(sentence_of(error)) * self._run_now.count)

    def _count_run(self) -> None:
        """Count down the commands of an EXEC, and be done with them."""
        self.executing = max(self.executing - self._run_now.count, 0)
        self._number += self._run_now.count
        self._run_now = NONE  # or an idle connection keeps what it sent last

    def _keep(self, found: Any) -> None:
        """Have what a command returned sent."""
        if isinstance(found, Tickets):
            self._replies += found
        else:
            self._reply(replies.encode(found, self.version))

    def _transact(self, name: str) -> Any:
        """MULTI, DISCARD, EXEC: the commands of a transaction run as if they came now, with one array around."""
        if name != "EXEC":
            return self._transaction.begin() if name == "MULTI" else self._transaction.give_up()
        queued = self._transaction.execute()
        self._commands.put_back(queued)
        self.executing = len(queued) + 1  # with this one
        return replies.Encoded(b"*%d\r\n" % len(queued))

    async def _answer(self, asking: Any) -> None:
        """Run what asks the broker, once everything before it is answered, and go on with the commands behind."""
        try:
            if self._replies:
                self._answered = asyncio.get_running_loop().create_future()
                await self._answered
            self._keep(await asking)
        except asyncio.CancelledError:
            if self._transport.is_closing():
                raise
            self._reply(replies.encode(replies.NULL_ARRAY, self.version))
        except (CommandRefused, Error) as error:
            self._refuse(error)
        except Exception as error:
            log.error("request %s failed inside the gateway", self._request_id, exc_info=error)
            self._reply(replies.error("ERR the gateway failed, its log says how") * self._run_now.count)
        finally:
            self._task = None
            self._count_run()
            self.door.held.give(self._reading)
            self._reading = 0
        self._flush()  # or the reply counts as one that waits, though the peer takes it
        self._run()

    # -- replies ----------------------------------------------------------------------------------------------

    def _reply(self, reply: bytes) -> None:
        self._unpaid += len(reply)
        self._replies.append(bytes(reply))
        self._out_bytes += len(reply)

    def _flush(self) -> None:
        """Send the replies before the first ticket that is not settled."""
        waiting, out = self._replies, list[bytes]()
        for head in waiting:
            if type(head) is bytes:
                out.append(head)
                self._out_bytes -= len(head)
            elif head.batch.settled:
                out.append(head.reply())
            else:
                break
        del waiting[: len(out)]
        if out:
            self._transport.write(b"".join(out))
        if not waiting and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _finish(self) -> None:
        """Close when that was to be done and everything is answered."""
        if not self._last or self._replies or self._task is not None or self._commands:
            return
        if self._requests.more and not self._sends_on:
            return
        if self._sends_on:
            self._cut_at = self._read_by = NEVER
            linger(self._transport, self)
        else:
            self._transport.close()
