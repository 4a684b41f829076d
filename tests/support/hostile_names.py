"""Names that a hostile client would choose, over two hundred: none of them is a name (transport/names.py)."""

from __future__ import annotations

import string

from penstock.transport.names import is_name

_OTHER_ASCII = [each for each in map(chr, range(128)) if each not in string.ascii_letters + string.digits + "._-"]
_PATHS = [
    ".", "..", "...", "../", "../../etc/passwd", "..\\..\\windows", "./a", ".a", ".git", "a/..", "a/../b", "/",
    "//", "/etc/passwd", "//host/share", "\\\\?\\C:\\", "C:", "~", "~root", "a//b", "a/.", "%2e%2e%2f", "..%2f",
    "%00", "%", "%zz", "file:///etc/passwd",
]  # fmt: skip
_CODE = [
    "'; DROP TABLE t;--", '" OR 1=1', "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{7*7}}",
    "${jndi:ldap://x}", "$(id)", "`id`", "a;id", "a|id", "a&&id", "*", "topic:*", "a*", "?", "[a-z]", "{a,b}",
    "a\r\nSet-Cookie: x", "a\r\n\r\n<html>", "*3\r\n$3\r\nSET", "__proto__[x]", "a,b", "a=b", "null\x00",
    "=cmd|'/c calc'!A1", "a#b", "a?b=c", "%s%s%n", "{0.__class__}", "\\x00", "\x1b[2J",
]  # fmt: skip
_UNICODE = [
    "\xe4", "\uff41", "\u0430", "a\u0301", "\u202egnp", "\u200b", "a\u200b", "\ufeff", "a\xa0", "\u2028", "\u2029",
    "\x00", "\ud800", "a\udcff", "\ufb01", "\u0130", "\u0131", "\xdf", "\u212a", "\u212b", "\u0661", "\U0001d7d9",
    "\U0001f600", "\U0010ffff", "\u65e5\u672c", "a\u0338", "\u2024\u2024", "\uff0e\uff0e\uff0f", "a\u2215b", "\x85",
    "\u061c", "a\u034f",
]  # fmt: skip
_LONG = ["a" * 201, "a" * 255, "a" * 4096, "\u00e4" * 100, "." * 200, "a/" * 100, "a" * 200 + ".", "a" * 200 + "\n"]

_FORMED = [form.format(each) for each in _OTHER_ASCII for form in ("{}a", "a{}")]

HOSTILE_NAMES = list(dict.fromkeys(["", *_PATHS, *_CODE, *_UNICODE, *_LONG, *_FORMED]))

assert len(HOSTILE_NAMES) >= 200
assert [each for each in HOSTILE_NAMES if is_name(each)] == []


def shown(name: str) -> str:
    """A name as the id of a test, or in its error."""
    return ascii(name[:40])
