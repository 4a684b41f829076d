"""Whether the gateway can serve, and what it serves: health, and the document and the page of its operations."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import msgspec

from ...storage.errors import Error
from ..exposition import CONTENT_TYPE, text
from ..refused import metric_of
from .operation import JSON, HttpCall, HttpOperation, Reply
from .page import POLICY
from .shapes import Health

VERSION = version("penstock")

ANSWERS_S = 2.0
"""How long the broker may take to answer before the gateway counts as not ready."""


async def health(call: HttpCall) -> Reply | Health:
    """Whether it is ready: 503 when not."""
    reasons = await _reasons(call)
    found = Health("not ready" if reasons else "ok", VERSION, True, not reasons, reasons)
    return found if not reasons else Reply(msgspec.json.encode(found), JSON, 503)


async def _reasons(call: HttpCall) -> list[str]:
    if call.ends:
        return ["the gateway is about to end"]
    try:
        async with asyncio.timeout(ANSWERS_S):
            await call.link.client.ping()
    except TimeoutError:
        return [f"the broker does not answer: {call.link.driver.connection.state}"]
    except Error as error:
        return [error.message]
    return ["the broker's disk is full, so records wait (storage_full)"] if call.link.lacks_room else []


async def live(call: HttpCall) -> Health:
    """That it runs."""
    return Health("ok", VERSION, True, not call.ends, [])


async def metrics(call: HttpCall) -> Reply:
    """What it has refused; what the broker counts is at its exporter."""
    call.may("see", "")
    return Reply(text([metric_of(call.door.refused.by_reason())]).encode(), CONTENT_TYPE)


async def openapi(call: HttpCall) -> Reply:
    return Reply(call.door.document)


async def docs(call: HttpCall) -> Reply:
    return Reply(call.door.page, "text/html; charset=utf-8", headers=((b"content-security-policy", POLICY),))


OPERATIONS = [
    HttpOperation(
        method="GET", path="/health", name="health", tag="gateway", handler=health, gives=Health, open=True,
        summary="Whether the gateway and its broker can serve: 503 if not, with reasons",
    ),
    HttpOperation(
        method="GET", path="/health/live", name="live", tag="gateway", handler=live, gives=Health, open=True,
        summary="Whether the gateway runs, whatever its broker does",
    ),
    HttpOperation(
        method="GET", path="/metrics", name="metrics", tag="gateway", handler=metrics, also_gives=("text/plain",),
        summary="What this gateway has refused, by reason, for Prometheus",
    ),
    HttpOperation(
        method="GET", path="/openapi.json", name="openapi", tag="gateway", handler=openapi, gives=dict, open=True,
        summary="This document",
    ),
    HttpOperation(
        method="GET", path="/docs", name="docs", tag="gateway", handler=docs, open=True, also_gives=("text/html",),
        summary="A page of these operations",
    ),
]  # fmt: skip
