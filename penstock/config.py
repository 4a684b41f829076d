"""Every setting of the command line, and where its value came from: flag > environment > file > default.

Idea: one struct lists all settings, with a sentence per field; `load` fills it and remembers the source of each value.
A field `drain_s` is `--set drain_s=5s`, `PENSTOCK_DRAIN_S=5s` and `drain_s = "5s"` in the TOML file.
Contract: any mistake raises InvalidConfig with one sentence that names the source, the key and the way out. Reads only
the given file and environment; no globals.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from .storage.errors import Error
from .storage.units import seconds, size_bytes

PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"
OWN_FLAGS = (
    *("url", "data", "listen", "advertise", "resp", "http", "metrics", "users", "access", "broker_key", "insecure"),
    *("no_create", "cluster", "node", "peer", "peer_listen"),
)
"""Settings with a flag of their own name; the others are given by --set."""

LIVE = ("drain_s", "log_level")
"""Settings of a running broker that change on SIGHUP."""


FRAME_BYTES = 64 << 20
"""The largest batch of a broker that is alone and does not say."""


class InvalidConfig(Error, ValueError):
    """A configuration file, variable or flag cannot be used."""

    code = "invalid_config"


def _about(text: str, unit: str = "") -> Meta:
    return Meta(description=text, extra={"unit": unit})


class Config(Struct, frozen=True, kw_only=True):
    """All settings. Sizes are written as 64MB, times as 30s (with the unit); lists in a variable have commas."""

    url: Annotated[str, _about("The broker that commands talk to; empty: the first address of `listen`.")]
    timeout_s: Annotated[float, _about("How long a command waits for the broker.", "s")] = 10.0
    key: Annotated[
        str, _about("The key file that programs and commands authenticate with over tcp://; see `penstock key`.")
    ] = ""

    data: Annotated[str, _about("The broker's data directory; made when missing."), Meta(min_length=1)]
    listen: Annotated[
        list[str], _about("Where the broker listens: unix:///path, ipc:///path, tcp://host:port (0: any).")
    ]
    advertise: Annotated[
        list[str],
        _about("Where others connect to the broker, behind containers or NAT; empty: where it listens."),
    ]
    resp: Annotated[
        list[str],
        _about("Where Redis clients connect, to a gateway beside the broker: unix:///path, tcp:// or tls://host:port."),
    ]
    http: Annotated[
        list[str], _about("Where HTTP clients connect, to a gateway beside the broker: unix:///path, tcp://host:port.")
    ]
    metrics: Annotated[
        list[str], _about("Where Prometheus scrapes /metrics: tcp:// or tls://host:port, unix:///path; empty: nowhere.")
    ]
    metrics_partitions: Annotated[bool, _about("Metrics of each partition too, not only of topics and groups.")] = False
    metrics_most: Annotated[int, _about("Topics, groups and queues that have metrics of their own."), Meta(ge=1)] = 1000
    cors: Annotated[list[str], _about("Origins whose web pages may use the HTTP door, like https://page.example.")]
    no_create: Annotated[bool, _about("A record for a topic that is not there is an error at the gateway.")] = False
    tls_certificate: Annotated[
        str, _about("The certificate, a PEM file, of tls:// addresses and of all of the HTTP door; may be renewed.")
    ] = ""
    tls_key: Annotated[str, _about("The key of tls_certificate, a PEM file.")] = ""
    users: Annotated[str, _about("The users file of gateway and metrics; empty: they let any client in.")] = ""
    access: Annotated[
        str, _about("The file of users and what each may do, for broker and gateway; empty: all may do everything.")
    ] = ""
    broker_key: Annotated[
        str,
        _about("The broker's own key file, for tcp:// where users have to be known, and between nodes of a cluster."),
    ] = ""
    insecure: Annotated[bool, _about("Allow addresses that other machines can reach, without authentication.")] = False
    cluster: Annotated[str, _about("The cluster that the broker is a member of; empty: it is alone.")] = ""
    node: Annotated[int, _about("The number of this node in its cluster, 1 to 255.")] = 0
    peer: Annotated[
        list[str],
        _about("Where each node of the cluster, this one too, hears the others: NUMBER=tcp://host:port, and the next."),
    ]
    peer_listen: Annotated[
        str, _about("Where this node hears the others, if not at its address of `peer`: tcp://*:port, and the next.")
    ] = ""
    drain_s: Annotated[float, _about("How long the broker may take to end in good order.", "s")] = 30.0
    board_rows: Annotated[int, _about("Most partitions of one broker; 256 bytes each in /dev/shm."), Meta(ge=8)] = 8192
    mapped_readers: Annotated[int, _about("Most mapped readers at once; further ones are pushed to."), Meta(ge=0)] = 256
    keeper_timeout_s: Annotated[
        float, _about("A keeper that syncs nothing for so long is replaced.", "s"), Meta(ge=1.0)
    ] = 30.0
    lazy_s: Annotated[float, _about("How long a topic with commit=written may stay unsynced.", "s")] = 0.1

    scrub_s: Annotated[
        float, _about("Every closed segment is read and verified about once in this time; 0: never.", "s")
    ] = 7 * 86400.0
    scrub_bytes_s: Annotated[int, _about("Read in a second for that, at most.", "bytes"), Meta(ge=64 << 10)] = 8 << 20

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _about("What processes log: debug, info, warning or error, and what is worse."),
    ] = "warning"
    log_format: Annotated[Literal["text", "json"], _about("How processes log: text or json, a line each.")] = "text"
    log_dir: Annotated[str, _about("Where processes log, a file each; empty: standard error.")] = ""
    log_file_bytes: Annotated[int, _about("A log file is rotated before it is larger.", "bytes"), Meta(ge=1 << 10)] = (
        10 << 20
    )
    log_files: Annotated[int, _about("Log files kept of each process, with the current one."), Meta(ge=1)] = 5
    log_age_s: Annotated[float, _about("A log file is rotated when it is older.", "s")] = 7 * 86400.0

    max_frame_bytes: Annotated[
        int, _about("Largest batch a client may send; in a cluster 4 MiB unless said.", "bytes"), Meta(ge=64 << 10)
    ] = FRAME_BYTES
    max_record_bytes: Annotated[int, _about("Largest record of topics that do not say.", "bytes"), Meta(ge=1)] = (
        16 << 20
    )
    max_topics: Annotated[int, _about("Most topics."), Meta(ge=1)] = 100_000
    max_partitions: Annotated[int, _about("Most partitions of one topic."), Meta(ge=1)] = 1024
    max_producers: Annotated[int, _about("Producers remembered per partition.")] = 1000
    max_schedules: Annotated[int, _about("Schedules per partition.")] = 1000
    max_barriers: Annotated[int, _about("Callbacks per partition that wait for their tasks.")] = 100_000
    max_barrier_bytes: Annotated[
        int, _about("All of a partition together, with results; new ones are refused from half of it on.", "bytes")
    ] = 256 << 20
    max_stages: Annotated[int, _about("Stages of transactions per partition.")] = 10_000
    max_transactions: Annotated[int, _about("Names of transactions remembered, in each of four partitions.")] = 100_000
    max_dedup_keys: Annotated[int, _about("Dedup keys remembered per partition, some 200 bytes each.")] = 1_000_000
    max_sessions: Annotated[int, _about("Most consumers at once.")] = 10_000
    producer_expiry_s: Annotated[float, _about("A silent unnamed producer is forgotten after.", "s")] = 7 * 86400.0
    stage_expiry_s: Annotated[float, _about("Uncommitted staged records are dropped after.", "s")] = 3600.0
    transaction_expiry_s: Annotated[float, _about("Committed epochs of a transaction are forgotten after.", "s")] = (
        90 * 86400.0
    )
    group_expiry_s: Annotated[
        float, _about("A silent group is deleted after; one of a queue once its topic is empty.", "s")
    ] = 30 * 86400.0
    handover_s: Annotated[float, _about("How long a member may keep a partition it should release.", "s")] = 10.0


class Sourced(Struct, frozen=True):
    """One value and where it came from."""

    name: str
    value: Any
    source: str
    about: str
    unit: str


class Loaded(Struct, frozen=True):
    """The configuration, value by value, and variables that look like ours but are none."""

    config: Config
    values: list[Sourced]
    strangers: list[str]

    def source(self, name: str) -> str:
        return next(sourced.source for sourced in self.values if sourced.name == name)


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    path: str | Path | None = None,
) -> Loaded:
    """Load the configuration from flags, environment, file and defaults.

    Args:
        flags: by name; None means not given. Texts are read as in the environment.
        path: the file; without it PENSTOCK_CONFIG, then `config.toml` in the user's directory, which may be missing.
    """
    environ = os.environ if environ is None else environ
    file, found_file = _read_file(path, environ)
    variables = {name: environ[f"{PREFIX}{name.upper()}"] for name in FIELDS if f"{PREFIX}{name.upper()}" in environ}
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    for name in given:
        if name not in FIELDS:
            raise InvalidConfig(f"--set {name}: {_unknown(name, FIELDS)}")
    layers: list[tuple[Mapping[str, Any], Callable[[str], str]]] = [
        (given, lambda name: f"flag --{name}" if name in OWN_FLAGS else f"flag --set {name}"),
        (variables, lambda name: f"environment {PREFIX}{name.upper()}"),
        (file, lambda name: f"file {found_file}"),
    ]
    defaults = _defaults(environ)
    values = [_resolve(name, layers, defaults[name]) for name in FIELDS]
    config = msgspec.convert({sourced.name: sourced.value for sourced in values}, Config)
    return Loaded(config, values, _strangers(environ))


def _resolve(name: str, layers: list[tuple[Mapping[str, Any], Callable[[str], str]]], default: Any) -> Sourced:
    about, unit = FIELDS[name]
    for layer, source in layers:
        if name in layer:
            return Sourced(name, _converted(name, layer[name], source(name)), source(name), about, unit)
    return Sourced(name, default, "default", about, unit)


def _converted(name: str, value: Any, source: str) -> Any:
    """Convert `value` to the field's type. Texts are as people write them: 64MB, 30s, yes, a,b."""
    _, unit = FIELDS[name]
    kind, given = _KINDS[name], value
    try:
        if unit == "s":
            value = seconds(str(value))  # a number in the file lacks its unit as well
        elif isinstance(value, str) and unit:
            value = size_bytes(value)
        elif isinstance(value, str) and kind.__origin__ == list[str]:
            value = [part.strip() for part in value.split(",") if part.strip()]
        elif isinstance(value, str) and kind.__origin__ is bool:
            value = _WORDS.get(value.lower(), value)
        converted = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except (ValueError, msgspec.ValidationError) as error:
        choices = get_args(kind.__origin__) if get_origin(kind.__origin__) is Literal else ()
        why = f"it is none of {', '.join(choices)}" if choices else error
        raise InvalidConfig(f"{source}: {name} = {given!r} cannot be used: {why}") from error
    if isinstance(converted, int | float) and not isinstance(converted, bool) and converted < 0:
        raise InvalidConfig(f"{source}: {name} = {value!r} cannot be used: it is below 0, give 0 or more")
    return converted


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _read_file(path: str | Path | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], Path]:
    """The file's values and its path. Only the user's own file may be missing."""
    named = path or environ.get(FILE_VARIABLE)
    place = Path(named) if named else config_directory(environ) / "config.toml"
    try:
        content = tomllib.loads(place.read_text())
    except FileNotFoundError as error:
        if not named:
            return {}, place
        raise InvalidConfig(f"there is no configuration file {place}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(
            f"cannot read the configuration file {place}: {error}; texts, times and sizes stand in quotes, as in "
            'drain_s = "5s"'
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"cannot read the configuration file {place}: {error}") from error
    for name in content:
        if name not in FIELDS:
            raise InvalidConfig(f"{place}: {_unknown(name, FIELDS)}")
    return content, place


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(known)
    return f"unknown key {name!r}: {hint}"


