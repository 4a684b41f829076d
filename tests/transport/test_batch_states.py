"""The states of a batch: PROTOCOL.md prints the table, a session is driven by it, and nothing else can happen."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from penstock.transport import messages, producer_session
from penstock.transport.batch_states import TABLE, BatchEvent, BatchState
from penstock.transport.messages import Failure, Produced
from penstock.transport.producer_session import InFlight, ProducerSession

TEXT = Path(messages.__file__).with_name("PROTOCOL.md").read_text()
PAIRS = list(product(BatchState, BatchEvent))


def brought_to(state: BatchState) -> tuple[ProducerSession, InFlight, InFlight]:
    """A session with two batches, the first in flight and the second, where that is possible, in a state."""
    session = ProducerSession(1)
    first, batch = session.add(b"first", 1), session.add(b"second", 1)
    session.sent(first, 1)
    if state is BatchState.WAITING:
        return session, first, batch
    session.sent(batch, 2)
    if state is BatchState.HELD:
        session.failed(Failure(2, "sequence_gap", "", False))
    elif state in (BatchState.ANSWERED, BatchState.APPENDED):
        session.produced(Produced(2, 0, 0, 0))
    if state is BatchState.APPENDED:
        session.produced(Produced(1, 0, 0, 0))
    elif state is BatchState.REFUSED:
        session.abandon(Failure(0, "closed", "", False))
    return session, first, batch


def happen(session: ProducerSession, first: InFlight, batch: InFlight, event: BatchEvent) -> None:
    if event is BatchEvent.SENT:
        session.sent(batch, 3)
    elif event is BatchEvent.PRODUCED:
        session.produced(Produced(batch.request, 0, 0, 0))
    elif event is BatchEvent.RETRY:
        session.lost()
    elif event is BatchEvent.GAP:
        session.failed(Failure(batch.request, "sequence_gap", "", False))
    elif event is BatchEvent.SETTLED:
        session.produced(Produced(first.request, 0, 0, 0))
    else:
        session.abandon(Failure(0, "closed", "", False))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_a_session_goes_by_the_table(state: BatchState, event: BatchEvent):
    session, first, batch = brought_to(state)
    assert batch.state is state
    after = TABLE[event].get(state)
    if after is None and event is BatchEvent.SENT:
        with pytest.raises(AssertionError, match=f"a batch that is {state} cannot be sent"):
            happen(session, first, batch, event)
        return
    happen(session, first, batch, event)  # what is no event for this batch leaves it as it is
    assert batch.state is (state if after is None else after)
    waiting = [each for each in session.in_flight if each.state in (BatchState.WAITING, BatchState.HELD)]
    assert session.unsent == len(waiting)
    assert (batch.failure is not None) == (batch.state is BatchState.REFUSED)


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_what_is_not_in_the_table_is_an_error(state: BatchState, event: BatchEvent):
    if state not in TABLE[event]:
        with pytest.raises(AssertionError, match=f"a batch that is {state} cannot be {event}"):
            TABLE[event][state]


def test_the_document_prints_the_table():
    rows = [f"| state | {' | '.join(BatchEvent)} |", f"|{'---|' * (1 + len(BatchEvent))}"]
    for state in BatchState:
        cells = [TABLE[event].get(state, "—") for event in BatchEvent]
        rows.append(f"| {state} | {' | '.join(cells)} |")
    section = TEXT[TEXT.index("\n## 5 ") : TEXT.index("\n## 6 ")]
    assert "\n".join(rows) + "\n\n" in section


def test_every_state_is_reached_and_two_are_ends():
    assert {after for column in TABLE.values() for after in column.values()} == set(BatchState)
    assert set(BatchState) - {state for column in TABLE.values() for state in column} == {
        BatchState.APPENDED,
        BatchState.REFUSED,
    }
    assert producer_session.InFlight(b"", 0, 1, None).state is BatchState.WAITING


def test_a_gap_takes_back_the_batches_behind_it_and_an_answer_before_it_lets_it_go():
    session = ProducerSession(1)
    first, second, third, fourth = (session.add(b"x", 1) for _ in range(4))
    for request, batch in enumerate((first, second, third, fourth), 1):
        session.sent(batch, request)
    session.failed(Failure(3, "sequence_gap", "", False))
    assert (third.state, fourth.state) == (BatchState.HELD, BatchState.WAITING)
    assert session.to_send() is None
    session.produced(Produced(2, 0, 0, 0))  # the first has no answer yet, so the second stays
    assert second.state is BatchState.ANSWERED
    assert session.to_send() is third
