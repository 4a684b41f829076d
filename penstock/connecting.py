"""`penstock.connect`, with an address or the default one (address.py)."""

from __future__ import annotations

from . import config as configuration
from .address import broker_url
from .clients import Client, client
from .clients.arguments.quantities import Duration
from .clients.connection.delivery import Delivery
from .transport.keys import KeyLike


def connect(
    url: str | None = None,
    *,
    timeout: Duration = 30.0,
    name: str | None = None,
    delivery: Delivery = "auto",
    key: KeyLike = None,
) -> Client:
    """Connect to a broker, or open a data directory or a broker in memory.

    Args:
        url: unix:///path, ipc:///path or tcp://host:port of a broker, file:///directory (embedded), or mem://name
            (shared in this process). Several nodes of a cluster stand behind one another, as in
            tcp://a:7070,b:7070,c:7070: the client finds the one that leads, and goes on with the next leader by
            itself. None: the broker that `penstock serve` of this user runs without --listen, or the one that
            PENSTOCK_URL or the configuration names.
        timeout: seconds any verb waits for the broker, unless told otherwise.
        name: of this client, shown in the broker's lists.
        delivery: how consumers get their records: "push" (own endpoint), "control" (the same connection),
            "mapped" (read the broker's files directly), or "auto": mapped where the broker runs on this machine and
            lets us, else push, and control when that does not get through.
            Over unix:// one connection is the fastest way, and "push" means control there.
        key: what this program authenticates with over tcp://, a Key or the path of a key file (`penstock key
            generate`). None: the file that PENSTOCK_KEY or the setting `key` names, or none.

    Raises: InvalidUrl; InvalidKey; Unauthenticated when the broker does not let it in; TimedOut when none answers;
        AlreadyOpen, ForeignDirectory, NewerFormat for file://;
        InvalidConfig for a configuration that cannot be used.
    """
    place = broker_url() if url is None else url
    return client.connect(place, timeout=timeout, name=name, delivery=delivery, key=key_for(place, key))


def key_for(url: str, key: KeyLike) -> KeyLike:
    """The key for an address: the given one, or over tcp:// the one that is configured. Raises InvalidConfig."""
    return (configuration.load().config.key or None) if key is None and str(url).startswith("tcp:") else key
