"""XREAD over streams that come and go, without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.gateway.resp import streams


@pytest.mark.parametrize("gone", [True, False])
def test_a_blocked_reader_reads_a_key_that_comes_again_from_its_beginning(monkeypatch, gone):
    def place(topic: bytes) -> Any:
        return SimpleNamespace(topic=SimpleNamespace(topic=topic), first=0, end=3)

    looks, asked = iter([place(b"old"), *([None] if gone else []), place(b"new")]), list[tuple[bytes, int]]()

    async def find(*_: object) -> Any:
        return next(looks)

    async def entries(session: object, place: Any, start: int, *_: object) -> list[bytes]:
        asked.append((place.topic.topic, start))
        return [b"+entry\r\n"] if place.topic.topic == b"new" else []

    async def wait(*_: object) -> None: ...

    for name, fake in (("find", find), ("entries", entries), ("_wait", wait)):
        monkeypatch.setattr(streams, name, fake)
    session: Any = SimpleNamespace(door=SimpleNamespace(link=None), executing=0, version=2, blocks=lambda waits: None)
    ((key, _),) = asyncio.run(streams.xread(session, [b"BLOCK", b"0", b"STREAMS", b"k", b"$"]))
    assert (key, asked) == (b"k", [(b"old", 3), (b"new", 0)])
