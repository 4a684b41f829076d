"""Options that many commands share, and the words they accept.

Idea: a command takes a `Session`: its configuration, its output, and the way to the broker. `with_session` adds
--url, --config and --json and hands it over.
Contract: keys, values and header values are the bytes that were typed; whatever else is given as text is UTF-8.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import address
from .. import config as configuration
from ..storage import units
from ..storage.errors import Error
from ..transport import ipc_paths, other_doors
from ..transport.keys import VARIABLE
from ..transport.url import addresses, connect_url
from .output import Output

if TYPE_CHECKING:
    from ..clients import Client

F = TypeVar("F", bound=Callable[..., Any])


class NoBroker(Error):
    """No broker listens at the address."""

    code = "no_broker"
    retry = True


class Invocation:
    """The context of a command."""

    def __init__(self, loaded: configuration.Loaded, output: Output) -> None:
        self.loaded = loaded
        self.config = loaded.config
        self.output = output

    @property
    def url(self) -> str:
        """The broker's address: the given one, or that of this user's default broker."""
        return address.broker_url(self.loaded)

    @property
    def authenticates(self) -> bool:
        """Whether a connection is that of a user with a key, who sees what it has grants for."""
        return self.url.startswith("tcp:") and bool(self.config.key)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client of the broker. Raises what `penstock.connect` raises."""
        url = self.url
        scheme, _, path = url.partition("://")
        if len(addresses(url)) == 1 and scheme in ("unix", "ipc"):
            _check_listens(url, path)
        elif len(addresses(url)) == 1 and scheme == "tcp":
            _check_speaks(url)
        from ..connecting import connect

        with connect(url, timeout=self.config.timeout_s) as client:
            yield client


def _check_speaks(url: str) -> None:
    """Refuse at once a port of another kind, where connecting would only time out."""
    whose = other_doors.door_at(connect_url(url))
    if whose:
        raise NoBroker(f"{url} is a door {whose}, not the broker: give an address of its --listen")


def _check_listens(url: str, path: str) -> None:
    """Refuse at once an address that would only time out; connecting reports all other problems.

    A socket that refuses connections is one of a broker that died: it is waited for, as its supervisor restarts it.
    """
    try:
        if not ipc_paths.is_live(path) and not Path(path).is_socket():
            raise NoBroker(f"no broker listens on {url}: start one with penstock serve, or name another with --url")
    except PermissionError:
        raise NoBroker(
            f"{url} belongs to another user and lets only that one connect: name another with --url"
        ) from None
    except OSError:
        return


class Size(click.ParamType):
    """64MB as bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return units.size_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType):
    """30s as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return units.seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SomeTime(Duration):
    """As `Duration`, and above 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if not found > 0:
            self.fail(f"{value} is no time: give one above 0, as in 5s", param, ctx)
        return found


class Expiry(SomeTime):
    """When what is valid for so long ends, in seconds since 1970."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return int(time.time() + super().convert(value, param, ctx))


class Assignment(click.ParamType):
    """NAME=VALUE as a pair."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        name, separator, rest = value.partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, rest


class Typed(click.ParamType):
    """The bytes that were typed, of any encoding."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        return os.fsencode(value)


class Header(Assignment):
    """NAME=VALUE as a name and the bytes of its value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, bytes]:
        name, rest = super().convert(value, param, ctx)
        return name, os.fsencode(rest)


class Rate(click.FloatRange):
    """A rate per second: a finite number >= 0."""

    name = "rate"

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        rate = super().convert(value, param, ctx)
        if not math.isfinite(rate):
            self.fail(f"{value} is not a number of times a second", param, ctx)
        return rate


SIZE = Size()
DURATION = Duration()
SOME_TIME = SomeTime()
EXPIRY = Expiry()
RATE = Rate()
ASSIGNMENT = Assignment()
TYPED = Typed()
HEADER = Header()

_CONFIG = click.option("--config", "config_file", type=click.Path(), metavar="FILE", help="Configuration file (TOML).")
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON lines instead of tables and sentences.")
_URL = click.option(
    "--url", metavar="URL", help="unix:///path, ipc:///path, tcp://host:port, or file:///directory. Also PENSTOCK_URL."
)


_ANY = {"type": ASSIGNMENT, "multiple": True, "help": "Any setting of `config show`."}

with_settings = click.option("--set", "overrides", **_ANY)
"""Above `with_session`: settings by name on the command line."""


with_data = click.option(
    "--data", "data_directory", metavar="DIR", help="The data directory. Default: that of the configuration."
)
"""Above `with_session`: for commands that look at the directory themselves."""


def with_session(function: F) -> F:
    """Give a command that talks to a broker its `session`."""

    @functools.wraps(function)
    def command(*args: Any, url: str | None, config_file: str | None, as_json: bool, **options: Any) -> Any:
        check_text()
        given = {"url": url, "data": options.pop("data_directory", None), **dict(options.pop("overrides", ()))}
        loaded = configuration.load(given, path=config_file)
        hand_down_key(loaded.config)
        return function(*args, session=Invocation(loaded, Output(as_json=as_json)), **options)

    return _URL(_CONFIG(_JSON(command)))  # type: ignore[return-value]


def hand_down_key(config: configuration.Config) -> None:
    """Have all that this process and its children connect to hear of the configured key file: by its path."""
    if config.key:
        os.environ[VARIABLE] = str(Path(config.key).absolute())


def with_config(function: F) -> F:
    """Give a command --config, --set and --json; it loads the configuration itself."""

    @functools.wraps(function)
    def command(**options: Any) -> Any:
        check_text()
        return function(**options)

    return click.option("--set", "settings", **_ANY)(_CONFIG(_JSON(command)))  # type: ignore[return-value]


def with_output(function: F) -> F:
    """Give a command that needs neither broker nor configuration its `output`."""

    @functools.wraps(function)
    def command(*args: Any, as_json: bool, **options: Any) -> Any:
        return function(*args, output=Output(as_json=as_json), **options)

    return _JSON(command)  # type: ignore[return-value]


def check_text() -> None:
    """Raise UsageError if text is not UTF-8: Python has surrogates in place of such bytes. A file may have any name."""
    context = click.get_current_context()
    for text in _texts([value for name, value in context.params.items() if name != "config_file"]):
        try:
            text.encode()
        except UnicodeEncodeError:
            context.fail(f"{text!r} is not UTF-8")


def _texts(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list | tuple):
        for each in given:
            yield from _texts(each)
