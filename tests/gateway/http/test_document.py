"""The OpenAPI document, tried: schemathesis makes requests of it, valid and invalid ones, and the door holds to it."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from ..conftest import GatewayProcess

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
CASES = 15
"""Requests of each operation; many more in `make soak`."""


@pytest.fixture
def schema(gateway: GatewayProcess) -> Any:
    found = schemathesis.openapi.from_url(f"{gateway.http_url}/openapi.json")
    return found.exclude(operation_id=["tail", "statsEvents"])  # these do not end


def test_the_door_does_what_its_document_says(schema: Any, request: pytest.FixtureRequest) -> None:
    cases = CASES * (10 if request.config.getoption("--soak") else 1)
    tried = [_try(result.ok(), cases) for result in schema.get_all_operations()]
    assert len(tried) >= 15


def _try(operation: Any, cases: int) -> None:
    either = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @settings(max_examples=cases, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=either)
    def each(case: Any) -> None:
        for wait in ("timeout_ms", "wait_ms"):
            if wait in (case.query or {}):
                case.query[wait] = 1
        case.call_and_validate(checks=CHECKS, timeout=60)

    each()
