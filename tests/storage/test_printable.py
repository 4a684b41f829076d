"""Text of other programs in a log and on a terminal."""

from __future__ import annotations

import pytest
from penstock.storage.printable import printable, printable_below


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""), ("tea \u00e9\u8336", "tea \u00e9\u8336"), ("a\nb", "a\\nb"), ("a\r\tb", "a\\r\\tb"),
        ("\x1b[2J", "\\x1b[2J"), ("\x7f\x85", "\\x7f\\x85"), ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("\udcff", "\\udcff"), ("'\"\0", "'\"\\x00"),
    ],
)  # fmt: skip
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_below_another_are_indented_and_printable() -> None:
    assert (
        printable_below("Traceback:\n  in f\nValueError: a\r\x1b\n")
        == "  Traceback:\n    in f\n  ValueError: a\\r\\x1b\n  "
    )
