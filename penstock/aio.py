"""The asyncio twin of `penstock`: the same names, awaited. What asks the broker before it can be used is awaited, too.

async with await aio.connect("unix:///run/penstock/broker.sock") as client:
    async with await client.producer("flights") as producer:
        await producer.send(b"UA 1545")
    async with await client.consumer("flights", group="report") as consumer:  # and so client.worker
        records = await consumer.fetch()
    async for batch in await client.range("flights", 0, 0, 1): ...
    async with client.transaction() as transaction:  # asks nothing: no await; and so client.staging
        staged = await transaction.producer("flights")
        await staged.send(b"AA 1141")
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
