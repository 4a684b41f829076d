"""The asyncio twin of `penstock`: the same names, awaited.

async with await aio.connect("unix:///run/penstock/broker.sock") as client: ...
"""

from __future__ import annotations

from .address import broker_url
from .clients.aio import client as aio
from .clients.aio.client import AsyncClient, AsyncConsumer, AsyncProducer, AsyncTask, AsyncWorker
from .clients.aio.staging import AsyncStaging, AsyncTransaction
from .clients.arguments.quantities import Duration
from .clients.tasks import AsyncJob
from .clients.verbs import Delivery

__all__ = [
    "AsyncClient", "AsyncConsumer", "AsyncJob", "AsyncProducer", "AsyncStaging", "AsyncTask", "AsyncTransaction",
    "AsyncWorker", "connect",
]  # fmt: skip


async def connect(
    url: str | None = None, *, timeout: Duration = 30.0, name: str | None = None, delivery: Delivery = "auto"
) -> AsyncClient:
    """As `penstock.connect`."""
    return await aio.connect(broker_url() if url is None else url, timeout=timeout, name=name, delivery=delivery)
