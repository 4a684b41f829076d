"""What is wrong with a body or a query, in our words: msgspec's sentences name its types and places, not the fields.

Contract: every sentence names the field, as a client writes it, where one is wrong. What is not recognised stays as it
came. Pure.
"""

from __future__ import annotations

import re

UNKNOWN = "there is no field"

_TYPES = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "null": "null",
    "object": "an object", "array": "a list", "bytes": "base64",
}  # fmt: skip
_PLACE = re.compile(r"(?P<said>.*?)(?: - at (?P<key>`key` in )?`(?P<place>(?:\$|key|[^`])*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<kinds>[a-z| ]+)`(?P<bound>[^`,]*)(?:, got `(?P<got>[a-z]+)`)?")
_FIELD = re.compile(r"Object (?P<how>missing required|contains unknown) field `(?P<name>.*)`")
_BYTE = re.compile(r".*\(byte (?P<byte>\d+)\)", re.DOTALL)


def sentence(error: str, whole: str) -> str:
    """An error of msgspec's validation; `whole` is what was validated: `the body`, `the query`."""
    found = _PLACE.fullmatch(error)
    assert found is not None, "everything matches"
    field = (found["place"] or "").lstrip("$").lstrip(".")
    where = f"a name in {field or whole}" if found["key"] else field or whole
    said = found["said"]
    if expected := _EXPECTED.fullmatch(said):
        kinds = " or ".join(_TYPES.get(each, each) for each in expected["kinds"].split(" | "))
        got = f", not {_TYPES.get(expected['got'], expected['got'])}" if expected["got"] else ""
        return f"{where} has to be {kinds}{expected['bound']}{got}"
    if named := _FIELD.fullmatch(said):
        if named["how"] == "contains unknown":
            return f"{where}: {UNKNOWN} `{named['name']}`"
        return f"{where}: the field `{named['name']}` is missing"
    return f"{where}: {said[:1].lower()}{said[1:]}"


def malformed(error: str) -> str:
    """A body that is no JSON."""
    if "truncated" in error:
        return "the body is not JSON: it ends too early"
    found = _BYTE.fullmatch(error)
    at = f" at byte {found['byte']}" if found else ""
    return f"the body is not JSON in UTF-8: it is malformed{at}"
