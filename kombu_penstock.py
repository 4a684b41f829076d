"""kombu learns here that `penstock://`, `penstock+unix://` and `penstock+tcp://` are a transport of ours.

kombu has a table of transports and no entry points for it, but it loads those of `kombu.serializers` when it first
imports its serializers. Ours names this module, so that a URL is all that an application changes (decision 134). This
module imports nothing of penstock: what uses kombu with another broker pays for rows of a table.

The rows with a + are for the alternates of a connection, which kombu looks up by the whole scheme of their URLs.
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

for scheme in ("penstock", "penstock+unix", "penstock+tcp"):
    TRANSPORT_ALIASES.setdefault(scheme, "penstock.adapters.celery.transport:Transport")

SERIALIZER = (None, None, "application/x-penstock")
"""What `kombu.serializers` asks for: a name without encoder and decoder, so nothing is serialized by it."""
