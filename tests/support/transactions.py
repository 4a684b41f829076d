"""Transactions in a rig: what is staged, committed and asked for, and what can be read of it."""

from __future__ import annotations

from typing import Any

from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.transactions.service import Transactions
from penstock.transport import messages as m
from penstock.transport.partitioner import partition_of
from support.engine import Rig
from support.staging import staged

TXN = "__txn"


class Refused(Exception):
    """The broker did not take something."""


def put(rig: Rig, topic: bytes, stage: int, *values: bytes, partition: int = 0, batch: int = 2) -> m.Stage:
    """Stage values, some in each batch. Returns the stage as a commit names it."""
    for first in range(0, len(values), batch):
        some = list(values[first : first + batch])
        answer = rig.ask(m.Produce, topic, partition, payload=staged(some, stage, first))
        if isinstance(answer, m.Failure):
            raise Refused(answer.message)
        assert isinstance(answer, m.Produced), answer
    return m.Stage(topic, partition, stage, len(values))


def commit(rig: Rig, name: str, epoch: int, *stages: m.Stage) -> Any:
    """Commit and return the answer; None while there is none."""
    return rig.ask(m.CommitTransaction, name, epoch, list(stages))


def send_commit(rig: Rig, name: str, epoch: int, *stages: m.Stage) -> int:
    """Only send it. Returns the number of the request."""
    request = rig.next_request()
    rig.send(m.CommitTransaction(request, name, epoch, list(stages)))
    return request


def answer_to(rig: Rig, request: int) -> Any:
    """The one answer to a request; None while there is none."""
    found = rig.answers(request)
    assert len(found) <= 1, found
    return found[0] if found else None


def state(rig: Rig, name: str) -> tuple[int, bool]:
    """Last epoch and whether it is finished, as AskTransaction says."""
    answer = rig.ask(m.AskTransaction, name)
    assert isinstance(answer, m.TransactionState), answer
    return answer.epoch, answer.finished


def home(rig: Rig, name: str) -> Partition:
    """The partition of `__txn` where a transaction is decided."""
    topic = rig.node._registry.topics.by_name[TXN]
    return topic.partition(partition_of(name.encode(), len(topic.partitions)))


def partition(rig: Rig, topic: bytes, number: int = 0) -> Partition:
    return rig.node._registry.topics.get(topic).partition(number)


def sealed(rig: Rig, topic: bytes) -> set[int]:
    """The stages of a topic's first partition that are decided, or being decided."""
    return set(transactions(rig)._commits.seals.of(partition(rig, topic)))


def transactions(rig: Rig) -> Transactions:
    return rig.node._office.transactions


def open_stages(rig: Rig) -> int:
    """Stages that stand anywhere."""
    return rig.node.stats()["stages.open"]


def code(answer: object) -> str:
    """The code of a failure."""
    assert isinstance(answer, m.Failure), answer
    return answer.code
