"""How traces show what a Raft node says: the notation of etcd's vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.broker.raft.membership import Configuration
from penstock.broker.raft.messages import (
    Change,
    ChangeStep,
    ConfState,
    Entry,
    EntryKind,
    Kind,
    Message,
    Operation,
    Promise,
    Snapshot,
    Transition,
)
from penstock.broker.raft.progress import FollowerPace, PeerProgress
from penstock.broker.raft.ready import Ready
from penstock.broker.raft.state import Role

KINDS = {
    Kind.APPEND: "MsgApp",
    Kind.APPEND_ACK: "MsgAppResp",
    Kind.HEARTBEAT: "MsgHeartbeat",
    Kind.HEARTBEAT_ACK: "MsgHeartbeatResp",
    Kind.PRE_VOTE: "MsgPreVote",
    Kind.PRE_VOTE_ACK: "MsgPreVoteResp",
    Kind.VOTE: "MsgVote",
    Kind.VOTE_ACK: "MsgVoteResp",
    Kind.SNAPSHOT: "MsgSnap",
    Kind.CAMPAIGN_NOW: "MsgTimeoutNow",
    Kind.READ: "MsgReadIndex",
    Kind.READ_ACK: "MsgReadIndexResp",
    Kind.STORED: "MsgStorageAppendResp",
    Kind.APPLIED: "MsgStorageApplyResp",
}
ROLES = {
    Role.FOLLOWER: "StateFollower",
    Role.PRE_CANDIDATE: "StatePreCandidate",
    Role.CANDIDATE: "StateCandidate",
    Role.LEADER: "StateLeader",
}
PACES = {
    FollowerPace.PROBE: "StateProbe",
    FollowerPace.REPLICATE: "StateReplicate",
    FollowerPace.SNAPSHOT: "StateSnapshot",
}
LETTERS = {"v": Operation.VOTER, "l": Operation.LEARNER, "r": Operation.REMOVE}
LETTER_OF = {operation: letter for letter, operation in LETTERS.items()}
TRANSITIONS = {"auto": Transition.AUTO, "implicit": Transition.IMPLICIT, "explicit": Transition.EXPLICIT}

# A change as the data of an entry. Its first word is the kind of entry that etcd would make of it.


def change_data(change: Change, *, simple: bool) -> bytes:
    name = "EntryConfChange" if simple else "EntryConfChangeV2"
    return " ".join((name, str(change.transition.value), *steps_text(change.steps))).encode()


def change_of(data: bytes | memoryview) -> Change:
    if not data:
        return Change()
    _, transition, *steps = bytes(data).decode().split()
    return Change(steps_of(steps), Transition(int(transition)))


def steps_of(words: Iterable[str]) -> tuple[ChangeStep, ...]:
    """The steps of a change; `u`, which changes nothing, is left out."""
    return tuple(ChangeStep(LETTERS[word[0]], int(word[1:])) for word in words if word[0] != "u")


def steps_text(steps: Iterable[ChangeStep]) -> list[str]:
    return [f"{LETTER_OF[step.operation]}{step.node}" for step in steps]


def ids(nodes: Iterable[int]) -> str:
    return "(" + " ".join(map(str, sorted(nodes))) + ")"


def configuration_text(configuration: Configuration) -> str:
    text = f"voters={ids(configuration.voters)}"
    if configuration.outgoing:
        text += f"&&{ids(configuration.outgoing)}"
    if configuration.learners:
        text += f" learners={ids(configuration.learners)}"
    if configuration.learners_next:
        text += f" learners_next={ids(configuration.learners_next)}"
    return text + " autoleave" * configuration.auto_leave


def progress_text(peer: PeerProgress) -> str:
    text = f"{PACES[peer.pace]} match={peer.match} next={peer.next}" + " learner" * peer.learner
    text += " paused" * peer.blocked
    if peer.pending_snapshot:
        text += f" pendingSnap={peer.pending_snapshot}"
    text += " inactive" * (not peer.active)
    if len(peer.inflight):
        text += f" inflight={len(peer.inflight)}" + "[full]" * peer.inflight.full
    return text


def promise_text(promise: Promise) -> str:
    vote = f" Vote:{promise.vote}" if promise.vote else ""
    return f"Term:{promise.term}{vote} Commit:{promise.commit}"


def entry_text(entry: Entry) -> str:
    text = f"{entry.term}/{entry.index} "
    if entry.kind is EntryKind.CHANGE:
        name, _, *steps = (bytes(entry.data) or b"EntryConfChangeV2 0").decode().split()
        return " ".join((text + name, *steps))
    return text + f'EntryNormal "{bytes(entry.data).decode()}"'


def snapshot_text(snapshot: Snapshot) -> str:
    return f"Index:{snapshot.index} Term:{snapshot.term} ConfState:{members_text(snapshot.configuration)}"


def members_text(state: ConfState) -> str:
    def many(nodes: tuple[int, ...]) -> str:
        return f"[{' '.join(map(str, nodes))}]"

    return (
        f"Voters:{many(state.voters)} VotersOutgoing:{many(state.outgoing)} Learners:{many(state.learners)} "
        f"LearnersNext:{many(state.learners_next)} AutoLeave:{str(state.auto_leave).lower()}"
    )


def message_text(message: Message) -> str:
    sender = {Kind.STORED: "AppendThread", Kind.APPLIED: "ApplyThread"}.get(message.kind, str(message.sender))
    text = f"{sender}->{message.to} {KINDS[message.kind]} Term:{message.term} Log:{message.log_term}/{message.index}"
    if message.reject:
        text += f" Rejected (Hint: {message.hint})"
    if message.commit:
        text += f" Commit:{message.commit}"
    text += entries_text(message.entries)
    if message.snapshot and message.kind is Kind.SNAPSHOT:
        text += f"\n  Snapshot: {snapshot_text(message.snapshot)}"
    return text


def entries_text(entries: list[Entry]) -> str:
    if len(entries) == 1:
        return f" Entries:[{entry_text(entries[0])}]"
    return "".join((" Entries:[", *(f"\n  {entry_text(entry)}" for entry in entries), "\n]")) if entries else ""


def write_text(node: int, ready: Ready) -> str:
    """What a Ready has for the thread that appends, without its responses."""
    promise = ready.promise or Promise()
    text = f"{node}->AppendThread MsgStorageAppend Term:{promise.term} Log:0/0"
    if promise.commit:
        text += f" Commit:{promise.commit}"
    if promise.vote:
        text += f" Vote:{promise.vote}"
    text += entries_text(ready.entries)
    if ready.snapshot:
        text += f"\n  Snapshot: {snapshot_text(ready.snapshot)}"
    return text


def apply_text(node: int, ready: Ready) -> str:
    return f"{node}->ApplyThread MsgStorageApply Term:0 Log:0/0{entries_text(ready.committed)}"


def with_responses(text: str, responses: list[Message]) -> str:
    lines = [f"  {line}" for message in responses for line in message_text(message).splitlines()]
    return "\n".join((f"{text} Responses:[", *lines, "]")) if responses else text


def ready_text(node: int, ready: Ready, *, asynchronous: bool) -> str:
    lines = list(_ready_lines(node, ready, asynchronous=asynchronous))
    if not lines:
        return "<empty Ready>"
    return "\n".join((f"Ready MustSync={str(ready.must_sync).lower()}:", *lines))


def _ready_lines(node: int, ready: Ready, *, asynchronous: bool) -> Iterator[str]:
    if ready.standing:
        yield f"Lead:{ready.standing.leader} State:{ROLES[ready.standing.role]}"
    if ready.promise:
        yield f"HardState {promise_text(ready.promise)}"
    if ready.reads:
        yield "ReadStates " + " ".join(f"{bytes(read.context).decode()}@{read.index}" for read in ready.reads)
    if ready.entries:
        yield from ("Entries:", *map(entry_text, ready.entries))
    if ready.snapshot:
        yield f"Snapshot {snapshot_text(ready.snapshot)}"
    if ready.committed:
        yield from ("CommittedEntries:", *map(entry_text, ready.committed))
    messages = [message_text(message) for message in ready.messages]
    if asynchronous:
        if ready.responses or ready.promise or ready.entries or ready.snapshot:
            messages.append(with_responses(write_text(node, ready), ready.responses))
        if ready.committed:
            messages.append(with_responses(apply_text(node, ready), [ready.applied] if ready.applied else []))
    else:
        messages += [message_text(message) for message in ready.responses]
    if messages:
        yield from ("Messages:", *messages)
