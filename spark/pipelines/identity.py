"""The owner of a checkpoint and a target, so that a restart resumes its own work and never another pipeline's.

Idea: a pipeline gets a random id when its checkpoint is made. All its commits are numbered under that id, and its
target stores it too; so results are exactly once for as long as the two stay together, and a mismatch is an error
before anything is read, instead of duplicates.
Contract: `claim` is called with the lock of the checkpoint held. It writes nothing unless the work is new.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ...clients.descriptions import Topic
from ..errors import TargetInUse
from . import durable

OWN = "_penstock"
"""Below a target that is a directory: what is not data. Spark, Arrow and Delta skip names with an underscore."""

PIPELINE = "pipeline.json"


class PipelineIdentity(Struct, frozen=True):
    """One pipeline: its kind, what it reads (names to ids) and where its results go."""

    kind: str
    topics: dict[str, str]
    target: str
    id: str
    v: int = 1


def whole_topic(topic: Topic) -> str:
    """A topic as a target: one that is created again under its name is another."""
    return f"topic {topic.name} ({topic.id[:8]})"


def claim(checkpoint: Path, kind: str, topics: Mapping[str, str], target: str | Path) -> PipelineIdentity:
    """The pipeline of this checkpoint, made now if checkpoint and target are new.

    Args:
        target: where results go: a topic's name with its id, or a directory, which then says whose it is.

    Raises: TargetInUse when checkpoint or target are of other work.
    """
    wanted = PipelineIdentity(kind, dict(topics), str(target), uuid.uuid4().hex)
    found = durable.read(checkpoint / PIPELINE, PipelineIdentity)
    if found is not None:
        _check_checkpoint(checkpoint, found, wanted, target)
    if isinstance(target, Path):
        _check_target(target, found or wanted)
    if found is None:
        durable.write(checkpoint / PIPELINE, wanted)
    if isinstance(target, Path):
        durable.write(target / OWN / PIPELINE, found or wanted)
    return found or wanted


def _check_checkpoint(checkpoint: Path, found: PipelineIdentity, wanted: PipelineIdentity, target: str | Path) -> None:
    here = f"checkpoint {checkpoint} belongs to the {found.kind} of {listed(found)} into {found.target}"
    if (found.kind, found.topics.keys(), found.target) != (wanted.kind, wanted.topics.keys(), wanted.target):
        below = isinstance(target, Path) and checkpoint.is_relative_to(target)
        raise TargetInUse(f"{here}: name another {'directory' if below else 'checkpoint'}")
    again = [name for name in found.topics if found.topics[name] != wanted.topics[name]]
    if again:
        raise TargetInUse(
            f"{here}, and topic {again[0]} was deleted and created again since: begin with a new checkpoint and target"
        )


def _check_target(target: Path, wanted: PipelineIdentity) -> None:
    found = durable.read(target / OWN / PIPELINE, PipelineIdentity)
    if found is not None and found.id != wanted.id:
        raise TargetInUse(
            f"{target} holds the {found.kind} of {listed(found)}, and {wanted.kind} of {listed(wanted)} is other work: "
            "name another directory, or the topics and the checkpoint that it was written with"
        )
    if found is None and any(path.name != OWN for path in target.glob("*")):
        raise TargetInUse(f"{target} holds files that no {wanted.kind} wrote: name an empty directory")


def listed(identity: PipelineIdentity) -> str:
    """A pipeline's topics, for people."""
    return ("topic " if len(identity.topics) == 1 else "topics ") + ", ".join(sorted(identity.topics))
