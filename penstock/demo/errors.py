"""Errors of the demo itself; the broker's errors keep their own classes."""

from __future__ import annotations

from ..storage.errors import Error


class DemoError(Error):
    """The demo cannot run."""

    code = "demo"


class MissingFlights(DemoError):
    """The package with the flights is not installed."""

    code = "missing_flights"


class RoleFailed(DemoError):
    """A process of the demo ended too early; the message has its exit code and the last line of its standard error."""

    code = "role_failed"
