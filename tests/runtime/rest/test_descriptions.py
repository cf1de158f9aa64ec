"""A description of a service gives a catalogue, in which what is obvious is taken back by what is obvious."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.rest import catalogue_of_openapi
from autoclave.runtime.rest.schemas import require_form
from tests.runtime.rest.acting import asked, connection, done, opened
from tests.runtime.rest.odd_service import OddService

BODY = {"content": {"application/json": {"schema": {"type": "object"}}}}


def test_a_description_of_thousands_of_operations_is_read_in_time_of_its_length():
    paths: dict[str, Any] = {}
    for number in range(1500):
        paths[f"/a{number}"] = {"post": {"operationId": f"c{number}", "requestBody": BODY, "responses": {"201": {}}}}
        paths[f"/a{number}/{{id}}"] = {"delete": {"operationId": f"d{number}", "responses": {"204": {}}}}
    began = time.process_time()
    catalogue = catalogue_of_openapi({"openapi": "3.0.0", "paths": paths}, "large")
    assert len(catalogue.operations) == 3000
    assert time.process_time() - began < 10.0


# --- What is derived -------------------------------------------------------------------------------------------------

OPENAPI: dict[str, Any] = yaml.safe_load("""
openapi: 3.1.0
servers: [{url: "https://api.example.com/v2"}]
paths:
  /things:
    post:
      operationId: createThing
      requestBody: &body
        required: true
        content: &content {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}
      responses: {"201": {content: *content}}
  /things/{thing}:
    parameters: [{name: thing, in: path, required: true, schema: {type: string}}]
    get: {operationId: getThing, responses: {"200": {content: *content}}}
    put:
      operationId: putThing
      parameters: [{name: If-Match, in: header, schema: {type: string}}]
      requestBody: *body
      responses: {"200": {}}
    delete: {operationId: deleteThing, responses: {"204": {}}}
  /mails: {post: {operationId: send, responses: {"202": {}}}}
components:
  schemas:
    Thing:
      type: object
      properties:
        id: {type: string, readOnly: true}
        changed: {type: string, readOnly: true}
        inside: {$ref: "#/components/schemas/Thing"}
""")


def test_obvious_compensations_are_read_from_a_description():
    catalogue = catalogue_of_openapi(OPENAPI, "example")
    undos = {name: [(each.operation, each.when) for each in spec.undo] for name, spec in catalogue.operations.items()}
    assert undos == {
        "createThing": [("deleteThing", "absent")],
        "getThing": [],
        "putThing": [("deleteThing", "absent"), ("putThing", "existed")],
        "deleteThing": [("putThing", "existed")],
        "send": [],
    }
    assert {undo.status for spec in catalogue.operations.values() for undo in spec.undo} == {"unproven"}
    assert catalogue.operations["createThing"].subject == {"thing": "$response.body#/id"}
    assert catalogue.operations["putThing"].is_guarded
    assert catalogue.operations["putThing"].path == "/v2/things/{thing}"
    assert catalogue.read_backs["getThing"].volatile == ("/changed",)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"openapi": "2.0"}, "must be of version 3"),
        ({"paths": []}, "is no description by OpenAPI 3"),
        ({"paths": {"/x": {"get": {"parameters": [{}]}}}}, "is no description by OpenAPI 3"),
        ({"paths": {"/x": {"$ref": "#/nowhere"}}}, "#/nowhere: there is nothing"),
        ({"paths": {"/x": {"$ref": "https://elsewhere/x"}}}, "there is nothing of that name in the document"),
        ({"paths": {"/a-b": {"get": {}}, "/a_b": {"get": {}}}}, "has the name 'get_a_b', as GET /a-b has"),
    ],
)
def test_what_is_wrong_in_a_description_is_named(change: dict[str, Any], rule: str):
    with pytest.raises(InputError, match=rule):
        catalogue_of_openapi({**OPENAPI, **change}, "example")


def test_a_description_whose_schemas_fork_again_and_again_is_read_at_once():
    def fork(number: int) -> dict[str, Any]:
        following = {"$ref": f"#/components/schemas/s{number + 1}"}
        return {"type": "object", "properties": {"a": following, "b": following}}

    schemas = {f"s{number}": fork(number) for number in range(40)} | {"s40": {"type": "string"}}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/s0"}}}}
    headers = [{"in": "header", "name": name} for name in ("Authorization", "Connection", "X-Note")]
    document = {
        "openapi": "3.0.0",
        "paths": {"/x": {"put": {"operationId": "put", "requestBody": body, "parameters": headers}}},
        "components": {"schemas": schemas},
    }
    spec = catalogue_of_openapi(document, "example").operations["put"]
    assert list(spec.parameters) == ["X-Note"]
    assert spec.body
    assert list(spec.body.form["properties"]) == ["a", "b"]
    require_form("here", {"a": {"b": {"a": {}}}}, spec.body.form)
    with pytest.raises(InputError, match=r"here\.a\.b = 1: "):
        require_form("here", {"a": {"b": 1}}, spec.body.form)


def test_compensations_derived_from_a_description_are_tried_and_then_proven(tmp_path: Path):
    item = {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}
    shows = {
        "200": {
            "content": {
                "application/json": {"schema": {"properties": {"at": {"readOnly": True}, "echo": {"readOnly": True}}}}
            }
        }
    }
    item |= {
        "get": {"operationId": "get", "responses": shows},
        "put": {"operationId": "put", "requestBody": {"content": {"application/json": {}}}, "responses": {"200": {}}},
        "delete": {"operationId": "delete", "responses": {"200": {}}},
    }
    (path := tmp_path / "service.json").write_text(json.dumps({"openapi": "3.0.3", "paths": {"/items/{id}": item}}))
    with OddService(items={"x": {"n": 1}}) as service:
        services = {"odd": connection(service.port, catalogue=str(path), secret="", queue_s=0.0)}
        with opened(tmp_path, services) as session:
            given = asked("put", "odd", id="x", body={"n": 2})
            assert session.plan(given).guarantee is Guarantee.NONE
            session.undo(done(session, "put", "odd", id="x", body={"n": 2}))
            assert service.items == {"x": {"n": 1}}
            assert session.plan(given).guarantee is Guarantee.EQUIVALENT
            session.undo(done(session, "delete", "odd", id="x"))
            assert service.items == {"x": {"n": 1}}
