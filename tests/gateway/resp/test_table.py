"""The table of commands: the page has it, and its rows agree with themselves."""

from __future__ import annotations

import re

import pytest
from penstock.gateway.resp.table import TABLE, as_markdown
from support.sources import ROOT


def test_the_page_has_the_table():
    page = (ROOT / "docs" / "resp.md").read_text()
    (found,) = re.findall(r"<!-- commands -->\n\n(.*?)\n\n<!-- end of commands -->", page, re.DOTALL)
    assert found == as_markdown(), "print penstock.gateway.resp.table.as_markdown() and paste it"


@pytest.mark.parametrize("name", TABLE)
def test_a_row_agrees_with_itself(name):
    row = TABLE[name]
    assert row.usage.split()[0] == row.name == name
    assert row.fits(abs(row.arity))
    assert not row.fits(abs(row.arity) - 1)
    assert row.fits(abs(row.arity) + 1) == (row.arity < 0)
