"""Whether a task may begin, and what follows its failure: by the rule of its call, its function, or its queue."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from penstock import Again, Reject, Retry
from penstock.clients.tasks.message import EXPIRES_HEADER, RETRY_HEADER
from penstock.clients.tasks.outcome import Deferred, Failed, RefusedCall, outcome_of
from penstock.clients.tasks.retry import RetryRule, names_of, rule_from
from penstock.clients.tasks.verdicts import judged, refusal, rule_of
from penstock.errors import InvalidArgument

MOST = sys.maxsize


class OwnError(OSError):
    pass


def after(error: BaseException, retry: Retry | None, attempt: int = 1, most: int = MOST, chance: float = 0.0) -> Failed:
    failed = outcome_of(error)
    assert isinstance(failed, Failed)
    return judged(failed, None if retry is None else retry.rule(), attempt, most, lambda: chance)


@pytest.mark.parametrize(
    ("attempt", "chance", "delay_s"), [(1, 0.0, 2.0), (2, 0.0, 4.0), (3, 0.0, 5.0), (1, 0.5, 1.5), (900, 0.0, 5.0)]
)
def test_a_failure_waits_for_the_back_off_of_its_retry(attempt: int, chance: float, delay_s: float) -> None:
    retry = Retry(max_attempts=None, backoff=2, max_backoff=5, jitter=0.5)
    assert after(ValueError(), retry, attempt, chance=chance).delay_s == delay_s


def test_without_a_retry_the_queue_decides() -> None:
    failed = after(ValueError(), None, attempt=3)
    assert (failed.delay_s, failed.is_last, failed.rejects) == (None, False, False)
    failed = after(ValueError(), None, attempt=3, most=3)
    assert (failed.is_last, failed.rejects) == (True, False)


def test_the_last_attempt_of_a_retry_is_rejected_by_the_worker() -> None:
    last = after(ValueError(), Retry(3), attempt=3)
    assert (last.is_last, last.rejects, last.delay_s) == (True, True, None)
    assert not after(ValueError(), Retry(3), attempt=2).is_last


@pytest.mark.parametrize(
    ("retry", "error", "again"),
    [
        (Retry(only=(OSError,)), OwnError(), True),
        (Retry(only=(OSError,)), ValueError(), False),
        (Retry(only=(OSError, ValueError)), ValueError(), True),
        (Retry(never=(OSError,)), OwnError(), False),
        (Retry(never=(OSError,)), ValueError(), True),
        (Retry(only=(OSError,), never=(OwnError,)), OwnError(), False),
        (Retry(only=(OSError,), never=(OwnError,)), OSError(), True),
        (Retry(only=(TimeoutError,)), TimeoutError(), True),
    ],
)
def test_exceptions_decide_whether_there_is_a_retry(retry: Retry, error: Exception, again: bool) -> None:
    assert after(error, retry).rejects is not again


def test_a_reason_may_be_an_exception() -> None:
    error: Any = ValueError("no seat")
    assert outcome_of(Reject(error)) == RefusedCall("no seat")
    assert outcome_of(Again(error, delay=5)) == Deferred(5.0, "no seat")


def test_the_death_of_a_process_is_no_exception() -> None:
    assert not judged(Failed("it died"), Retry(only=(OSError,)).rule(), 1, MOST, lambda: 0.0).is_last


def test_a_rule_goes_through_a_header() -> None:
    retry = Retry(5, backoff="2s", only=(OwnError,), never=(ValueError,))
    rule = rule_from(retry.rule().encoded())
    assert rule == retry.rule() == rule_of({RETRY_HEADER: rule.encoded()}, Retry(9))
    assert (rule.only, rule.never) == ([f"{__name__}.OwnError"], ["builtins.ValueError"])
    assert rule_of({}, None) is None
    assert names_of(OwnError())[:2] == [f"{__name__}.OwnError", "builtins.OSError"]
    with pytest.raises(ValueError, match="JSON"):
        rule_of({RETRY_HEADER: b"x"}, None)


@pytest.mark.parametrize(
    ("expires", "says"), [(b"1000", "it expired at 1970-01-01"), (b"-1", "no time"), (b"1001", "")]
)
def test_what_expired_does_not_begin(expires: bytes, says: str) -> None:
    found = refusal({EXPIRES_HEADER: expires}, 1, None, 1000)
    assert says in found.reason if says and found else not (says or found)


def test_a_task_whose_worker_died_in_its_last_attempt_does_not_begin() -> None:
    rule: RetryRule = Retry(2).rule()
    assert refusal({}, 2, rule, 0) is None
    assert refusal({}, 3, rule, 0) == RefusedCall(
        "its 2 attempts are used up: the worker of the last one died or lost its lease"
    )
    assert refusal({}, 9, Retry(None).rule(), 0) is None


def test_a_function_says_by_what_it_raises_that_its_task_is_rejected_or_comes_again() -> None:
    assert outcome_of(Reject("no such seat")) == RefusedCall("no such seat")
    assert outcome_of(Again(delay="10m")) == Deferred(600.0, "")
    assert outcome_of(Again("busy", delay=3)) == Deferred(3.0, "busy")
    with pytest.raises(InvalidArgument, match="delay"):
        Again(delay="soon")


@pytest.mark.parametrize("given", [{"only": ()}, {"only": OSError}, {"never": ("OSError",)}, {"never": (int,)}])
def test_exceptions_are_tuples_of_classes(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(given))):
        Retry(**given)
