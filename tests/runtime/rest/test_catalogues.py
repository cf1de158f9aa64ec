"""Catalogues are checked whole, bound what is requested by them, and are derived from descriptions of services."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.rest.catalogue import catalogue_from
from autoclave.runtime.rest.connection import lease_of_services
from autoclave.runtime.rest.evidence import is_part_of
from autoclave.runtime.rest.expressions import evaluated, with_value, without
from autoclave.runtime.rest.forms import canonical
from autoclave.runtime.rest.loading import SHIPPED, catalogue_of_openapi, load_catalogue
from autoclave.runtime.rest.schemas import require_form, require_schema
from tests.runtime.rest.acting import asked, connection, done, opened, plain, written
from tests.runtime.rest.odd_service import OddService

CONTRIB = Path(__file__).parents[3] / "contrib" / "catalogues"
PROVEN = ("kinto", "radicale", "synapse")
FILES = sorted([*SHIPPED.glob("*.yaml"), *CONTRIB.glob("*.yaml")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_catalogue_is_whole(file: Path):
    catalogue, name, text = load_catalogue(str(file)), file.stem, file.read_text()
    assert catalogue_from(json.loads(catalogue.model_dump_json()), name) == catalogue
    assert catalogue.service == name
    assert text.startswith("# Not run against ") == (file.parent == CONTRIB)
    assert (file.parent == SHIPPED) == (name in PROVEN)
    assert text.startswith("#")
    for operation, spec in catalogue.operations.items():
        assert spec.summary, operation
        for undo in spec.undo:
            assert (undo.status == "pinned") <= (name in PROVEN), operation


def broken(change: dict[str, Any]) -> dict[str, Any]:
    """Kinto's catalogue with something else at a path of names."""
    catalogue = plain("kinto")
    for path, value in change.items():
        place: Any = catalogue
        *names, last = path.split(".")
        for name in names:
            place = place[int(name)] if isinstance(place, list) else place[name]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return catalogue


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"operations.delete_record.undo.0.operation": "put_recrod"}, "there is none; did you mean put_record?"),
        ({"operations.delete_record.undo.0.arguments.idd": "x"}, r"undo.0.arguments.idd: put_record has none; did you"),
        ({"operations.delete_record.undo.0.arguments.id": None}, "put_record needs 'id'"),
        ({"operations.delete_record.undo.0.arguments.id": "$reqest.path.id"}, "must begin with .* and one of request"),
        ({"operations.delete_record.undo.0.arguments.id": "$request.path.id!"}, "is not an expression"),
        ({"operations.delete_record.read_back": "recrod"}, 'read_back = "recrod": there is none; did you mean record?'),
        ({"operations.create_record.subject": {}}, "the read-back 'record' needs 'id' as well"),
        ({"operations.delete_record.method": "delete"}, "method: .*must match pattern"),
        ({"operations.delete_record.verb": "destroy"}, "must be '', 'read'"),
        ({"operations.delete_record.aside": {}}, r"operations\.delete_record\.aside: is not a field of a catalogue"),
        ({"operations.get_record.path": "/v1/x?y=1"}, "path: .*must match pattern"),
        ({"operations.get_record.parameters": {"x": {}}}, "'x' is not in the path"),
        ({"operations.put_record.body.form": {"type": "objekt"}}, r"\.body\.form: is not a JSON Schema"),
        ({"operations": None}, "operations: "),
        ({"read_backs.record.method": "delete it all"}, "read_backs.record.method: .*must match pattern"),
        ({"read_backs.record.volatile": ["nopointer"]}, "must be empty or begin with /"),
        ({"read_backs.record.path": "/x/../y"}, "can be read in several ways"),
        ({"refusals": {"ok": False}}, "must be empty or begin with /"),
        ({"operations.get_record.path": "x"}, "must be absolute and plain"),
        ({"operations.put_record.body.form": {"$ref": "file:///etc/passwd"}}, "retrieving it failed"),
    ],
)
def test_what_is_wrong_in_a_catalogue_is_named(tmp_path: Path, change: dict[str, Any], rule: str):
    with pytest.raises(InputError, match=rule):
        load_catalogue(written(tmp_path, broken(change)))


def test_a_file_that_is_no_catalogue_says_so(tmp_path: Path):
    for text, rule in (("{", "no YAML"), ("[]", "must be an object"), ("a: 1\na: 2", "no YAML .*is given twice")):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(InputError, match=rule):
            load_catalogue(f"{tmp_path}/x.yaml")
    with pytest.raises(
        InputError, match=r"there is none; did you mean kinto.*contrib/catalogues in the source has more"
    ):
        load_catalogue("kintoo")
    os.mkfifo(tmp_path / "fifo.yaml")
    with pytest.raises(InputError, match="is not a plain file"):
        load_catalogue(f"{tmp_path}/fifo.yaml")


FRAMING = [
    "Transfer-Encoding", "content-length", "HOST", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
    "Proxy-Authorization", "Range", "Accept-Encoding", "Authorization", "Cookie", "Content-Type", "If-Match",
    "X-HTTP-Method-Override", "X_Http_Method_Override", "X-Original-URL", "X:y",
]  # fmt: skip


