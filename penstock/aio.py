"""The asyncio twin of `penstock`: the same names, awaited.

    async with aio.connect("unix:///run/penstock/broker.sock") as client:
        async with client.producer("flights") as producer:
            await producer.send(b"UA 1545")
        async with client.consumer("flights", group="report") as consumer:  # and so client.worker
            records = await consumer.fetch()
        async for batch in client.range("flights", 0, 0, 1): ...
        async with client.transaction() as transaction:  # and so client.staging
            staged = await transaction.producer("flights")
            await staged.send(b"AA 1141")

Verbs that open something (connect, producer, consumer, worker, range) can be used at once, as here, or awaited.
"""

from __future__ import annotations

from .address import broker_url
from .clients.aio import client as aio
from .clients.aio.client import AsyncClient
from .clients.aio.consumer import AsyncConsumer
from .clients.aio.opening import Opening
from .clients.aio.producer import AsyncProducer, AsyncStaging, AsyncTransaction
from .clients.aio.task import AsyncTask
from .clients.aio.topics_consumer import AsyncTopicsConsumer
from .clients.aio.worker import AsyncWorker
from .clients.arguments.quantities import Duration
from .clients.connection.delivery import Delivery
from .clients.tasks import AsyncJob
from .clients.tasks import group_async as group
from .connecting import key_for
from .transport.keys import KeyLike

__all__ = [
    "AsyncClient", "AsyncConsumer", "AsyncJob", "AsyncProducer", "AsyncStaging", "AsyncTask", "AsyncTopicsConsumer",
    "AsyncTransaction", "AsyncWorker", "connect", "group",
]  # fmt: skip


def connect(
    url: str | None = None,
    *,
    timeout: Duration = 30.0,
    name: str | None = None,
    delivery: Delivery = "auto",
    key: KeyLike = None,
) -> Opening[AsyncClient]:
    """As `penstock.connect`: `async with connect() as client`, or `client = await connect()`.

    With delivery="auto" nothing is mapped, because the loop would wait for the disk.
    """
    place = broker_url() if url is None else url
    return aio.connect(place, timeout=timeout, name=name, delivery=delivery, key=key_for(place, key))