def _strangers(environ: Mapping[str, str]) -> list[str]:
    known = {f"{PREFIX}{name.upper()}" for name in FIELDS} | {FILE_VARIABLE}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def _defaults(environ: Mapping[str, str]) -> dict[str, Any]:
    own = {
        "url": "",
        "data": str(state_directory(environ)),
        "advertise": [],
        "resp": [],
        "http": [],
        "metrics": [],
        "cors": [],
        "peer": [],
        "listen": [f"unix://{runtime_directory(environ)}/broker.sock"],
    }
    return {field.name: own.get(field.name, field.default) for field in msgspec.structs.fields(Config)}


# -- where a user's things are ---------------------------------------------------------------------


def state_directory(environ: Mapping[str, str]) -> Path:
    """The directory of data."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "penstock"


def config_directory(environ: Mapping[str, str]) -> Path:
    """The directory of config.toml."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "penstock"


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """The directory of sockets. Without XDG_RUNTIME_DIR a directory of our own in /tmp."""
    given = environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/"):
        return Path(given, "penstock")
    return Path(f"/tmp/penstock-{os.getuid() if hasattr(os, 'getuid') else 0}")  # a socket, which only Linux serves


def _base(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    given = environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path(environ.get("HOME") or Path.home(), fallback)


def _fields() -> dict[str, tuple[str, str]]:
    hints = get_type_hints(Config, include_extras=True)
    metas = {name: hint.__metadata__[0] for name, hint in hints.items()}
    return {name: (meta.description, meta.extra["unit"]) for name, meta in metas.items()}


FIELDS = _fields()
"""The settings: name -> (sentence, unit)."""

_KINDS = get_type_hints(Config, include_extras=True)
