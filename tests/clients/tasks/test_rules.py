"""What a function raises and what a call was sent with decide its outcome, in threads and in processes of their own."""

from __future__ import annotations

from typing import Any

import pytest
from penstock import Retry
from penstock.clients.tasks.message import ENCODING_HEADER, EXPIRES_HEADER, NAME_HEADER, RETRY_HEADER
from penstock.clients.tasks.runner import Runner
from support.fake_workers import FakeWorker, on_a_loop, settled, working
from support.task_functions import app

LONG_AFTER = b"9000000000000000"
FUNCTIONS = ["raises", "raises_elsewhere"]


def headers(function: str, **more: bytes) -> dict[str, bytes]:
    named = {"expires": EXPIRES_HEADER, "retry": RETRY_HEADER}
    return {NAME_HEADER: function.encode(), ENCODING_HEADER: b"json"} | {named[key]: more[key] for key in more}


def own(**rule: Any) -> dict[str, bytes]:
    return {"retry": Retry(**rule).rule().encoded()}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("kind", "sent_with", "verdict", "counted"),
    [
        ("again", {}, ("later", 600.0), "deferred"),
        ("reject", {}, ("reject", "no seat"), "rejected"),
        ("key", {}, ("reject", "KeyError"), "failed"),
        ("os", {}, ("nack", "OSError", 8.0), "failed"),
        ("os", {"expires": LONG_AFTER}, ("nack", "OSError", 8.0), "failed"),
        ("os", {"expires": b"1"}, ("reject", "it expired at 1970-01-01"), "rejected"),
        ("key", own(only=(LookupError,), backoff=1, jitter=0), ("nack", "KeyError", 2.0), "failed"),
        ("os", own(only=(LookupError,)), ("reject", "OSError"), "failed"),
        ("os", own(never=(OSError,)), ("reject", "OSError"), "failed"),
        ("os", own(max_attempts=2), ("reject", "OSError"), "failed"),
    ],
)
@on_a_loop
async def test_the_outcome_follows_what_was_raised_and_the_rule_of_the_call_or_function(
    function: str, kind: str, sent_with: dict[str, bytes], verdict: tuple[Any, ...], counted: str
) -> None:
    worker, runner = FakeWorker(), Runner(app)
    async with working(runner, worker):
        task = worker.give(function, b'[["%s"],{}]' % kind.encode(), headers=headers(function, **sent_with))
        verb, said, *delay = await settled(task)
    assert (verb, *delay) == (verdict[0], *verdict[2:])
    assert said.startswith(verdict[1]) if isinstance(said, str) else said == verdict[1]
    assert runner.outcomes == {counted: 1}
