"""Requests that are made up from the interface's own description never fail the server."""

from __future__ import annotations

import contextlib

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from .conftest import Reviewed

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]


def test_every_response_is_one_that_the_description_names(reviewed: Reviewed):
    reviewed.run({"do": "write", "path": "notes.txt", "content": "two\n"})
    schema = schemathesis.openapi.from_dict(reviewed.get("openapi.json"))
    schema.config.update(base_url=str(reviewed.client.base_url))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 14
    for operation in operations:
        for mode in GenerationMode:
            _ask(operation, mode, dict(reviewed.client.headers))


def _ask(operation: schemathesis.APIOperation, mode: GenerationMode, headers: dict[str, str]) -> None:
    @settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=30, headers={"Authorization": headers["authorization"]})

    with contextlib.suppress(Unsatisfiable):  # where nothing is given, nothing is wrong
        ask()
