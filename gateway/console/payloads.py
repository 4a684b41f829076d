"""The bytes of a record as text that people can read, and that shows what is there.

Idea: JSON is laid out, other UTF-8 stays as it is, and anything else becomes a hex dump. Characters that cannot be
seen, or that turn the direction of writing round, are shown as escapes, so that a payload cannot look like another one.

Contract: what comes out is text, which the template escapes. It is made of the first `limit` bytes. Pure.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

import msgspec
from msgspec import Struct

Form = Literal["auto", "json", "text", "hex"]
FORMS: tuple[Form, ...] = get_args(Form)

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class Shown(Struct, frozen=True):
    """A value as a page has it. `cut`: only its beginning."""

    form: Literal["null", "json", "text", "hex"]
    text: str
    size: int
    cut: bool = False


def shown(content: bytes | None, form: Form, limit: int) -> Shown:
    """Bytes in a form; `auto` is the first that fits. JSON that is not any becomes text."""
    if content is None:
        return Shown("null", "null", 0)
    cut, size = len(content) > limit, len(content)
    if form in ("auto", "json") and not cut and (found := _json(content, form == "json")) is not None:
        return Shown("json", visible(found), size)
    part = bytes(content[:limit])
    if form == "auto":
        text = _utf8(part, cut)
        form = "hex" if text is None or _is_binary(text) else "text"
    if form == "hex":
        return Shown("hex", hexdump(part), size, cut)
    return Shown("text", visible(part.decode(errors="replace")), size, cut)


def line(content: bytes | None, most: int) -> str:
    """The beginning of a value, in one line of `most` characters."""
    if content is None:
        return "null"
    text = _utf8(bytes(content[: most * 4]), len(content) > most * 4)
    if text is None or _is_binary(text):
        return bytes(content[: most // 3]).hex(" ") + (" …" if len(content) > most // 3 else "")
    text = " ".join(visible(text[: most + 1]).split())
    return text if len(text) <= most else text[:most] + "…"


def visible(text: str) -> str:
    """Text without characters that hide, or that change how others are read."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))


def hexdump(content: bytes) -> str:
    """Sixteen bytes a line: where they are, what they are, and those that are ASCII."""
    lines = []
    for start in range(0, len(content), 16):
        part = content[start : start + 16]
        right = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {right}")
    return "\n".join(lines)


def _json(content: bytes, anything: bool) -> str | None:
    """Laid out; None for what is no JSON, or, unless `anything`, neither an object nor a list."""
    if not anything and content.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(content)
        return msgspec.json.format(content, indent=2).decode()
    except (ValueError, RecursionError):
        return None


def _utf8(content: bytes, cut: bool) -> str | None:
    """Decoded; None for what is no UTF-8. Where it was cut, the last character may be incomplete."""
    for short in range(4 if cut else 1):
        try:
            return content[: len(content) - short].decode()
        except UnicodeDecodeError:
            continue
    return None


def _is_binary(text: str) -> bool:
    return any(ord(each) < 32 and each not in "\t\n\r" for each in text)
