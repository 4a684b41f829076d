"""etcd's own vectors: interactions with the full expected trace, quorums, changes of the configuration.

They are in a folder `shared/raft-vectors` beside the project's root, or where PENSTOCK_RAFT_VECTORS says, and not part
of the project; without them these tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock.broker.raft import membership, quorum
from penstock.broker.raft.errors import Unfit
from penstock.broker.raft.inflight import Inflight
from penstock.broker.raft.membership import Configuration
from penstock.broker.raft.progress import PeerProgress
from support import raft_text
from support.raft_interaction import Interaction
from support.raft_traces import Block, differences
from support.sources import ROOT

FOLDER = Path(os.environ.get("PENSTOCK_RAFT_VECTORS") or ROOT.parent / "shared" / "raft-vectors")
MISSING = f"{FOLDER.name} is not beside the project; PENSTOCK_RAFT_VECTORS names the folder of etcd-io/raft's vectors"
RESULTS = {quorum.Result.PENDING: "VotePending", quorum.Result.LOST: "VoteLost", quorum.Result.WON: "VoteWon"}
REFUSALS = {
    "a joint configuration has to be left first": "can't apply simple config change in joint config",
    "changing several voters needs a joint configuration": "more than one voter changed without entering joint config",
    "the configuration is joint already": "config is already joint",
    "a configuration without voters has no majority that could join": "can't make a zero-voter config joint",
    "the configuration is not joint": "can't leave a non-joint config",
    "no voter would be left": "removed all voters",
}


def files(folder: str) -> list[object]:
    found = sorted((FOLDER / folder).glob("*.txt"))
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip(reason=MISSING), id="missing")]
    return [pytest.param(path, id=path.stem) for path in found]


@pytest.mark.parametrize("path", files("interaction"))
def test_nodes_interact_as_in_the_vectors(path):
    assert differences(path.read_text(), Interaction().run) == []


@pytest.mark.parametrize("path", files("quorum"))
def test_quorums_are_those_of_the_vectors(path):
    assert differences(path.read_text(), quorum_of) == []


@pytest.mark.parametrize("path", files("confchange"))
def test_configurations_change_as_in_the_vectors(path):
    assert differences(path.read_text(), Changes().run) == []


def test_a_wrong_answer_of_a_vector_is_noticed():
    assert differences("vote cfg=(1) votes=(y)\n----\nVoteLost\n", quorum_of)


def quorum_of(block: Block) -> str:
    """How far a quorum is, or what it voted, with the bars that the vectors draw."""
    named = block.named()
    incoming = [int(one) for one in named.get("cfg", [])]
    outgoing = [int(one) for one in named.get("cfgj", []) if one != "zero"]
    voters = list(dict.fromkeys(incoming + outgoing))
    said = dict(zip(voters, named.get("idx", named.get("votes", [])), strict=True))
    known = {voter: value for voter, value in said.items() if value != "_"}
    if block.command == "vote":
        votes = {voter: value == "y" for voter, value in known.items()}
        assert quorum.joint_result(incoming, outgoing, votes) is quorum.joint_result(outgoing, incoming, votes)
        return RESULTS[quorum.joint_result(incoming, outgoing, votes)]
    indexes = {voter: int(value) for voter, value in known.items()}

    def index_of(voter: int) -> int:
        return indexes.get(voter, 0)

    reached = quorum.jointly_committed(incoming, outgoing, index_of)
    assert reached == quorum.jointly_committed(outgoing, incoming, index_of)
    assert reached == quorum.jointly_committed(incoming, outgoing or incoming, index_of)
    number = "∞" if reached == quorum.EVERYTHING else str(reached)
    return drawn(sorted(voters), indexes) + number


def drawn(voters: list[int], indexes: dict[int, int]) -> str:
    if not voters:
        return "<empty majority quorum>"
    count = len(voters)
    lines = [" " * count + "    idx"]
    for voter in voters:
        index = indexes.get(voter, 0)
        bar = sum(indexes.get(other, 0) < index for other in voters)
        head = "x" * bar + ">" + " " * (count - bar) if voter in indexes else "?" + " " * count
        lines.append(f"{head} {index:5d}    (id={voter:x})")
    return "\n".join(lines) + "\n"


class Changes:
    """A configuration, and the progress of its members as a node would keep it."""

    def __init__(self) -> None:
        self.configuration = Configuration()
        self.peers: dict[int, PeerProgress] = {}
        self.last = 0

    def run(self, block: Block) -> str:
        steps = raft_text.steps_of(" ".join(block.input).split())
        try:
            if block.command == "simple":
                after = membership.simply(self.configuration, steps)
            elif block.command == "enter-joint":
                auto = block.named().get("autoleave") == ["true"]
                after = membership.joined(self.configuration, steps, auto_leave=auto)
            else:
                after = membership.left(self.configuration)
        except Unfit as unfit:
            return REFUSALS[str(unfit)]
        else:
            return self._configured(after)
        finally:
            self.last += 1

    def _configured(self, after: Configuration) -> str:
        before, self.configuration = self.peers, after
        self.peers = {}
        for node in after.members():
            fresh = PeerProgress(max(self.last, 1), Inflight(10, 1 << 20), learner=False, active=True)
            self.peers[node] = before.get(node, fresh)
            self.peers[node].learner = node in after.learners
        texts = (f"{node}: {raft_text.progress_text(peer)}" for node, peer in self.peers.items())
        return "\n".join((raft_text.configuration_text(after), *texts))
