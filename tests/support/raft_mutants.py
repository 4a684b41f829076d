"""Faults that a change could build into the Raft core, each of which the tests have to notice.

A mutant is a piece of source and what takes its place. `verdict` runs the tests of TESTS, and then simulated lives,
over a copy of the core with one mutant in it, in a process of its own: it says which of them failed first, or `alive`.
etcd's vectors are not needed for that.

`python -m support.raft_mutants [NAME ...]` (with `tests` on the path) judges some or all.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock.broker
import pytest
from support.sources import ROOT

LIVES = 60
CPU_SECONDS = 60  # a mutant that runs for ever is noticed too
TESTS = ("changes", "election", "quorum", "reads", "ready", "replication", "snapshots")


@dataclass(frozen=True)
class Mutant:
    """One fault: in this module, `old` becomes `new`."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = [
    # quorums
    Mutant("a minority commits", "quorum", "(len(reached) - 1) // 2", "len(reached) // 2"),
    Mutant("either half commits", "quorum", "return min(committed(", "return max(committed("),
    Mutant(
        "one half elects", "quorum", "{result(incoming, votes), result(outgoing, votes)}", "{result(incoming, votes)}"
    ),
    Mutant("half of the votes wins", "quorum", "needed = len(voters) // 2 + 1", "needed = (len(voters) + 1) // 2"),
    # elections
    Mutant("votes for anyone", "election", "if free and state.log", "if state.log"),
    Mutant(
        "votes for any log",
        "election",
        "if free and state.log.up_to_date(message.index, message.log_term):",
        "if free:",
    ),
    Mutant("forgets its vote", "election", "            state.vote = message.sender\n", ""),
    Mutant("a term keeps the vote", "state", "            self.vote = NONE\n", ""),
    Mutant("only a longer log gets a vote", "log_view", "index) >= (self.last_term()", "index) > (self.last_term()"),
    Mutant("campaigns over a change", "election", " or state.log.has_unapplied_change(state.log.committed)", ""),
    Mutant("a learner campaigns", "state", "own is not None and not own.learner and", "own is not None and"),
    Mutant("campaigns while it installs", "state", " and self.log.unstable.snapshot is None", ""),
    Mutant("votes beside a leader", "core", "and not message.force and election.leased(state)", "and False"),
    Mutant("a transfer is no reason", "core", "and not message.force and election", "and election"),
    Mutant("asking raises the term", "core", "message.kind is Kind.PRE_VOTE or (message", "(message"),
    Mutant("counts a quorum for ever", "election", "        peer.active = node == state.node\n", "        pass\n"),
    Mutant("never counts its quorum", "core", "not election.hears_quorum(state)", "False"),
    Mutant("lower terms count", "core", "elif message.term < state.term:", "elif message.term < 0:"),
    Mutant(
        "left-behind nodes stay so",
        "core",
        "            state.send(Message(Kind.APPEND_ACK, message.sender))",
        "            pass",
    ),
    # replication
    Mutant("commits by counting old terms", "replication", "reached >= state.own_from and", ""),
    Mutant(
        "commits what it was not sent", "replication", "min(message.commit, agreed)", "min(message.commit, log.last())"
    ),
    Mutant("takes any append", "log_view", "if not self.has(index, term):", "if False:"),
    Mutant("appends always cut", "log_view", "if not self.has(entry.index, entry.term):", "if True:"),
    Mutant("replaces what is committed", "log_view", "if entries[0].index <= self.committed:", "if False:"),
    Mutant("commits what it lacks", "log_view", "if index > self.last():\n", "if False:\n"),
    Mutant(
        "counts itself before the write",
        "proposals",
        "    state.send(Message(Kind.APPEND_ACK, state.node, index=entries[-1].index))",
        "    state.peers[state.node].acknowledged(entries[-1].index)",
    ),
    Mutant("sends to the paused", "replication", "if peer.blocked:", "if False:"),
    Mutant("falls below the match", "progress", "max(min(index, hint + 1), self.match + 1)", "min(index, hint + 1)"),
    Mutant(
        "believes late refusals",
        "progress",
        "if index <= self.match:\n                return False",
        "if False:\n                return False",
    ),
    Mutant("believes any refusal", "progress", "if self.next - 1 != index:", "if False:"),
    Mutant(
        "the match goes back",
        "progress",
        "        if index <= self.match:\n            return False\n        self.match",
        "        self.match",
    ),
    Mutant("no window of messages", "inflight", "len(self._sent) >= self._max_messages or ", ""),
    Mutant("no window of bytes", "inflight", " or self._sent_bytes >= self._max_bytes", ""),
    Mutant("the window frees late", "inflight", "self._sent[0][0] <= index", "self._sent[0][0] < index"),
    Mutant("appends of any size", "replication", "state.options.max_append_bytes", "1 << 40"),
    Mutant("hints are ignored", "replication", "    if message.log_term > 0:", "    if False:"),
    Mutant(
        "heartbeats commit too much",
        "heartbeats",
        "commit = min(peer.match, state.log.committed)",
        "commit = state.log.committed",
    ),
    Mutant("heartbeats wake nothing", "heartbeats", "    peer.paused = False\n", ""),
    # writing and applying
    Mutant(
        "applies what is not written",
        "log_view",
        "else min(self.committed, self.unstable.offset - 1)",
        "else self.committed",
    ),
    Mutant("applies below a snapshot", "log_view", " and self.unstable.snapshot is None and", " and"),
    Mutant("applies without a bound", "log_view", "self._max_applying - self.applying_bytes)", "1 << 40)"),
    Mutant("a write counts for any term", "unstable", " or self.term(index) != term", ""),
    Mutant("an old write counts", "core", "if message.index and message.term == state.term:", "if message.index:"),
    Mutant("replaced entries are not written", "unstable", "            self.begun = min(self.begun, first)\n", ""),
    Mutant("a new term is not held", "ready", "ready.hold = promise.term != before.term or", "ready.hold ="),
    Mutant("a new vote is not held", "ready", " or promise.vote != before.vote", ""),
    Mutant("entries are not synced", "ready", "ready.hold or bool(ready.entries)", "ready.hold"),
    Mutant(
        "a vote leaves before the write",
        "state",
        "(Kind.APPEND_ACK, Kind.VOTE_ACK, Kind.PRE_VOTE_ACK)",
        "(Kind.APPEND_ACK, Kind.PRE_VOTE_ACK)",
    ),
    Mutant("an acknowledgement leaves early", "state", "(Kind.APPEND_ACK, Kind.VOTE_ACK,", "(Kind.VOTE_ACK,"),
    Mutant("opens without the commit", "log_view", "self.committed = max(commit, base)", "self.committed = base"),
    Mutant("opens below its snapshot", "log_view", "self.committed = max(commit, base)", "self.committed = commit"),
    Mutant("opens in an old term", "node", "if last_term > kept.term:", "if False:"),
    # reads
    Mutant("reads before the first commit", "reads", "    if not state.committed_in_term():", "    if False:"),
    Mutant(
        "reads without a quorum", "read_rounds", "done = jointly_committed(", "done = self.number or jointly_committed("
    ),
    Mutant("a round never closes", "reads", "    state.reads.close()\n", "    pass\n"),
    Mutant("each read has a round", "read_rounds", "begins = not self._open", "begins = True"),
    Mutant(
        "reads outlive the lead",
        "state",
        "        self.reads = ReadRounds()\n",
        "        self.reads = getattr(self, 'reads', None) or ReadRounds()\n",
    ),
    # changes and transfers
    Mutant("two changes in flight", "changes", "if state.pending_change > state.log.applied:", "if False:"),
    Mutant(
        "inherited changes are forgotten",
        "election",
        "    state.pending_change = state.log.last()",
        "    state.pending_change = 0",
    ),
    Mutant("a leader is removed", "changes", "if state.node not in after.voters:", "if False:"),
    Mutant("a removed leader goes on", "changes", "if state.options.step_down_on_removal:", "if False:"),
    Mutant("joint for ever", "changes", '        propose(state, b"")\n', "        pass\n"),
    Mutant(
        "two voters at once",
        "membership",
        "len(before.voters ^ after.voters) > 1",
        "len(before.voters ^ after.voters) > 2",
    ),
    Mutant("demoted voters are lost", "membership", "before.learners | before.learners_next", "before.learners"),
    Mutant("proposes while it hands over", "proposals", " or state.transferee != NONE", ""),
    Mutant("hands over for ever", "core", "        transfer.end(state)\n", ""),
    Mutant("hands over to a lagging voter", "transfer", " or state.peers[node].match != state.log.last()", ""),
    Mutant(
        "no bound of what is uncommitted",
        "proposals",
        "    if not _fits(state, size + ENTRY_OVERHEAD):",
        "    if False:",
    ),
    # snapshots
    Mutant("installs an old snapshot", "snapshots", "if snapshot.index <= state.log.committed:", "if False:"),
    Mutant("installs over what it has", "snapshots", "if state.log.has(snapshot.index, snapshot.term):", "if False:"),
    Mutant("installs what does not name it", "snapshots", "if state.node not in configuration.members():", "if False:"),
    Mutant("sends old snapshots", "snapshots", "max(state.last_change, state.log.first() - 1)", "0"),
    Mutant("snapshots for the silent", "snapshots", "if not peer.active:", "if False:"),
    Mutant("a report changes nothing", "snapshots", "        peer.probe()\n", ""),
    Mutant("a failed snapshot counts", "snapshots", "if not installed:", "if False:"),
    Mutant("any acknowledgement ends the wait", "replication", "elif peer.match + 1 >= state.log.first():", "else:"),
]


