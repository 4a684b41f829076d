"""The asyncio twin of `penstock`: the same names, awaited.

async with await aio.connect("unix:///run/penstock/broker.sock") as client: ...
"""

from __future__ import annotations

from .clients.aio import AsyncClient, AsyncConsumer, AsyncProducer, AsyncTask, AsyncWorker
from .clients.tasks import AsyncJob
from .clients.transactions.aio import AsyncStaging, AsyncTransaction
from .connecting import connect_async as connect

__all__ = [
    "AsyncClient", "AsyncConsumer", "AsyncJob", "AsyncProducer", "AsyncStaging", "AsyncTask", "AsyncTransaction",
    "AsyncWorker", "connect",
]  # fmt: skip
