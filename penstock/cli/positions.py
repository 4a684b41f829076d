"""Parses where to begin: earliest, latest, an offset, or a time. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import click

from ..storage import units

Position = Literal["earliest", "latest"] | int | datetime


def position(text: str, now: datetime) -> Position:
    """Parse a position: a word, an offset, an ISO time (without a zone: local), or -15m before `now`.

    Raises ValueError.
    """
    if text == "earliest" or text == "latest":
        return text
    if text.isdecimal():
        return int(text)
    if text.startswith("-"):
        return now - timedelta(seconds=units.seconds(text[1:]))
    try:
        return moment(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no position: write earliest, latest, an offset, a time like 2026-01-31T12:00, or -15m"
        ) from error


def moment(text: str) -> datetime:
    """An ISO time; without a zone it is local. Raises ValueError, also for one that is in no year of UTC."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no time: write one like 2026-01-31T12:00, or with a zone: ...T12:00Z") from error


def utc_text(moment: datetime | None) -> str | None:
    """A time for people, as the broker's sentences have it."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class _PositionType(click.ParamType):
    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        if not isinstance(value, str):
            return value
        try:
            return position(value, datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _MomentType(click.ParamType):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


POSITION = _PositionType()
MOMENT = _MomentType()
