"""kombu learns here that `penstock://` and `penstock+...://` are a transport of ours.

kombu has a table of transports and no entry points for it, but it loads those of `kombu.serializers` when it is first
imported. Ours names this module, so that a URL is all that an application changes (decision 134). This module imports
nothing of penstock: what uses kombu with another broker pays for a row of a table.
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("penstock", "penstock.adapters.celery.transport:Transport")

SERIALIZER = (None, None, "application/x-penstock")
"""What `kombu.serializers` asks for: a name without encoder and decoder, so nothing is serialized by it."""
