"""An app's connections, for event loops: one client per loop, and a producer per queue.

Contract: as link.py, on the loop that awaits. The client of a loop that was closed is closed when the next one comes.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ...broker.errors import UnknownTopic
from ...storage import forks
from ..aio.client import AsyncClient, connect
from ..aio.producer import AsyncProducer
from ..queues.task_ids import task_id
from .queues import QueueApp, check_attempts, ensure_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..aio.futures import AsyncFuture
    from ..queues.descriptions import Schedule
    from .job_lists import Run
    from .message import Message, Messages, Then

T = TypeVar("T")


class _Opened:
    """The connections of one loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: AsyncClient | None = None
        self.url = ""  # that the client is connected to
        self.producers: dict[str, AsyncProducer] = {}
        self.settings: dict[str, dict[str, Any]] = {}


class AsyncLink:
    """See the module."""

    def __init__(self, app: QueueApp) -> None:
        self._app = app
        self._opened: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = weakref.WeakKeyDictionary()
        forks.tell(self)

    def _forked(self) -> None:
        """See Link."""
        self._opened = weakref.WeakKeyDictionary()

    async def client(self) -> AsyncClient:
        """The client of this loop, connected."""
        opened = self._here()
        async with opened.lock:
            return await self._connected(opened)

    async def send(self, message: Message) -> str:
        """Commit a call to its queue; returns the task's id."""
        if message.then is not None:
            return (await self.send_group([message], message.then))[0]

        async def send(producer: AsyncProducer, now_us: int) -> tuple[int, int]:
            return await _place(await producer.send_nowait(message.value, **message.sending(now_us)))

        return task_id(message.queue, *await self._sent(message, send))

    async def send_many(self, messages: Messages) -> list[Run]:
        """Commit many calls to their queue; returns where they are, in their order."""
        if not messages.count:
            return []
        return await self._sent(messages, lambda producer, now_us: _runs(producer, messages, now_us))

    async def _sent(self, sent: Message | Messages, send: Callable[[AsyncProducer, int], Awaitable[T]]) -> T:
        """See Link."""
        producer, now_us = await self._producer(sent.queue, sent.attempts)
        try:
            return await send(producer, now_us)
        except UnknownTopic:
            with suppress(UnknownTopic):
                await producer.flush()
            opened = self._here()
            async with opened.lock:
                if opened.producers.get(sent.queue) is producer:
                    del opened.producers[sent.queue], opened.settings[sent.queue]
        return await send(*await self._producer(sent.queue, sent.attempts))

    async def send_group(self, messages: Sequence[Message], then: Then) -> list[str]:
        """Commit calls to their queues, and one of `then` once they have ended; returns the ids of their tasks."""
        opened = self._here()
        async with opened.lock:
            client = await self._connected(opened)
            await self._ready(opened, client, then.queue)
            for message in messages:
                check_attempts(message.queue, await self._ready(opened, client, message.queue), message.attempts)
        group, now_us = self._app.group, client.now_us
        return await client.send_group([message.grouped(group, now_us) for message in messages], then=then.callback())

    async def schedule(self, message: Message, name: str, spec: str) -> Schedule:
        """Commit a call at stated times."""
        how = message.scheduling(self._app.zone)
        client = await self.client()
        await ensure_async(client, self._app.queues[message.queue])
        return await client.schedule(message.queue, name, spec, message.value, **how)

    async def close(self) -> None:
        """Close this loop's client. Sending again reconnects. Idempotent."""
        opened = self._here()
        async with opened.lock:
            if opened.client is not None:
                await opened.client.close()
            opened.client, opened.producers = None, {}

    def _here(self) -> _Opened:
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            self._drop_ended()
            self._opened[loop] = _Opened()
        return self._opened[loop]

    def _drop_ended(self) -> None:
        """Close what was opened on loops that are closed: a client leads to its loop, so neither would ever go."""
        for loop, opened in list(self._opened.items()):
            if loop.is_closed():
                del self._opened[loop]
                if opened.client is not None:
                    opened.client._driver.close()

    async def _connected(self, opened: _Opened) -> AsyncClient:
        url = self._app.url
        if opened.client is not None and opened.url != url:
            await opened.client.close()
        if opened.client is None or opened.client.closed:
            opened.producers, opened.settings, opened.url = {}, {}, url
            opened.client = await connect(url, timeout=self._app.timeout_s, name="penstock-tasks")
        return opened.client

    async def _producer(self, queue: str, attempts: int | None) -> tuple[AsyncProducer, int]:
        """See Link."""
        opened = self._here()
        async with opened.lock:
            client = await self._connected(opened)
            settings = await self._ready(opened, client, queue)
            if queue not in opened.producers:
                opened.producers[queue] = await client.producer(queue)
            check_attempts(queue, settings, attempts)
            return opened.producers[queue], client.now_us

    async def _ready(self, opened: _Opened, client: AsyncClient, queue: str) -> dict[str, Any]:
        """See Link; called with the lock."""
        if queue not in opened.settings:
            opened.settings[queue] = await ensure_async(client, self._app.queues[queue])
        return opened.settings[queue]


async def _runs(producer: AsyncProducer, messages: Messages, now_us: int) -> list[Run]:
    """See link.py."""
    if messages.alike:
        return await producer.place_many(messages.runs, **messages.sending_all(now_us))
    futures = [await producer.send_nowait(value, **beside) for value, beside in messages.each(now_us)]
    return [(*await _place(future), 1) for future in futures]


async def _place(future: AsyncFuture) -> tuple[int, int]:
    """See link.py."""
    offset = await future
    return future.partition, offset if future.repeats is None else future.repeats