@pytest.mark.parametrize("name", FRAMING)
def test_a_catalogue_sets_no_header_that_frames_a_request_or_has_a_place_of_its_own(name: str):
    get = {"method": "GET", "path": "/x"}
    for catalogue in (
        {"headers": {name: "x"}, "operations": {"get": get}},
        {"operations": {"get": {**get, "parameters": {name: {"place": "header"}}}}},
        {"operations": {"get": {**get, "idempotency": name}}},
    ):
        with pytest.raises(InputError, match="is no header that a catalogue can set"):
            catalogue_from({"service": "x", **catalogue}, "here")
    with pytest.raises(InputError, match="must be printable ASCII"):
        catalogue_from({"service": "x", "headers": {"X-A": "a\r\nb"}, "operations": {"get": get}}, "here")


# --- Schemas ---------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth else {"b": 1}


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 60 + "!"),
        ({"pattern": "^(a|a)*$"}, "a" * 60 + "!"),
        ({"pattern": "^((?=a)a+)+$"}, "a" * 60 + "!"),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 60 + "!": 1}),
        ({"properties": {"a": {"allOf": [{"$ref": "#"}] * 2}}, "not": {"required": ["b"]}}, nested(40)),
    ],
    ids=["nested", "ambiguous", "lookahead", "others", "all names", "itself"],
)
def test_no_schema_takes_for_ever(form: dict[str, Any], value: object):
    require_schema(form)
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"does not match|was unexpected|backtracking|is not allowed"):
        require_form("here", value, form)
    assert time.monotonic() - begun < 20


def forking(keyword: dict[str, Any]) -> dict[str, Any]:
    """A schema whose every level applies the following one as often as `keyword` has NEXT in it."""
    levels = {f"s{n}": json.loads(json.dumps(keyword).replace("NEXT", f"#/$defs/s{n + 1}")) for n in range(40)}
    return {"$ref": "#/$defs/s0", "$defs": {**levels, "s40": {}}}


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        ({"pattern": "("}, 'is not a "regex"'),
        ({"type": "nothing"}, "is not a JSON Schema"),
        ({"$ref": "#name", "$defs": {"x": {"$anchor": "name"}}}, "is not a pointer into it"),
        (forking({"allOf": [{"$ref": "NEXT"}] * 2}), "applies more than 200,000 subschemas"),
        (forking({"patternProperties": {"a": {"$ref": "NEXT"}, "b": {"$ref": "NEXT"}}}), "applies more than"),
    ],
)
def test_a_schema_that_cannot_be_checked_by_is_refused_when_it_is_read(form: dict[str, Any], rule: str):
    with pytest.raises(InputError, match=rule):
        require_schema(form)


# --- Requests --------------------------------------------------------------------------------------------------------


def test_expressions_are_those_of_openapi():
    context = {
        "request": {"path": {"id": "7"}, "query": {}, "header": {}, "body": {"a": [1, {"b/c": 2}]}},
        "response": {"status": 201, "header": {"etag": '"1"'}, "body": {"id": 9}},
    }
    template = {
        "id": "$request.path.id",
        "deep": "$request.body#/a/1/b~1c",
        "all": "$request.body",
        "tag": "$response.header.ETag",
        "path": "/x/{$response.body#/id}/y",
        "part": {"of": "$request.body", "without": ["/a/0"]},
        "plain": ["$", "text"][1:],
    }
    assert evaluated(template, context) == {
        "id": "7",
        "deep": 2,
        "all": {"a": [1, {"b/c": 2}]},
        "tag": '"1"',
        "path": "/x/9/y",
        "part": {"a": [{"b/c": 2}]},
        "plain": ["text"],
    }
    with pytest.raises(InputError, match="there is nothing of that name"):
        evaluated("$response.body#/nothing", context)
    assert with_value({"a": 1}, "/b/c", 2) == {"a": 1, "b": {"c": 2}}
    assert without({"a": [{"b": 1, "c": 2}]}, ["/a/*/b"]) == {"a": [{"c": 2}]}
    assert is_part_of({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3})
    assert not is_part_of({"a": 1}, {"a": True})
    assert not is_part_of([1], [1, 2])


def test_calendars_are_compared_without_regard_to_order_and_folding():
    one = "BEGIN:VEVENT\r\nUID:a\r\nSUMMARY:long\r\n er\r\nEND:VEVENT\r\n"
    other = "BEGIN:VEVENT\nSUMMARY:longer\nLAST-MODIFIED:x\nUID:a\nEND:VEVENT"
    assert canonical(one, "icalendar", ["last-modified"]) == canonical(other, "icalendar", ["last-modified"])
    assert canonical(one, "icalendar", []) != canonical(other.replace("longer", "Longer"), "icalendar", [])


# --- Descriptions of services ----------------------------------------------------------------------------------------

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


ITEMS = """
openapi: 3.0.3
paths:
  /items/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    get:
      operationId: get
      responses:
        "200":
          content:
            application/json: {schema: {properties: {at: {readOnly: true}, echo: {readOnly: true}}}}
    put: {operationId: put, requestBody: {content: {application/json: {}}}, responses: {"200": {}}}
    delete: {operationId: delete, responses: {"200": {}}}
"""


def test_compensations_derived_from_a_description_are_tried_and_then_proven(tmp_path: Path):
    (path := tmp_path / "service.yaml").write_text(ITEMS)
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


# --- Sessions --------------------------------------------------------------------------------------------------------


def test_a_service_is_for_one_session_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    urls = ["https://api.example.com", "https://other.example.com"]
    with lease_of_services(urls):
        with pytest.raises(InputError, match="another session works on it"), lease_of_services(urls[:1]):
            pass
        with lease_of_services(["https://third.example.com"]):
            pass
    with lease_of_services(urls[::-1]):
        pass
