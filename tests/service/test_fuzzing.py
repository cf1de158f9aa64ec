"""Requests that are made up from the interface's own description: whatever is asked, the answer is one it names."""

from __future__ import annotations

import contextlib
import json

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .conftest import LiveServer

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
LONGEST_ANSWER_S = 60.0
FEWEST_OPERATIONS = 15
OTHERS = {
    *("/run_code", "/run_jupyter", "/submit", "/list_datasets", "/list_ids", "/get_prompts", "/get_prompt_by_id"),
    *("/api/v2/runtimes", "/api/v2/execute"),
}


@schemathesis.serializer("application/x-ndjson")
def _as_lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    """As many lines as a made-up text has, or one of JSON."""
    return value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()


def test_every_response_conforms_to_the_openapi_description(server: LiveServer):
    operations = _operations(server)
    assert len(operations) >= FEWEST_OPERATIONS
    _ask_all(operations)


def test_every_response_of_compatible_protocols_conforms_to_the_openapi_description(compatible: LiveServer):
    others = [operation for operation in _operations(compatible) if not operation.path.startswith("/v1/")]
    assert {operation.path for operation in others} == OTHERS
    _ask_all(others)


def _operations(server: LiveServer) -> list[schemathesis.APIOperation]:
    schema = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json")
    return [found.ok() for found in schema.get_all_operations()]


def _ask_all(operations: list[schemathesis.APIOperation]) -> None:
    for operation in operations:
        for mode in GenerationMode:
            _ask(operation, mode)


def _ask(operation: schemathesis.APIOperation, mode: GenerationMode) -> None:
    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        _do_not_wait(case)
        case.call_and_validate(checks=CHECKS, timeout=LONGEST_ANSWER_S)

    with contextlib.suppress(Unsatisfiable):  # where nothing is given, nothing is wrong
        ask()


def _do_not_wait(case: schemathesis.Case) -> None:
    """Right requests may ask the server to take its time."""
    for part in (case.query, case.body):
        if isinstance(part, dict) and isinstance(part.get("wait_s"), int | float):
            part["wait_s"] = min(part["wait_s"], 0.05)
