"""Trace context of OpenTelemetry in the headers of records (extra `opentelemetry`): docs/seeing.md."""

from __future__ import annotations

from .clients.tracing import headers, processing

__all__ = ["headers", "processing"]
