"""The asyncio twin of `penstock`: the same names, awaited.

async with await aio.connect("ipc:///run/penstock/broker.sock") as client: ...
"""

from __future__ import annotations

from .clients.aio import AsyncClient, AsyncConsumer, AsyncProducer, connect

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncProducer", "connect"]
