"""The table of operations: the page has it, and its rows agree with themselves and with each other."""

from __future__ import annotations

import json
import re

import pytest
from penstock.gateway.http.openapi import PATH_PARAMETERS, body_fields, document, parameters_of_path, statuses
from penstock.gateway.http.operation import preferences
from penstock.gateway.http.page import page
from penstock.gateway.http.problems import PHRASES
from penstock.gateway.http.table import TABLE, as_markdown
from support.sources import ROOT


def test_the_page_has_the_table():
    page = (ROOT / "docs" / "http.md").read_text()
    (found,) = re.findall(r"<!-- operations -->\n\n(.*?)\n\n<!-- end of operations -->", page, re.DOTALL)
    assert found == as_markdown(), "print penstock.gateway.http.table.as_markdown() and paste it"


def test_no_two_rows_are_the_same():
    assert len({row.name for row in TABLE}) == len(TABLE) == len({(row.method, row.path) for row in TABLE})
    assert all(f"`{row.method} {row.path}" in as_markdown() for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_row_agrees_with_itself(row):
    assert set(parameters_of_path(row.path)) <= set(PATH_PARAMETERS)
    assert not row.takes or row.method in ("POST", "PUT", "PATCH")
    assert (row.shape is None) == (not row.takes)
    assert (row.status == 204) == (row.gives_what == "no content")
    assert set(statuses(row)) <= set(PHRASES)
    assert not row.summary.endswith(".")


@pytest.mark.parametrize("row", [row for row in TABLE if row.takes], ids=lambda row: row.name)
def test_the_page_has_the_fields_of_every_body(row):
    shown = page([row]).decode()
    fields = body_fields(row)
    assert fields
    assert all(f"<code>… {field['name']}</code><dd>" in shown for field in fields)
    assert shown.count("<dd>Required.") == sum(field["required"] for field in fields)


def test_the_page_says_types_limits_and_defaults():
    (row,) = [row for row in TABLE if row.name == "createTopic"]
    shown = page([row]).decode()
    assert "<code>… name</code><dd>Required. String. 1 to 200 of" in shown
    assert "<code>… partitions</code><dd>Integer. From 1 to 1048576. Default: 1." in shown


def test_the_document_has_every_row():
    paths = json.loads(document(TABLE))["paths"]
    assert {(method.upper(), path) for path, found in paths.items() for method in found} == {
        (row.method, row.path) for row in TABLE
    }


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("", [""]), ("*/*", ["*/*"]), ("a/b, c/d;q=0.5, e/f;q=0.9", ["a/b", "e/f", "c/d"]), ("a/b;q=0, c/d", ["c/d"]),
        ("a/b;q=x, c/d; v=1 ; q=0.1", ["c/d"]), ("a/a, b/b", ["a/a", "b/b"]),
    ],
)  # fmt: skip
def test_what_a_client_prefers_comes_first(accept, found):
    assert preferences(accept) == found
