"""Bytes as text: each form, what is cut, and characters that hide."""

from __future__ import annotations

import pytest
from penstock.gateway.console.payloads import hexdump, line, shown, visible

LIMIT = 1000


@pytest.mark.parametrize(
    ("content", "form", "kind", "text"),
    [
        (b'{"a":[1,2]}', "auto", "json", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
        (b"17", "auto", "text", "17"),
        (b"17", "json", "json", "17"),
        (b"{no json}", "json", "text", "{no json}"),
        (b'{"a":1}', "text", "text", '{"a":1}'),
        (b'{"a":1}', "hex", "hex", "00000000  7b 22 61 22 3a 31 7d" + " " * 28 + '  {"a":1}'),
        ("grüße".encode(), "auto", "text", "grüße"),
        (b"\xff\xfe", "auto", "hex", "00000000  ff fe" + " " * 43 + "  .."),
        (b"a\x00b", "auto", "hex", "00000000  61 00 62" + " " * 40 + "  a.b"),
        (b"\xff", "text", "text", "�"),
        (b"", "auto", "text", ""),
        (None, "auto", "null", "null"),
        (b"[" * 900, "auto", "text", "[" * 900),
    ],
)
def test_bytes_have_a_form(content, form, kind, text):
    found = shown(content, form, LIMIT)
    assert (found.form, found.text, found.cut) == (kind, text, False)


def test_a_large_value_is_cut_and_its_size_said():
    found = shown(b'["' + b"a" * 2000 + b'"]', "auto", LIMIT)
    assert (found.form, len(found.text), found.size, found.cut) == ("text", LIMIT, 2004, True)
    assert not shown(b"a" * LIMIT, "auto", LIMIT).cut
    assert shown(b"\xff" * 20, "auto", 16).text.count("\n") == 0


def test_a_character_that_is_cut_does_not_make_text_binary():
    content = b"a" * 15 + "€".encode() + b"b" * 10
    assert (shown(content, "auto", 16).form, shown(content, "auto", 17).form) == ("text", "text")
    assert line("€".encode() * 30, 5) == "€€€€€…"


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\u200b", "\x1b", "\x85", "\ufeff", "\u061c"])
def test_characters_that_hide_are_shown(hidden):
    assert visible(f"a{hidden}b") == f"a\\u{ord(hidden):04x}b"
    assert hidden not in shown(f'{{"a":"{hidden}"}}'.encode(), "text", LIMIT).text
    assert hidden not in line(f"a{hidden}".encode(), 10)


def test_visible_text_keeps_its_lines():
    assert visible("a\r\nb\tc\nd") == "a\nb\tc\nd"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "null"),
        (b"", ""),
        (b"two\n  lines", "two lines"),
        (b"a" * 12, "aaaaaaaaaaaa"),
        (b"a" * 13, "aaaaaaaaaaaa…"),
        (b"\xff\xfe", "ff fe"),
        (b"\xff" * 10, "ff ff ff ff …"),
    ],
)
def test_a_line_has_the_beginning(content, text):
    assert line(content, 12) == text


def test_a_dump_has_sixteen_bytes_a_line():
    first, second = hexdump(bytes(range(32, 64)) + b"z").splitlines()[0::2]
    assert first == "00000000  20 21 22 23 24 25 26 27  28 29 2a 2b 2c 2d 2e 2f   !\"#$%&'()*+,-./"
    assert second.startswith("00000020  7a")
