"""The OpenAPI document of a table of operations.

Contract: made from the rows alone, so that it says what dispatch does. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .operation import JSON, HttpOperation, NoQuery
from .problems import PHRASES, Problem

_REF = "#/components/schemas/{name}"

PATH_PARAMETERS = {
    "queue": ("Name of a queue, which is a topic.", r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$"),
    "topic": ("Name of a topic.", r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$"),
    "group": ("Name of a queue group.", r"^[A-Za-z0-9._-]{1,200}$"),
    "barrier": ("Id of a callback.", r"^[0-9a-f]{32}$"),
    "name": ("Name of a schedule.", r"^[A-Za-z0-9._-]{1,200}$"),
    "id": ("Id of a task.", r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}-[0-9]{1,9}-[0-9]{1,18}$"),
    "worker": ("Name of a worker.", r"^[^/]{1,200}$"),
    "consumer": ("Name of a consumer.", r"^[A-Za-z0-9._-]{1,200}$"),
}


def document(table: Sequence[HttpOperation]) -> bytes:
    """The document, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for row in table:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    problems = {
        str(status): {"description": phrase, "content": {JSON: {"schema": _schema(Problem)}}}
        for status, phrase in PHRASES.items()
    }
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock", "version": "1",
            "description": "Topics as queues of messages, tasks, administration. Every error has a Problem as body.",
        },
        "paths": paths,
        "components": {
            "schemas": _components(table), "responses": problems,
            "securitySchemes": {each: {"type": "http", "scheme": each} for each in ("basic", "bearer")},
        },
    }  # fmt: skip
    return msgspec.json.encode(found)


def _operation(row: HttpOperation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": row.name, "tags": [row.tag], "summary": row.summary, "parameters": _parameters(row),
        "responses": _responses(row),
    }  # fmt: skip
    if not row.open:
        found["security"] = [{"basic": []}, {"bearer": []}, {}]  # where there is no users file, without
    if row.about:
        found["description"] = row.about
    if row.takes:
        content = {each: _content(row, each) for each in row.takes}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _content(row: HttpOperation, media_type: str) -> dict[str, Any]:
    if media_type == JSON:
        return {"schema": _schema(row.shape)}
    return {"schema": {"type": "string"}}


def parameters_of_path(path: str) -> list[str]:
    """The names in braces."""
    return re.findall(r"{(\w+)}", path)


def query_parameters(row: HttpOperation) -> list[dict[str, Any]]:
    """The parameters of a row's query: name, schema, and whether it has to be there."""
    (top,), components = msgspec.json.schema_components([row.query], ref_template=_REF)
    shape = components[top["$ref"].rpartition("/")[2]]
    required = shape.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in shape["properties"].items()
    ]


def body_fields(row: HttpOperation) -> list[dict[str, Any]]:
    """The fields of a row's JSON body, as `query_parameters` has those of its query."""
    if row.shape is None:
        return []
    (top,), components = msgspec.json.schema_components([row.shape], ref_template=_REF)
    single = next(each for each in top.get("anyOf", [top]) if "$ref" in each)
    shape = components[single["$ref"].rpartition("/")[2]]
    required = shape.get("required", [])
    return [
        {"name": name, "required": name in required, "schema": schema} for name, schema in shape["properties"].items()
    ]


def _parameters(row: HttpOperation) -> list[dict[str, Any]]:
    found = []
    for name in parameters_of_path(row.path):
        about, pattern = PATH_PARAMETERS[name]
        schema = {"type": "string", "pattern": pattern}
        found.append({"name": name, "in": "path", "required": True, "description": about, "schema": schema})
    headers = [
        {"name": name, "in": "header", "description": about, "schema": {"type": "string"}}
        for name, about in row.headers
    ]
    return [*found, *query_parameters(row), *headers]


def statuses(row: HttpOperation) -> list[int]:
    """The errors that an operation may be answered with."""
    if row.open:
        return [400, 429, 503]
    found = [400, 401, 403, 429, 500, 503]
    if "{" in row.path or row.takes or row.query is not NoQuery:
        found += [404]
    if row.method != "GET":
        found += [409]
    if row.takes:
        found += [413, 415]
    return sorted(found)


def _responses(row: HttpOperation) -> dict[str, Any]:
    content = {} if row.gives is None else {JSON: {"schema": _schema(row.gives)}}
    content |= {each: {"schema": {"type": "string"}} for each in row.also_gives}
    done = {"description": "Done."} | ({"content": content} if content else {})
    errors = {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses(row)}
    return {str(row.status): done, **errors}


def _schema(kind: Any) -> Any:
    (found,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return found


def _components(table: Sequence[HttpOperation]) -> dict[str, Any]:
    kinds = [kind for row in table for kind in (row.shape, row.gives) if kind is not None]
    _, found = msgspec.json.schema_components([*kinds, Problem], ref_template=_REF)
    return found
