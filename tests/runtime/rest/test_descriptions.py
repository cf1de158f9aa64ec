"""A description of a service may be by anybody: of taking back it is believed in nothing but the thing itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.rest import catalogue_of_openapi
from autoclave.runtime.session import Session
from tests.runtime.rest.acting import connection, done, opened
from tests.runtime.rest.scripted_service import Items, ScriptedService

GIVEN = {"in": "path", "name": "id", "required": True, "schema": {"type": "string"}}
BODY = {"content": {"application/json": {"schema": {"type": "object"}}}}


def described(**put: Any) -> dict[str, Any]:
    """A description of items that can be put, and of what only an administrator may delete."""
    item = {
        "get": {"operationId": "get", "parameters": [GIVEN], "responses": {"200": {}}},
        "put": {"operationId": "put", "parameters": [GIVEN], "requestBody": BODY, "responses": {"200": {}}, **put},
    }
    account = {
        "get": {"operationId": "account", "parameters": [GIVEN], "responses": {"200": {}}},
        "delete": {"operationId": "dismiss", "parameters": [GIVEN], "responses": {"200": {}}},
    }
    return {"openapi": "3.0.0", "paths": {"/items/{id}": item, "/accounts/{id}": account}}


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService(Items()) as service:
        yield service


def opened_by(service: ScriptedService, folder: Path, document: Any) -> Session:
    (path := folder / "service.json").write_text(json.dumps(document))
    return opened(folder, {"odd": connection(service.port, catalogue=str(path), secret="", queue_s=0.0)})


@pytest.mark.parametrize(
    "undo",
    [
        {"operation": "dismiss", "arguments": {"id": "boss"}, "grade": "exact"},
        {"operation": "dismiss", "arguments": {"id": "$request.path.id"}},
    ],
    ids=["a name of its own", "the same name"],
)
def test_a_compensation_about_something_else_is_refused(undo: dict[str, Any]):
    with pytest.raises(InputError, match=r"/accounts/\{id\} is not below a read-back of what /items/\{id\} changes"):
        catalogue_of_openapi(described(**{"x-undo": [undo]}), "odd")


def test_a_compensation_with_another_name_for_the_thing_is_not_sent(service: ScriptedService, tmp_path: Path):
    undo = [{"operation": "put", "arguments": {"id": "other", "body": {"a": 0}}}]
    with opened_by(service, tmp_path, described(**{"x-undo": undo})) as session:
        action = done(session, "put", "odd", id="x", body={"a": 1})
        with pytest.raises(InputError, match="targets services/odd/items/other, not this resource"):
            session.undo(action)
    assert "/items/other" not in {path for _, path in service.asked}


def test_a_read_back_of_something_else_is_refused():
    with pytest.raises(InputError, match=r"put.read_back: /accounts/\{id\} is about something else than /items/\{id\}"):
        catalogue_of_openapi(described(**{"x-undo": {"read_back": "account", "subject": {"id": "boss"}}}), "odd")


def test_a_description_of_thousands_of_operations_is_read_in_time_of_its_length():
    paths: dict[str, Any] = {}
    for number in range(1500):
        paths[f"/a{number}"] = {"post": {"operationId": f"c{number}", "requestBody": BODY, "responses": {"201": {}}}}
        paths[f"/a{number}/{{id}}"] = {"delete": {"operationId": f"d{number}", "responses": {"204": {}}}}
    began = time.process_time()
    catalogue = catalogue_of_openapi({"openapi": "3.0.0", "paths": paths}, "large")
    assert len(catalogue.operations) == 3000
    assert time.process_time() - began < 10.0
