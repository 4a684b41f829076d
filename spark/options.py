"""Options of DataFrames that read or write topics: their names, meanings and parsing.

Idea: one struct lists a side's options, with a sentence and a parser for each; any other is refused with the nearest
valid name. Names and meanings are those of Spark's Kafka source where it has them, so that a job moves over by
changing `format("kafka")`.
Contract: an invalid value raises InvalidOption with one sentence that names the option, the value and the way out.
Case does not matter: Spark loses it. Pure: reads no file and no environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from ..storage import units
from .errors import InvalidOption

T = TypeVar("T", bound="Endpoint")

SPARK_OWN = frozenset({"checkpointlocation", "queryname", "path"})
"""Names that Spark adds to a user's options."""

WITHOUT_MEANING = frozenset(
    {"groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"}
)
"""Options of Spark's Kafka source that change nothing about what is read: they may stay where they are."""

KAFKA_SERVERS = "kafka.bootstrap.servers"


class Option(NamedTuple):
    """One option: its name, how its text is read (ValueError: it is not one), and what it is for."""

    name: str
    read: Callable[[str], Any]
    meaning: str


class Described(NamedTuple):
    """One option for people."""

    name: str
    default: str
    meaning: str


def text(value: str) -> str:
    """Anything but nothing."""
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def flag(value: str) -> bool:
    """true or false."""
    found = {"true": True, "false": False}.get(value.strip().lower())
    if found is None:
        raise ValueError("it is true or false")
    return found


def count(value: str) -> int:
    """A number from 1 up."""
    if not value.strip().isdecimal() or not int(value):
        raise ValueError("it is a whole number from 1 up")
    return int(value)


def size(value: str) -> int:
    """Bytes, as in 64MB; at least one."""
    found = units.size_bytes(value)
    if not found:
        raise ValueError("it is a size from 1 byte up")
    return found


def duration(value: str) -> float:
    """Seconds, as in 15m. Spark hands over the number 30 as the text "30", and a number is seconds."""
    return float(value) if value.strip().isdecimal() else units.seconds(value)


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words."""

    def read(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return value.strip().lower()

    return read


def names(value: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not found:
        raise ValueError("it is one name or several with commas between them")
    return found


class Endpoint(Struct, frozen=True, kw_only=True):
    """The broker's address, and options shared by all sources and sinks, which add their own."""

    url: Annotated[
        str,
        Option("url", text, "The broker: `tcp://host:7070`, or `unix:///path` on its machine; of a cluster all nodes."),
    ] = ""
    url_file: Annotated[
        str, Option("urlFile", text, "A file on the driver with the address in it, for one that plans should not show.")
    ] = ""
    timeout_s: Annotated[
        float, Option("timeout", duration, "How long to wait for an answer of the broker, also while it restarts.")
    ] = 30.0


def read_options(kind: type[T], given: Mapping[str, str]) -> T:
    """The options in `given` as a `kind`. Raises InvalidOption."""
    known = {option.name.lower(): (field, option) for field, option in options_of(kind)}
    found: dict[str, Any] = {}
    for name, value in _own(given):
        if name.lower() not in known:
            raise _unknown(name, [option.name for _, option in known.values()])
        field, option = known[name.lower()]
        try:
            found[field] = option.read(value)
        except ValueError as error:
            raise InvalidOption(f"option {option.name}={value!r} cannot be used: {error}") from None
    return kind(**found)


def options_of(kind: type[Endpoint]) -> Iterator[tuple[str, Option]]:
    """Each field of `kind`, and its option."""
    for field, hint in get_type_hints(kind, include_extras=True).items():
        yield field, next(note for note in hint.__metadata__ if isinstance(note, Option))


def describe(kind: type[Endpoint]) -> list[Described]:
    """All options of `kind`, in order, for documents."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return [Described(o.name, _shown(o, defaults[field]), o.meaning) for field, o in options_of(kind)]


def _shown(option: Option, default: Any) -> str:
    if option.read is duration:
        return units.time_text(default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if default else ""


def _own(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The options meant for us, with Kafka's names replaced by ours."""
    for name, value in given.items():
        lowered = name.lower()
        if lowered in SPARK_OWN or lowered in WITHOUT_MEANING:
            continue
        if lowered == KAFKA_SERVERS:
            yield "url", _bootstrap(value)
        elif lowered.startswith("kafka."):
            raise InvalidOption(f"option {name} is one of Kafka's client and means nothing here: leave it out")
        else:
            yield name, value


def _bootstrap(servers: str) -> str:
    """Kafka's `host:port`, or those of several nodes of a cluster, as an address."""
    return servers if "://" in servers else f"tcp://{','.join(server.strip() for server in servers.split(','))}"


def _unknown(name: str, known: list[str]) -> InvalidOption:
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if near:
        return InvalidOption(f"option {name} is unknown; did you mean {lowered[near[0]]}?")
    return InvalidOption(f"option {name} is unknown; there are: {', '.join(sorted(known))}")
