"""The environment of Raft traces: nodes, their logs, and messages on their way, driven by the commands of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.broker.raft import changes
from penstock.broker.raft.errors import Unfit
from penstock.broker.raft.log_view import UNBOUNDED
from penstock.broker.raft.messages import Change, ConfState, Entry, EntryKind, Message, Promise, Snapshot
from penstock.broker.raft.node import FROM_MEMBERS, RaftNode
from penstock.broker.raft.ready import Ready
from penstock.broker.raft.state import RaftOptions, RaftState, Role
from support import raft_text
from support.raft_log import MemoryLog
from support.raft_traces import Block

ELECTION_TICKS = 3
STRANGER = "raft: cannot step as peer not found"
DROPPED = "raft proposal dropped"


@dataclass
class Place:
    """One node and what is around it."""

    id: int
    node: RaftNode
    log: MemoryLog
    options: RaftOptions
    appending: list[Ready] = field(default_factory=list)
    applying: list[Ready] = field(default_factory=list)

    @property
    def state(self) -> RaftState:
        return self.node._state


class Interaction:
    """What one file drives."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self.messages: list[Message] = []
        self.lines: list[str] = []
        self.quiet = False

    def run(self, block: Block) -> str:
        """Carry out a command; what it answers."""
        self.lines = []
        quiet = self.quiet
        if "log-level" in block.named():
            self.quiet = block.named()["log-level"] == ["none"]
        getattr(self, "do_" + block.command.replace("-", "_"))(block)
        silent = self.quiet
        if "log-level" in block.named():
            self.quiet = quiet
        return "ok" if silent else "\n".join(self.lines) or "ok"

    # --- commands

    def do_log_level(self, block: Block) -> None:
        self.quiet = block.plain() == ["none"]

    def do_add_nodes(self, block: Block) -> None:
        named = {name: [int(one) if one.isdigit() else one == "true" for one in values]
                 for name, values in block.named().items()}  # fmt: skip
        index = int(named.get("index", [0])[0])
        members = ConfState(tuple(named.get("voters", ())), tuple(named.get("learners", ())))
        for _ in range(int(block.plain()[0])):
            node = len(self.places) + 1
            options = RaftOptions(
                node=node,
                draw_timeout=lambda: ELECTION_TICKS,
                election_ticks=ELECTION_TICKS,
                applied=index,
                pre_vote=bool(named.get("prevote", [False])[0]),
                check_quorum=bool(named.get("checkquorum", [False])[0]),
                step_down_on_removal=bool(named.get("step-down-on-removal", [False])[0]),
                asynchronous=bool(named.get("async-storage-writes", [False])[0]),
                max_inflight=int(named.get("inflight", [UNBOUNDED])[0]),
                max_applying_bytes=int(named.get("max-applying-bytes", [UNBOUNDED])[0]),
                max_append_bytes=int(named.get("max-append-bytes", [UNBOUNDED])[0]),
            )
            log = MemoryLog(Snapshot(index, 1, members) if index else None)
            log.promise = Promise(int(named.get("term", [0])[0]))
            self.places[node] = Place(node, RaftNode(options, log), log, options)

    def do_campaign(self, block: Block) -> None:
        self._place(block).node.campaign()

    def do_compact(self, block: Block) -> None:
        self._place(block).log.compact(int(block.plain()[1]))
        self.do_raft_log(block)

    def do_deliver_msgs(self, block: Block) -> None:
        chosen = [(int(node), False) for node in block.plain()]
        chosen += [(int(node), True) for node in block.named().get("drop", [])]
        if not sum(self.deliver(node, drop=drop) for node, drop in chosen):
            self.lines.append("no messages")

    def do_process_ready(self, block: Block) -> None:
        self._each(block, "handling Ready", self.process_ready)

    def do_process_append_thread(self, block: Block) -> None:
        self._each(block, "processing append thread", self.process_append)

    def do_process_apply_thread(self, block: Block) -> None:
        self._each(block, "processing apply thread", self.process_apply)

    def do_raft_log(self, block: Block) -> None:
        log = self._place(block).log
        if log.stored:
            self.lines += map(raft_text.entry_text, log.stored)
        else:
            self.lines.append(f"log is empty: first index={log.first_index()}, last index={log.last_index()}")

    def do_raft_state(self, block: Block) -> None:
        for place in self.places.values():
            state = place.state
            kind = "Voter" if place.id in state.configuration.all_voters() else "Non-Voter"
            role = raft_text.ROLES[state.role]
            self.lines.append(f"{place.id}: {role} ({kind}) Term:{state.term} Lead:{state.leader}")

    def do_set_randomized_election_timeout(self, block: Block) -> None:
        self._place(block).state.timeout = int(block.named()["timeout"][0])

    def do_stabilize(self, block: Block) -> None:
        places = [self.places[int(one)] for one in block.plain()] or list(self.places.values())
        while sum(self._pass(places, *step) for step in self._steps()):
            pass

    def do_status(self, block: Block) -> None:
        state = self._place(block).state
        if state.role is Role.LEADER:
            self.lines += [f"{node}: {raft_text.progress_text(peer)}" for node, peer in state.peers.items()]

    def do_tick_election(self, block: Block) -> None:
        for _ in range(ELECTION_TICKS):
            self._place(block).node.tick()

    def do_tick_heartbeat(self, block: Block) -> None:
        self._place(block).node.tick()

    def do_transfer_leadership(self, block: Block) -> None:
        named = block.named()
        self.places[int(named["from"][0])].node.transfer(int(named["to"][0]))

    def do_forget_leader(self, block: Block) -> None:
        self._place(block).node.forget_leader()

    def do_propose(self, block: Block) -> None:
        if self._place(block).node.propose(block.plain()[1].encode()) is None:
            self.lines.append(DROPPED)

    def do_propose_conf_change(self, block: Block) -> None:
        """The vectors also remove a leader, which `RaftNode.propose_change` refuses."""
        named = block.named()
        transition = raft_text.TRANSITIONS[named.get("transition", ["auto"])[0]]
        change = Change(raft_text.steps_of(" ".join(block.input).split()), transition)
        data = raft_text.change_data(change, simple=named.get("v1") == ["true"])
        state = self._place(block).state
        why = changes.refusal(state, change)
        if why and "hand over" not in why:
            self.lines.append(why)
        elif changes.propose(state, data) is None:
            self.lines.append(DROPPED)

    def do_refusal(self, block: Block) -> None:
        change = Change(raft_text.steps_of(" ".join(block.input).split()))
        self.lines.append(self._place(block).node.refusal(change) or "none")

    def do_report_unreachable(self, block: Block) -> None:
        self._place(block).node.report_unreachable(int(block.plain()[1]))

    def do_report_snapshot(self, block: Block) -> None:
        installed = block.named()["installed"] == ["true"]
        self._place(block).node.report_snapshot(int(block.plain()[1]), installed=installed)

    def do_read(self, block: Block) -> None:
        if not self._place(block).node.read(block.plain()[1].encode()):
            self.lines.append("no leader")

    # --- steps

    def process_ready(self, place: Place) -> None:
        ready = place.node.ready()
        asynchronous = place.options.asynchronous
        self.lines += raft_text.ready_text(place.id, ready, asynchronous=asynchronous).splitlines()
        self.messages += ready.messages
        if asynchronous:
            if ready.responses or ready.promise or ready.entries or ready.snapshot:
                place.appending.append(ready)
            if ready.committed:
                place.applying.append(ready)
        else:
            self._write(place, ready)
            self._apply(place, ready.committed)
            self.messages += ready.responses
            place.node.advance()

    def process_append(self, place: Place) -> None:
        if not place.appending:
            self.lines.append("no append work to perform")
            return
        ready = place.appending.pop(0)
        self._processed(raft_text.write_text(place.id, ready), ready.responses)
        self._write(place, ready)

    def process_apply(self, place: Place) -> None:
        if not place.applying:
            self.lines.append("no apply work to perform")
            return
        ready = place.applying.pop(0)
        self._processed(raft_text.apply_text(place.id, ready), [ready.applied] if ready.applied else [])
        self._apply(place, ready.committed)

    def deliver(self, node: int, *, drop: bool = False) -> int:
        found = [message for message in self.messages if message.to == node and not (drop and local(message))]
        self.messages = [message for message in self.messages if not any(message is one for one in found)]
        for message in found:
            text = raft_text.message_text(message)
            self.lines += (f"dropped: {text}" if drop else text).splitlines()
            if not drop:
                self._step(self.places[node], message)
        return len(found)

    def _step(self, place: Place, message: Message) -> None:
        if local(message):
            place.node.settle(message)
        elif message.kind in FROM_MEMBERS and message.sender not in place.state.peers:
            self.lines.append(STRANGER)
        else:
            place.node.step(message)

    def _processed(self, work: str, responses: list[Message]) -> None:
        self.lines += ["Processing:", *work.splitlines(), "Responses:"]
        self.lines += [line for message in responses for line in raft_text.message_text(message).splitlines()]
        self.messages += responses

    def _write(self, place: Place, ready: Ready) -> None:
        if ready.promise:
            place.log.promise = ready.promise
        if ready.snapshot:
            place.log.install(ready.snapshot)
        place.log.append(ready.entries)

    def _apply(self, place: Place, entries: list[Entry]) -> None:
        for entry in entries:
            members = place.log.snapshots[-1].configuration if place.log.snapshots else ConfState()
            if entry.kind is EntryKind.CHANGE:
                try:
                    members = place.node.apply_change(raft_text.change_of(entry.data), entry.index)
                except Unfit as unfit:
                    self.lines.append(str(unfit))
            place.log.snapshots.append(Snapshot(entry.index, entry.term, members))

    # --- what commands share

    def _place(self, block: Block) -> Place:
        return self.places[int(block.plain()[0])]

    def _each(self, block: Block, what: str, do) -> None:
        nodes = [int(one) for one in block.plain()]
        for node in nodes:
            if len(nodes) > 1:
                with self._indented(f"> {node} {what}"):
                    do(self.places[node])
            else:
                do(self.places[node])

    def _steps(self):
        yield "handling Ready", lambda place: place.node.has_ready(), self.process_ready
        yield "receiving messages", lambda place: self._waits(place.id), lambda place: self.deliver(place.id)
        yield "processing append thread", lambda place: place.appending, self._all_appends
        yield "processing apply thread", lambda place: place.applying, self._all_applies

    def _pass(self, places: list[Place], what: str, waits, do) -> bool:
        some = False
        for place in places:
            if waits(place):
                some = True
                with self._indented(f"> {place.id} {what}"):
                    do(place)
        return some

    def _waits(self, node: int) -> bool:
        return any(message.to == node for message in self.messages)

    def _all_appends(self, place: Place) -> None:
        while place.appending:
            self.process_append(place)

    def _all_applies(self, place: Place) -> None:
        while place.applying:
            self.process_apply(place)

    @contextmanager
    def _indented(self, heading: str) -> Iterator[None]:
        outer, self.lines = self.lines, []
        yield
        self.lines = [*outer, heading, *(f"  {line}" for line in self.lines)]


def local(message: Message) -> bool:
    """A message of a node to itself, or of a thread of its."""
    return message.sender in (message.to, 0)
