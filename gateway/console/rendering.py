"""Pages from templates, with the headers that keep them harmless.

Idea: templates escape everything that they are given, and a page's Content-Security-Policy lets no script run that is
not a file of this folder. So a payload that is markup stays text, twice. Characters that cannot be seen are shown.

Contract: every page has `HEADERS`, and is not stored by browsers. Files are in memory; their addresses have a hash of
their bytes, so that browsers keep them. This module alone knows Jinja.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from msgspec import Struct

from ...clients.descriptions import instant
from ..http.operation import HttpCall, HttpOperation, Reply
from ..http.problems import PHRASES, Problem, Refusal
from . import figures, payloads

_HERE = Path(__file__).parent
_TYPES = {
    "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}  # fmt: skip

HTML = "text/html; charset=utf-8"

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every page and file. `data:` images are those inside Pico's style sheet."""

NO_STORE = (b"cache-control", b"no-store")


class StaticQuery(Struct, forbid_unknown_fields=True):
    """`v`: what the address of a file ends in, so that another version has another one."""

    v: str = ""


class StaticFiles:
    """The files of the console, in memory."""

    def __init__(self) -> None:
        found = {path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir()) if path.is_file()}
        self._files = {
            name: Reply(content, _TYPES[name.rpartition(".")[2]], headers=(*HEADERS, (b"cache-control", KEPT)))
            for name, content in found.items()
        }
        self._hashes = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in found.items()}

    def address(self, name: str) -> str:
        """Where a page finds a file."""
        return f"/console/static/{name}?v={self._hashes[name]}"

    async def get(self, call: HttpCall) -> Reply:
        """The handler of files. Raises Refusal."""
        found = self._files.get(call.path["name"])
        if found is None:
            raise Refusal(404, "no_such_path", "the console has no such file")
        return found


KEPT = b"public, max-age=31536000, immutable"


class Renderer:
    """Fills templates."""

    def __init__(self, files: StaticFiles) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False, finalize=_visible,
        )  # fmt: skip
        names = ("count", "brief", "rate", "size", "age", "micros", "percent", "setting")
        self._environment.filters.update({name: getattr(figures, name) for name in names})
        self._environment.filters.update(
            time=_time, since=_since, segment=lambda text: quote(str(text), safe=""), query=_query, line=payloads.line,
            spark=figures.spark, instant=instant, searched=_searched,
        )  # fmt: skip
        self._environment.globals.update(file=files.address, NONE=figures.NONE)

    def page(self, template: str, context: Mapping[str, Any], status: int = 200) -> Reply:
        """A page."""
        text = self._environment.get_template(template).render(context)
        return Reply(text.encode(errors="replace"), HTML, status, (*HEADERS, NO_STORE))

    def problem(self, status: int, problem: Problem) -> Reply:
        """The page of a request that failed."""
        context = {"status": status, "problem": problem, "about": PHRASES.get(status, "")}
        return self.page("problem.html", context, status)


def _visible(shown: Any) -> Any:
    """What a page shows: text of other programs without characters that hide or that change how others are read."""
    return payloads.visible(shown) if isinstance(shown, str) and not isinstance(shown, Markup) else shown


def _time(moment: datetime | None) -> Markup:
    """A time: in UTC, which the browser's script turns into local time."""
    if moment is None:
        return escape(figures.NONE)
    full = figures.iso(moment)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(full, full, re.sub(r"T|\.\d+", " ", full).rstrip())


@pass_context
def _since(context: Context, moment: datetime | None) -> str:
    """How long ago a time is."""
    return figures.NONE if moment is None else figures.age(max((context["now"] - moment).total_seconds(), 0.0))


def _searched(key: bytes) -> str:
    """A key as the message browser takes it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text and not text.startswith("0x") else f"0x{key.hex()}"


def _query(path: str, **fields: object) -> str:
    """A path with a query of the fields that say something."""
    said = {name: value for name, value in fields.items() if value not in ("", None)}
    return f"{path}?{urlencode(said)}" if said else path


def static_page(files: StaticFiles) -> HttpOperation:
    """The operation of the console's files, which anyone may load."""
    return HttpOperation(
        method="GET", path="/console/static/{name}", name="consoleFile", tag="gateway", handler=files.get, open=True,
        query=StaticQuery, summary="A file of the console",
    )  # fmt: skip
