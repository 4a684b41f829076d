"""The page of the operations: plain HTML made from the table, without scripts and without anything from elsewhere.

Pure.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from itertools import groupby
from typing import Any

from .openapi import body_fields, query_parameters
from .operation import HttpOperation

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
@media (prefers-color-scheme: dark) { body { background: #181a1b; color: #ddd } code { background: #2a2d2e } }
summary { cursor: pointer; padding: .3rem 0 }
code { background: #f0f0f0; padding: .1rem .3rem; border-radius: 3px; color: inherit }
summary b { display: inline-block; min-width: 4.5rem }
dl { margin-left: 1rem } dt { float: left; clear: left; min-width: 9rem } dd { margin-left: 10rem }
@media (prefers-color-scheme: dark) { code { background: #2a2d2e } }
"""

POLICY = b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" % (
    b64encode(sha256(STYLE.encode()).digest())
)
"""The page's Content-Security-Policy."""


def page(table: Sequence[HttpOperation]) -> bytes:
    """The page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>penstock over HTTP</title><style>{STYLE}</style><h1>penstock over HTTP</h1>",
        "<p>For programs: <a href=/openapi.json>/openapi.json</a>.</p>",
    ]
    for tag, rows in groupby(sorted(table, key=lambda row: row.tag), key=lambda row: row.tag):
        parts.append(f"<h2>{tag.capitalize()}</h2>")
        parts += [_operation(row) for row in rows]
    return "".join(parts).encode()


def _operation(row: HttpOperation) -> str:
    facts = [(each["name"], _kind(each["schema"])) for each in query_parameters(row)]
    facts += [(name, about) for name, about in row.headers]
    if row.takes:
        facts.append(("body", ", ".join(row.takes)))
        facts += [(f"… {each['name']}", _field(each)) for each in body_fields(row)]
    facts.append(("answer", f"{row.status}, {row.gives_what}"))
    listed = "".join(f"<dt><code>{escape(name)}</code><dd>{escape(about)}" for name, about in facts)
    about = f"<p>{escape(row.about)}" if row.about else ""
    head = f"<summary><b>{row.method}</b> <code>{escape(row.path)}</code> {escape(row.summary)}</summary>"
    return f"<details>{head}{about}<dl>{listed}</dl></details>"


def _field(field: dict[str, Any]) -> str:
    """A field of a body in words."""
    schema = field["schema"]
    kinds = [str(each["type"]) for each in schema.get("anyOf", [schema]) if each.get("type", "null") != "null"]
    said = {key: value for key, value in schema.items() if key != "default" or value is not None}
    shown = " or ".join(dict.fromkeys(kinds)) or "any JSON value"
    about = _kind({**said, "type": ""})
    return " ".join(filter(None, ["Required." if field["required"] else "", f"{shown.capitalize()}.", about]))


def _kind(schema: dict[str, object]) -> str:
    """A parameter in words."""
    said = [str(schema[name]) for name in ("description",) if name in schema]
    if "minimum" in schema:
        said.append(f"From {schema['minimum']} to {schema.get('maximum', 'any')}.")
    if "default" in schema:
        said.append(f"Default: {schema['default']}.")
    return " ".join(said) or str(schema.get("type", ""))
