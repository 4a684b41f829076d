"""How often each source may be wrong with a password: ten times at once, and then once in two seconds (decision 117).

Idea: each wrong password puts a source `EACH_S` into debt, which time pays. Who owes more than `FREE` of them is not
checked at all, so guessing costs the gateway nothing and gets nowhere, and other sources do not wait for it. A password
that was right lately needs no check, so clients that are at work at the same address notice nothing.

Contract: pure; time is an argument. A source is an address, of IPv6 the network that one customer gets (/64); "" is
the processes that reach a Unix socket of the gateway's own user, which are not counted. Memory: `SOURCES` entries;
the one that was wrong longest ago is forgotten first.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv6Address

from ..broker.errors import Overloaded

FREE = 10
EACH_S = 2.0
SOURCES = 10_000
NETWORK = 64
"""Bits of an IPv6 address that a guesser cannot change at will."""


class Guesses:
    """See the module."""

    def __init__(self) -> None:
        self._paid_s: dict[str, float] = {}
        """By source, when it owes nothing any more; the one that was wrong last stands last."""

    def check(self, source: str, now: float) -> None:
        """Raise Overloaded while a source may not try another password."""
        wait_s = self._paid_s.get(_network(source), now) - now - (FREE - 1) * EACH_S
        if source and wait_s > 0:
            said = f"too many wrong passwords came from {source}: it may try again in {wait_s:.0f} s"
            raise Overloaded(said, retry_after=wait_s)

    def wrong(self, source: str, now: float) -> None:
        """A source was wrong."""
        if source:
            network = _network(source)
            self._paid_s[network] = max(self._paid_s.pop(network, now), now) + EACH_S
            if len(self._paid_s) > SOURCES:
                del self._paid_s[next(iter(self._paid_s))]


def _network(source: str) -> str:
    try:
        address = IPv6Address(source.strip("[]").partition("%")[0])
    except AddressValueError:
        return source
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> (128 - NETWORK):x}/{NETWORK}"
