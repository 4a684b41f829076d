"""Options of the sink, and the valid combinations. Pure: reads no file and no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from ..errors import InvalidOption
from ..options import Endpoint, Option, duration, one_of, read_options, text

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"


def number(value: str) -> int:
    """A number from 0 up."""
    if not value.strip().isdecimal():
        raise ValueError("it is a whole number from 0 up")
    return int(value)


def lasting_name(value: str) -> str:
    """A name that the broker remembers: those that begin with ~ it forgets within an hour."""
    if value.strip().startswith("~"):
        raise ValueError("a name that begins with ~ is soon forgotten, and the write could be done twice")
    return text(value)


class SinkOptions(Endpoint, frozen=True, kw_only=True):
    """The options of a write. `topic` "": each row names its own."""

    topic: Annotated[str, Option("topic", text, "The topic of all rows, whatever their column `topic` says.")] = ""
    delivery: Annotated[
        str,
        Option(
            "delivery",
            one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
            "`exactly-once`: rows are staged and committed together; `at-least-once`: sent while tasks run.",
        ),
    ] = EXACTLY_ONCE
    transaction: Annotated[
        str,
        Option(
            "txnId",
            lasting_name,
            "The name to commit under; a query has one of its own. With `txnVersion`, a batch write that was done "
            "before is not done again.",
        ),
    ] = ""
    version: Annotated[
        int | None,
        Option("txnVersion", number, "Of a batch write: its number under `txnId`, which rises from run to run."),
    ] = None
    commit_timeout_s: Annotated[
        float,
        Option("commitTimeout", duration, "How long the commit of a write may take, also while the broker restarts."),
    ] = 600.0
    codec: Annotated[
        str | None, Option("codec", one_of("none", "lz4", "zstd"), "Compression, instead of the topic's setting.")
    ] = None


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write. Raises InvalidOption for one that is unknown, and for those that do not go together."""
    found = read_options(SinkOptions, _with_our_names(given))
    if found.delivery == AT_LEAST_ONCE and (found.transaction or found.version is not None):
        raise InvalidOption(
            f"options txnId and txnVersion mean nothing with delivery={AT_LEAST_ONCE}: leave out these, or the delivery"
        )
    if streaming and found.version is not None:
        raise InvalidOption("option txnVersion is for batch writes: Spark itself numbers the micro-batches of a query")
    if not streaming and bool(found.transaction) != (found.version is not None):
        raise InvalidOption(
            "options txnId and txnVersion go together in a batch write: the name of a job, and a number that rises "
            "with each of its runs"
        )
    return found


def _with_our_names(given: Mapping[str, str]) -> dict[str, str]:
    """Delta's name of `txnId` is taken, too."""
    return {"txnId" if name.lower() == "txnappid" else name: value for name, value in given.items()}