def verdict(mutant: Mutant) -> str:
    """What noticed the mutant, or `alive`. Forks: for a process that has no threads."""
    with tempfile.TemporaryDirectory() as folder:
        core = Path(folder, "raft")
        shutil.copytree(ROOT / "broker" / "raft", core, ignore=shutil.ignore_patterns("__pycache__"))
        module = core / f"{mutant.module}.py"
        source = module.read_text()
        assert source.count(mutant.old) == 1, f"{mutant.name}: {source.count(mutant.old)} places in {mutant.module}"
        module.write_text(source.replace(mutant.old, mutant.new))
        said = Path(folder, "said")
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            said.write_text(judge(folder))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return said.read_text() if status == 0 else f"ended with {status}"


def judge(folder: str) -> str:
    """In the process of a mutant: take its core, run the tests, then the lives."""
    for name in [name for name in sys.modules if name.startswith("penstock.broker.raft")]:
        del sys.modules[name]
    penstock.broker.__path__.insert(0, folder)
    for name in TESTS:
        if failed := failing(ROOT / "tests" / "broker" / "raft" / f"test_{name}.py"):
            return failed
    life = importlib.import_module("support.raft_simulation").Life
    for seed in range(LIVES):
        try:
            life(seed).run()
        except Exception as wrong:
            return f"life {seed}: {(str(wrong) or repr(wrong)).splitlines()[0]}"
    return "alive"


def failing(path: Path) -> str:
    """The first test of a file that fails; empty when none does."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, test in vars(module).items():
        for arguments in cases(test) if name.startswith("test_") else ():
            try:
                test(**arguments)
            except (Exception, pytest.fail.Exception) as wrong:
                return f"{name}: {type(wrong).__name__}"
    return ""


def cases(test: Callable[..., None]) -> list[dict[str, Any]]:
    """The arguments that a test is run with."""
    for mark in getattr(test, "pytestmark", ()):
        names = [mark.args[0]] if isinstance(mark.args[0], str) else mark.args[0]
        names = [name.strip() for one in names for name in one.split(",")]
        return [dict(zip(names, row if len(names) > 1 else [row], strict=True)) for row in mark.args[1]]
    return [dict.fromkeys(inspect.signature(test).parameters, 1)]  # the fixture `seed`


def main(names: list[str]) -> None:
    """Print a verdict for each mutant of these names, or for all."""
    for mutant in MUTANTS:
        if not names or mutant.name in names:
            print(f"{mutant.name}: {verdict(mutant)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
