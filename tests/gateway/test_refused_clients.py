"""Clients of the gateway that do not authenticate are in its log, without what they sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from penstock.broker import access_file
from penstock.gateway.users import Users


def test_wrong_passwords_and_tokens_are_logged_with_their_source_and_without_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("penstock.gateway.telling.PERIOD_S", 0.01)
    path = str(tmp_path / "users")
    access_file.add_password(path, "ann", "right")
    expired = access_file.add_token(path, "robot", 1)[0]

    async def refuse() -> None:
        users = Users.load(path)
        assert await users.verify("ann", "right", "1.2.3.4") is not None
        assert users.refusals.count == 0
        for name, source in (("ann", "1.2.3.4"), ("secret-as-name\n", "")):
            assert await users.verify(name, "s3cret", source) is None
        assert users.verify_token("t0ken", "5.6.7.8") is None
        assert users.verify_token(expired, "5.6.7.8") is None
        users.refusals._due_s = 0.0  # a second later
        told, tell = asyncio.Event(), users.refusals._tell
        users.refusals._tell = lambda sentence: (tell(sentence), told.set())[0]
        await told.wait()
        assert users.refusals.count == 4

    asyncio.run(asyncio.wait_for(refuse(), 30))
    first, *rest = caplog.messages
    assert first == "refused 1 clients, the last: user 'ann' with a wrong password, from 1.2.3.4"
    assert sum(int(said.split()[1]) for said in rest) == 3
    assert rest[-1].endswith("robot has expired, from 5.6.7.8")
    for secret in ("s3cret", "t0ken", expired, "secret-as-name"):
        assert secret not in caplog.text
