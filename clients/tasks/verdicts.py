"""Verdicts on a task before and after its call: whether it may begin, and what follows a failure.

Idea: the rule is that of the call's header, else of the function; without one the broker decides by the settings of the
queue. A worker that dies applies no rule, so a task whose attempts are used up that way is refused by the next worker.

Pure: time and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import structs

from .message import EXPIRES_HEADER, RETRY_HEADER
from .outcome import Failed, RefusedCall
from .retry import Retry, RetryRule, rule_from


def rule_of(headers: Mapping[str, bytes], retry: Retry | None) -> RetryRule | None:
    """The rule of a task, `retry` being that of its function; None: the queue's. Raises ValueError."""
    header = headers.get(RETRY_HEADER)
    if header is not None:
        return rule_from(header)
    return None if retry is None else retry.rule()


def refusal(headers: Mapping[str, bytes], attempt: int, rule: RetryRule | None, now_us: int) -> RefusedCall | None:
    """Why a task may not begin any more; None if it may."""
    expires = headers.get(EXPIRES_HEADER)
    if expires is not None:
        if not expires.isdigit():
            return RefusedCall(f"its header {EXPIRES_HEADER} is no time: it is to be digits")
        if int(expires) <= now_us:
            moment = datetime.fromtimestamp(int(expires) / 1e6, UTC)
            return RefusedCall(f"it expired at {moment:%Y-%m-%d %H:%M:%S} UTC, before a worker began it")
    if rule is not None and rule.used_up(attempt - 1):
        return RefusedCall(f"its {attempt - 1} attempts are used up: the worker of the last one died or lost its lease")
    return None


def judged(
    failed: Failed, rule: RetryRule | None, attempt: int, attempts_most: int, chance: Callable[[], float]
) -> Failed:
    """A failure with what follows: whether it is the last, or the delay before the next attempt.

    `attempts_most`: that the broker gives.
    """
    if rule is not None and (rule.used_up(attempt) or not rule.retries(failed.kinds)):
        return structs.replace(failed, is_last=True, rejects=True)
    if attempt >= attempts_most:
        return structs.replace(failed, is_last=True)
    return failed if rule is None else structs.replace(failed, delay_s=rule.delay_s(attempt, chance))
