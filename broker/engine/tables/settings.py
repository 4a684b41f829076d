"""The settings of a topic: fields, defaults (commit level, retention, dedup window, ...) and ranges.

Idea: a frozen struct of plain numbers and strings, on the wire, in the log and in snapshots. Sizes are bytes, times
are seconds; clients parse "64MB" and "7d".
Contract: `parse` and `altered` raise InvalidSettings with one sentence that names key, value and what is allowed.
Settings of other things are checked in the same way, by `checked`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct, structs

from ...errors import InvalidSettings

MIB = 1 << 20

BESIDE = ("partitions",)
"""Arguments beside the settings of a topic, which a misspelt setting may mean."""

S = TypeVar("S", bound=Struct)


class TopicSettings(Struct, frozen=True, kw_only=True):
    """Settings of one topic."""

    commit: Literal["durable", "written"] = "durable"  # acknowledged when synced, or when in the page cache
    segment_bytes: int = 64 * MIB  # a new file after so many bytes; the unit that retention removes
    retention_s: float | None = None  # records older than this may go
    retention_bytes: int | None = None  # per partition: the oldest beyond this may go
    retention_records: int | None = None  # per partition: the oldest beyond this many may go
    retain_unread: bool = False  # never remove what a group has not committed yet
    codec: Literal["none", "lz4", "zstd"] = "none"  # how producers compress values; a hint, never checked
    max_record_bytes: int = 16 * MIB
    partitioner: Literal["xxh3", "murmur2"] = "xxh3"  # the hash by which keys choose partitions; murmur2 as in Kafka
    dedup: Literal["drop", "replace", "extend"] = "drop"  # what a second record with a dedup key does within the window
    dedup_window_s: float = 300.0  # how long a dedup key is remembered

    def named(self) -> dict[str, Any]:
        """Settings by name, as on the wire."""
        return structs.asdict(self)


RANGES: dict[str, tuple[float, float]] = {
    "segment_bytes": (64 << 10, 4 << 30),
    "retention_s": (1, 100 * 366 * 86400),
    "retention_bytes": (64 << 10, 1 << 60),
    "retention_records": (1, 10**15),
    "max_record_bytes": (1, 1 << 30),
    "dedup_window_s": (0.001, 30 * 86400),
}
FIXED = ("commit", "partitioner")
"""Settings that are fixed at creation: a log has one commit level, and a key stays in its partition."""


def parse(given: dict[str, Any]) -> TopicSettings:
    """Settings of a new topic, defaults for the rest."""
    return checked("topic setting", TopicSettings, RANGES, {}, given, beside=BESIDE)


def altered(current: TopicSettings, given: dict[str, Any]) -> TopicSettings:
    """`current` with `given` changed."""
    for name in FIXED:
        if name in given and given[name] != getattr(current, name):
            raise InvalidSettings(
                f"topic setting {name} cannot be changed from {getattr(current, name)!r} to {given[name]!r}: "
                "create a new topic"
            )
    return checked("topic setting", TopicSettings, RANGES, current.named(), given, beside=BESIDE)


def checked(
    what: str, kind: type[S], ranges: Mapping[str, tuple[float, float]], base: dict[str, Any], given: dict[str, Any],
    *, beside: Sequence[str] = (),
) -> S:  # fmt: skip
    """`base` with `given` as settings of a kind. Raises InvalidSettings; `what` says whose in its sentence.

    `beside` has further names that a misspelt one may mean.
    """
    for name in given:
        if name not in kind.__struct_fields__:
            raise InvalidSettings(_unknown(what, (*kind.__struct_fields__, *beside), name))
    try:
        settings = msgspec.convert({**base, **given}, kind)
    except msgspec.ValidationError as error:
        raise InvalidSettings(_refusal(what, kind, given, str(error))) from None
    for name, (lowest, highest) in ranges.items():
        value = getattr(settings, name)
        if value is not None and not lowest <= value <= highest:
            without = ", or nothing for no limit" if type(None) in _choices(kind, name) else ""
            raise InvalidSettings(f"{what} {name}={value} is not allowed: {lowest} to {highest}{without}")
    return settings


def _choices(kind: type[Struct], name: str) -> tuple[Any, ...]:
    """What a setting may be: its words, or its types where there are several."""
    return get_args(next((field.type for field in structs.fields(kind) if field.name == name), None))


WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
"""Types of settings, for people."""


def _refusal(what: str, kind: type[Struct], given: dict[str, Any], error: str) -> str:
    """Rewords a message of msgspec like "Expected `int`, got `str` - at `$.segment_bytes`"."""
    reason, _, place = error.partition(" - at `$.")
    name = place.rstrip("`")
    choices = _choices(kind, name)
    if choices and all(isinstance(choice, str) for choice in choices):
        reason = " or ".join(choices)
    wanted = WORDS.get(reason.partition("`")[2].partition("`")[0].removesuffix(" | null"))
    return f"{what} {name}={given.get(name)!r} is not allowed: {reason if wanted is None else f'it has to be {wanted}'}"


def _unknown(what: str, known: Sequence[str], name: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
    return f"{what} {name!r} is unknown: {hint}"
