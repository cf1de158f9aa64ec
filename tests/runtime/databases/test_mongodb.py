"""MongoDB: what is pure is tested here and now; the engine itself wherever there is a real server."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bson import encode
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, ConnectionFailure, OperationFailure, WriteError

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.conformance import SECRET, EngineConformance, Ground
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, open_engine
from autoclave.runtime.databases.mongodb.catalogue import CollectionFacts
from autoclave.runtime.databases.mongodb.connection import replica_set, require_rights
from autoclave.runtime.databases.mongodb.documents import bytes_of, id_of, image_of, key_in_words, statement_of
from autoclave.runtime.databases.mongodb.failures import Busy, translated
from autoclave.runtime.databases.mongodb.parsing import Step, parsed
from autoclave.runtime.databases.mongodb.recorder import is_told, made_by
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt
from tests.mongodb import DBNAME, PASSWORD, USER, Mongodb, mongodb
from tests.runtime.databases.test_holding import until

__all__ = ["mongodb"]

# --- Documents ------------------------------------------------------------------------------------------------------

OF_EACH_TYPE: dict[str, Any] = {
    "double": 1.0,
    "minus zero": -0.0,
    "no number": float("nan"),
    "infinity": float("-inf"),
    "text": 'a"\n\u0000\u2603',
    "document": {"z": 1, "a": {"y": Int64(1), "b": 1.0}},
    "array": [1, [None, {}], "x"],
    "bytes": Binary(b"\x00\xff", 0),
    "old uuid": Binary(bytes(16), 3),
    "uuid": Binary(bytes(16), 4),
    "bytes of users": Binary(b"x", 0x80),
    "object id": ObjectId("64b7f0c2a1b2c3d4e5f60718"),
    "true": True,
    "date": DatetimeMS(-1),
    "a date that Python does not know": DatetimeMS(2**62),
    "null": None,
    "regex": Regex("^a/b", "imx"),
    "reference": {"$ref": "item", "$id": 1},
    "code": Code("f()"),
    "code with scope": Code("f()", {"a": 1}),
    "int32": -(2**31),
    "timestamp": Timestamp(1, 2),
    "int64": Int64(5),
    "large": 2**62,
    "decimal": Decimal128("1.00"),
    "decimal zero": Decimal128("-0E+3"),
    "least": MinKey(),
    "most": MaxKey(),
}


@pytest.mark.parametrize("value", OF_EACH_TYPE.values(), ids=OF_EACH_TYPE)
def test_a_value_of_each_type_comes_back_byte_by_byte(value: Any):
    data = encode({"_id": 1, "value": value, "a": 0})
    key, text = image_of(data, "here")
    assert key == "1"
    assert bytes_of(json.loads(json.dumps(text))) == data


VALUES = st.recursive(
    st.sampled_from([*OF_EACH_TYPE.values()]) | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text("abcd.é_", max_size=3), each, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcd", min_size=1, max_size=3), VALUES, max_size=5), st.integers() | st.text())
def test_documents_come_back_byte_by_byte_or_are_refused(fields: dict[str, Any], key: Any):
    try:
        data = encode({"_id": key, **fields})
    except OverflowError:
        return
    try:
        image = image_of(data, "here")
    except InputError:
        assert _has_payload(fields)
        return
    assert bytes_of(image[1]) == data
    assert key_in_words(id_of(image)) == image[0]


def _has_payload(value: Any) -> bool:
    """Whether there is a NaN in it that is not the usual one."""
    if isinstance(value, dict):
        return any(map(_has_payload, value.values()))
    if isinstance(value, list):
        return any(map(_has_payload, value))
    return isinstance(value, float) and value != value and struct.pack("<d", value) != struct.pack("<d", float("nan"))


def _with_payload() -> bytes:
    nan = struct.pack("<Q", 0x7FF8000000000001)
    return encode({"_id": 1, "a": 1.0}).replace(struct.pack("<d", 1.0), nan)


@pytest.mark.parametrize(
    "data",
    [
        _with_payload(),
        encode({"_id": 1, "a": "x"}).replace(b"\x02a\x00", b"\x0ea\x00"),  # a symbol
        encode({"_id": 1, "a": None}).replace(b"\x0aa\x00", b"\x06a\x00"),  # undefined
        encode({"_id": 1, "a": 1, "b": 1}).replace(b"b\x00", b"a\x00"),
        encode({"_id": 1, "a": {"$oid": "no type"}}),
        encode({"a": 1}),
    ],
    ids=["NaN with a payload", "symbol", "undefined", "a field twice", "a name of a type", "no _id"],
)
def test_what_a_text_cannot_say_is_refused_before_anything_is_done(data: bytes):
    with pytest.raises(InputError, match="collection shop/item: a document holds what cannot be kept exactly"):
        image_of(data, "collection shop/item")


def test_numbers_that_are_the_same_to_the_server_have_one_key():
    assert {key_in_words(each) for each in (5, Int64(5), 5.0, Decimal128("5.00"), Decimal128("0.5E1"))} == {"5"}
    assert key_in_words(50) == "50"
    assert key_in_words(0.0) == key_in_words(-0.0) == "0"


def test_others_have_keys_of_their_own():
    oid = ObjectId("abc7f0c2a1b2c3d4e5f60718")
    several = [5, "5", oid, f"{oid}", "a", '"a"', True, "true", None, "null", 0.1, Decimal128("0.1"), "", {"a": 1}]
    several += ["NaN", float("nan"), float("inf"), "Infinity", Decimal128("1E+6000"), Decimal128("1E+6001")]
    assert len({key_in_words(each) for each in several}) == len(several)


@given(st.one_of(st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1)), st.floats(allow_nan=False))
def test_keys_of_numbers_are_the_same_where_the_numbers_are(one: float, other: float):
    assert (key_in_words(one) == key_in_words(other)) == (one == other)


# --- Statements -----------------------------------------------------------------------------------------------------


def _parsed(**command: Any) -> list[Step]:
    return parsed(json.dumps(command), 1)


def test_each_part_of_a_command_is_a_step_whose_documents_can_be_asked_for():
    one, other = _parsed(
        update="item",
        updates=[
            {"q": {"_id": 7}, "u": {"$inc": {"price": 1}}, "upsert": True},
            {"q": {"kind": "book"}, "u": {"$set": {"price": 1}}, "multi": True, "collation": {"locale": "de"}},
        ],
        let={"a": 1},
    )
    assert (one.finding, one.is_single, one.keys) == ({"filter": {"_id": 7}, "let": {"a": 1}}, True, ["7"])
    assert one.verbs == {"modify", "create"}
    assert other.finding == {"filter": {"kind": "book"}, "collation": {"locale": "de"}, "let": {"a": 1}}
    assert (other.is_single, other.keys, other.verbs) == (False, None, {"modify"})
    assert [len(each.command["updates"]) for each in (one, other)] == [1, 1]


def test_values_keep_their_types_and_fields_their_order():
    text = (
        '{"insert": "item", "documents": [{"_id": {"$numberLong": "1"}, "z": 1, "a": 1.0, "m": {"$numberInt": "1"}}]}'
    )
    (step,) = parsed(text, 1)
    assert encode(step.documents[0]) == encode({"_id": Int64(1), "z": 1, "a": 1.0, "m": 1})


def test_a_document_without_an_id_gets_one_that_is_not_settled():
    (named,), (unnamed,) = _parsed(insert="item", documents=[{"_id": 1}]), _parsed(insert="item", documents=[{"a": 1}])
    assert named.is_settled
    assert not unnamed.is_settled
    assert list(unnamed.documents[0]) == ["_id", "a"]


@pytest.mark.parametrize(
    "update",
    [
        {"$currentDate": {"at": True}},
        [{"$set": {"at": "$$NOW"}}],
        [{"$set": {"a": {"$rand": {}}}}],
        {"$set": {"at": {"$timestamp": {"t": 0, "i": 0}}}},
    ],
)
def test_what_a_clock_or_chance_fills_in_is_not_settled(update: Any):
    (step,) = _parsed(update="item", updates=[{"q": {}, "u": update}])
    assert not step.is_settled


def test_a_document_that_an_upsert_makes_is_settled_where_its_filter_names_it():
    update = {"$set": {"a": 1}}
    for query, is_settled in (({"_id": 7}, True), ({"kind": "book"}, False), ({"_id": {"$in": [1, 2]}}, False)):
        (one,) = _parsed(findAndModify="item", query=query, update=update, upsert=True)
        (other,) = _parsed(update="item", updates=[{"q": query, "u": update, "upsert": True}])
        assert one.is_settled is other.is_settled is is_settled


def test_what_a_filter_names_is_known_by_its_key():
    queries = [{"_id": 7}, {"_id": {"$in": [7, "x"]}}, {"_id": {"$eq": 8}, "a": 1}, {"_id": {"$gt": 7}}, {}]
    steps = [_parsed(delete="item", deletes=[{"q": query, "limit": 0}])[0] for query in queries]
    assert [each.keys for each in steps] == [["7"], ["7", "x"], ["8"], None, None]


SOME = [{"q": {}, "u": {"$set": {"a": 1}}}]
REFUSED: dict[str, tuple[str, str]] = {
    "two in one": ('{"delete": "a", "deletes": []}{"delete": "b", "deletes": []}', "is no Extended JSON"),
    "no JSON": ("DELETE FROM item", "is no Extended JSON"),
    "an array": ("[]", "must be one JSON object"),
    "nothing": ("{}", "its first field must be the command"),
    "a field twice": ('{"delete": "a", "delete": "b", "deletes": []}', "says something twice"),
    "a look": ('{"find": "item"}', "its first field must be the command"),
    "another command first": ('{"drop": "a", "insert": "a", "documents": [{}]}', "its first field must be the command"),
    "an aggregation": ('{"aggregate": "item", "pipeline": [{"$out": "b"}]}', "its first field must be the command"),
    "an end": ('{"commitTransaction": 1}', "its first field must be the command"),
    "a session": ('{"insert": "a", "documents": [{}], "lsid": {"id": 1}}', "lsid: not let through"),
    "a transaction": ('{"insert": "a", "documents": [{}], "txnNumber": 1}', "txnNumber: not let through"),
    "a concern": ('{"insert": "a", "documents": [{}], "writeConcern": {"w": 0}}', "writeConcern: not let through"),
    "another database": ('{"insert": "a", "documents": [{}], "$db": "admin"}', r"\$db: not let through"),
    "no validation": (
        '{"insert": "a", "documents": [{}], "bypassDocumentValidation": true}',
        "bypassDocumentValidation: not let through",
    ),
    "some of it": ('{"insert": "a", "documents": [{}], "ordered": false}', "ordered: must be true"),
    "no documents": ('{"insert": "a", "documents": []}', "one object or more"),
    "no limit": ('{"delete": "a", "deletes": [{"q": {}}]}', "lacks limit"),
    "a strange limit": ('{"delete": "a", "deletes": [{"q": {}, "limit": 2}]}', "must be 0"),
    "true as a limit": ('{"delete": "a", "deletes": [{"q": {}, "limit": true}]}', "must be 0"),
    "a number as a flag": ('{"update": "a", "updates": [{"q": {}, "u": {}, "multi": 1}]}', "multi: must be true"),
    "code in a filter": ('{"delete": "a", "deletes": [{"q": {"$where": "1"}, "limit": 0}]}', r"\$where: runs code"),
    "code in an array": (
        '{"delete": "a", "deletes": [{"q": {"$or": [{"$expr": {"$function": {}}}]}, "limit": 0}]}',
        r"\$function: runs code",
    ),
    "code as a value": (
        '{"delete": "a", "deletes": [{"q": {"a": {"$code": "f()"}}, "limit": 0}]}',
        r"\$code: code and deprecated types",
    ),
    "an unknown stage": (
        '{"update": "a", "updates": [{"q": {}, "u": [{"$match": {}}]}]}',
        "each stage must be one of",
    ),
    "another collection in a stage": (
        '{"update": "a", "updates": [{"q": {}, "u": [{"$set": {"x": {"$lookup": {}}}}]}]}',
        r"\$lookup: runs code, or reaches another collection",
    ),
    "an unknown operator": ('{"update": "a", "updates": [{"q": {}, "u": {"$isolated": 1}}]}', "operators out of"),
    "operators and fields": (
        '{"update": "a", "updates": [{"q": {}, "u": {"$set": {"a": 1}, "b": 1}}]}',
        "operators out of",
    ),
    "a collection of the server": ('{"insert": "system.users", "documents": [{}]}', "not begin with system"),
    "a name in two parts": ('{"insert": "a/b", "documents": [{}]}', "without"),
    "a number as a name": ('{"insert": 1, "documents": [{}]}', "must be a text"),
    "neither of both": ('{"findAndModify": "a", "query": {}}', "give one of both"),
    "both": ('{"findAndModify": "a", "query": {}, "remove": true, "update": {}}', "give one of both"),
    "a value beside its type": (
        '{"delete": "a", "deletes": [{"q": {"_id": {"$numberInt": "1", "$gt": 0}}, "limit": 0}]}',
        r"\$numberInt: a value of a type stands alone",
    ),
    "no object id": ('{"delete": "a", "deletes": [{"q": {"_id": {"$oid": "x"}}, "limit": 0}]}', "is no Extended JSON"),
    "NaN": ('{"insert": "a", "documents": [{"x": NaN}]}', "NaN: is no JSON"),
    "too deep for JSON": ('{"a":' * 100_000, "is nested too deeply"),
    "too deep for BSON": (
        '{"insert": "a", "documents": [' + '{"a":' * 200 + "1" + "}" * 200 + "]}",
        "is nested too deeply",
    ),
}


@pytest.mark.parametrize(("statement", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_change_of_documents_is_refused(statement: str, message: str):
    with pytest.raises(InputError, match=rf"statement 3: .*{message}"):
        parsed(statement, 3)


def test_an_operator_for_texts_loses_nothing_that_stands_beside_it():
    """It is no value of a type: a filter that lost a part would meet more documents."""
    query = {"name": {"$regex": "^a", "$options": "i", "$ne": "ab"}}
    assert statement_of(json.dumps({"q": query})) == {"q": query}


# --- What the server says of what it did ----------------------------------------------------------------------------

UPDATE, DELETE = (
    _parsed(update="item", updates=SOME)[0],
    _parsed(delete="item", deletes=[{"q": {}, "limit": 0}])[0],
)
MODIFY = _parsed(findAndModify="item", query={}, update={"$set": {"a": 1}})[0]


@pytest.mark.parametrize(
    ("step", "told", "found", "num_changed", "is_so"),
    [
        (UPDATE, {"n": 1, "nModified": 1}, ["1"], 1, True),
        (UPDATE, {"n": 1, "nModified": 1}, ["1"], 0, False),  # it was another one
        (UPDATE, {"n": 1, "nModified": 0}, ["1"], 0, True),
        (UPDATE, {"n": 2, "nModified": 1}, ["1"], 1, False),
        (DELETE, {"n": 2}, ["1", "2"], 2, True),
        (DELETE, {"n": 3}, ["1", "2"], 2, False),
        (DELETE, {"n": 1}, ["1", "2"], 1, False),
        (DELETE, {"n": 2}, ["1", "2"], 1, False),
        (MODIFY, {"value": {"_id": 1}, "lastErrorObject": {"n": 1}}, ["1"], 1, True),
        (MODIFY, {"value": {"_id": 2}, "lastErrorObject": {"n": 1}}, ["1"], 0, False),
        (MODIFY, {"value": None, "lastErrorObject": {"n": 0}}, [], 0, True),
        (MODIFY, {"value": {"_id": 1}, "lastErrorObject": {"n": 1}}, [], 0, False),
    ],
)
def test_documents_that_were_not_foreseen_are_seen_by_the_answer(
    step: Step, told: dict[str, Any], found: list[str], num_changed: int, is_so: bool
):
    assert is_told(step, told, found, num_changed, 0) is is_so


def test_what_an_upsert_made_is_named_by_the_answer():
    assert made_by(UPDATE, {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 7}]}) == [7]
    assert is_told(UPDATE, {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 7}]}, [], 0, 1)
    assert made_by(MODIFY, {"value": None, "lastErrorObject": {"n": 1, "upserted": None}}) == [None]
    assert made_by(MODIFY, {"value": {"_id": 1}, "lastErrorObject": {"n": 1}}) == []


# --- Errors ---------------------------------------------------------------------------------------------------------

DUPLICATE = {
    "code": 11000,
    "errmsg": f'E11000 duplicate key error collection: shop.item index: name_1 dup key: {{ name: "{SECRET}" }}',
    "keyValue": {"name": SECRET},
}


@pytest.mark.parametrize(
    "error",
    [
        WriteError(DUPLICATE["errmsg"], 11000, DUPLICATE),
        BulkWriteError({"writeErrors": [{**DUPLICATE, "op": {"name": SECRET}}]}),
        OperationFailure(DUPLICATE["errmsg"], 11000, DUPLICATE),
    ],
    ids=["a command", "an insert", "findAndModify"],
)
def test_an_error_names_code_and_index_and_no_value(error: Exception):
    with pytest.raises(InputError) as caught, translated("database here"):
        raise error
    assert f"{caught.value}" == "database here: a value must be unique (11000, index name_1)"


def test_an_error_that_is_not_known_says_nothing_of_its_words():
    with pytest.raises(InputError) as caught, translated("database here"):
        raise OperationFailure(SECRET, 4711, {"errmsg": SECRET, "code": 4711})
    assert "(4711)" in f"{caught.value}"
    assert SECRET not in f"{caught.value} {caught.value.__cause__}"


def test_a_conflict_with_others_may_be_tried_again_and_a_lost_server_is_told():
    conflict = OperationFailure("x", 112, {"code": 112, "errorLabels": ["TransientTransactionError"]})
    with pytest.raises(Busy, match="others are changing what it needs"), translated("database here"):
        raise conflict
    with pytest.raises(HostError, match="does not answer") as caught, translated("database here"):
        raise ConnectionFailure("x")
    assert not isinstance(caught.value, Busy)


# --- Servers and users ----------------------------------------------------------------------------------------------


def test_a_server_must_be_the_primary_of_a_replica_set():
    ours = {"setName": "s", "isWritablePrimary": True, "hosts": ["b:1", "a:1"]}
    assert replica_set("here", ours) == "s/a:1,b:1"
    for alone in ({"isWritablePrimary": True}, {"isreplicaset": True}, {"msg": "isdbgrid", "isWritablePrimary": True}):
        with pytest.raises(InputError, match=r"is no replica set, and so has no transactions. Mend: .*rs\.initiate"):
            replica_set("here", alone)
    with pytest.raises(HostError, match="not the primary"):
        replica_set("here", {**ours, "isWritablePrimary": False})


def _status(*resources: dict[str, Any]) -> dict[str, Any]:
    privileges = [{"resource": each, "actions": ["find", "insert"]} for each in resources]
    return {"authInfo": {"authenticatedUsers": [{"user": "agent"}], "authenticatedUserPrivileges": privileges}}


def test_a_user_may_do_nothing_outside_of_the_database():
    require_rights("here", _status({"db": "shop", "collection": ""}, {"db": "shop", "collection": "item"}), "shop")
    for more in (
        {"db": "", "collection": ""},
        {"db": "other", "collection": "x"},
        {"cluster": True},
        {"anyResource": True},
    ):
        with pytest.raises(InputError, match=r"the user has rights on .* Mend: name one with rights on shop alone"):
            require_rights("here", _status({"db": "shop", "collection": ""}, more), "shop")


def test_a_server_that_asks_for_no_user_is_refused():
    nobody = {"authInfo": {"authenticatedUsers": [], "authenticatedUserPrivileges": []}}
    with pytest.raises(InputError, match="asks for no user"):
        require_rights("here", nobody, "shop")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"user": ""}, "needs dbname, a user of that database"),
        ({"role": "x"}, "role: is nothing that MongoDB has"),
        ({"schemas": ["x"]}, "schemas: is nothing that MongoDB has"),
        ({"functions": ["x"]}, "functions: is nothing that MongoDB has"),
        ({"allows_code": True}, "allows_code: is nothing that MongoDB has"),
        ({"host": "mongodb://me@there"}, "no URI"),
    ],
)
def test_settings_that_do_not_fit_are_refused(more: dict[str, Any], message: str):
    settings = DatabaseConnection.model_validate({"engine": "mongodb", "dbname": "shop", "user": "agent", **more})
    with pytest.raises(InputError, match=message):
        open_engine("here", settings, "password")


def test_a_user_without_a_password_is_refused():
    settings = DatabaseConnection(engine="mongodb", dbname="shop", user="agent")
    with pytest.raises(InputError, match="secret of its password"):
        open_engine("here", settings, "")


def test_a_validator_tells_fields_and_no_labels():
    rules = {
        "required": ["name"],
        "properties": {
            "name": {"bsonType": "string", "enum": [SECRET]},
            "price": {"bsonType": ["int", "null"], "description": SECRET},
            "kind": {"enum": [SECRET]},
        },
    }
    facts = CollectionFacts("shop", "item", "collection", {"validator": {"$jsonSchema": rules}}, (("name",),))
    assert list(Schema({facts.place: facts.as_table()}).told()) == [
        "table shop.item",
        "  name string not null",
        "  price int or null",
        "  kind any",
        "  primary key (_id)",
        "  unique (name)",
    ]


@pytest.mark.parametrize(
    ("facts", "obstacle"),
    [
        (CollectionFacts("shop", "item", "collection", {"validator": {}}), ""),
        (CollectionFacts("shop", "item", "view"), "is a view"),
        (CollectionFacts("shop", "item", "timeseries"), "is a timeseries"),
        (CollectionFacts("shop", "item", "collection", {"capped": True}), "is capped"),
        (CollectionFacts("shop", "item", "collection", {"encryptedFields": {}}), ""),
        (CollectionFacts("shop", "item", "collection", {"encryptedFields": {"fields": [1]}}), "is encrypted"),
    ],
)
def test_collections_whose_documents_are_not_all_seen_are_refused(facts: CollectionFacts, obstacle: str):
    assert facts.obstacle.startswith(obstacle)
    assert bool(facts.obstacle) == bool(obstacle)


# --- The engine, on a real server -----------------------------------------------------------------------------------


def _update(collection: str, query: Any, update: Any, **more: Any) -> str:
    return json.dumps({"update": collection, "updates": [{"q": query, "u": update, **more}]})


def _insert(collection: str, *documents: Any) -> str:
    return json.dumps({"insert": collection, "documents": documents})


def _delete(collection: str, query: Any, limit: int = 0) -> str:
    return json.dumps({"delete": collection, "deletes": [{"q": query, "limit": limit}]})


TABLES = (
    *(json.dumps({"create": name}) for name in ("parent", "child", "loose")),
    json.dumps({"createIndexes": "parent", "indexes": [{"key": {"name": 1}, "name": "name_1", "unique": True}]}),
    _insert("parent", {"_id": 1, "name": "one", "amount": 10}, {"_id": 2, "name": "two", "amount": 20}),
    _insert("parent", {"_id": 3, "name": SECRET, "amount": None}),
    _insert("child", {"_id": 1, "parent": 1}, {"_id": 2, "parent": 1}, {"_id": 3, "parent": 2}),
    _insert("loose", {"word": "x", "amount": 1}, {"word": "x", "amount": 1}, {"word": "y", "amount": None}),
)
WORDS = {
    "insert": (_insert("parent", {"_id": 9, "name": "nine", "amount": 9}),),
    "update": (_update("parent", {"_id": {"$lt": 3}}, {"$inc": {"amount": 1}}, multi=True),),
    "delete": (_delete("loose", {"word": "x"}),),
    "several": (_insert("parent", {"_id": 9, "name": "nine"}), _insert("child", {"_id": 9}), _delete("loose", {})),
    "fails": (_update("parent", {}, {"$set": {"amount": 0}}, multi=True), _insert("parent", {"_id": 1, "name": "b"})),
    "nothing": (_delete("parent", {"_id": 1000}),),
    "twice": (_update("parent", {"_id": 3}, {"$set": {"name": "two"}}),),
    "update 2": (_update("parent", {"_id": 2}, {"$set": {"amount": 5}}),),
    "update 3": (_update("parent", {"_id": 3}, {"$set": {"amount": 5}}),),
    "theirs": (_update("parent", {"_id": 2}, {"$set": {"amount": 77}}),),
    "many": (_insert("loose", *({"_id": number} for number in range(6))),),
    "two in one": (_delete("loose", {}) + _delete("child", {}),),
    "looks": ('{"find": "parent"}',),
    "ends": ('{"commitTransaction": 1}',),
}
CONTENT = {name: json.dumps({"find": name, "sort": {"_id": 1}}) for name in ("parent", "child", "loose")}


class TestMongodb(EngineConformance):
    lacks = frozenset({"cascade"})

    @pytest.fixture
    def ground(self, mongodb: Mongodb) -> Iterator[Ground]:
        mongodb.empty()
        place = {"host": "127.0.0.1", "port": mongodb.port, "dbname": DBNAME, "user": USER}
        settings = DatabaseConnection(engine="mongodb", password_secret="agent", hold_s=30, **place)
        yield Ground(settings, mongodb.execute, DBNAME, PASSWORD, TABLES, WORDS, CONTENT)
        mongodb.empty()

    @pytest.mark.parametrize(
        "statement",
        [
            _update("parent", {"_id": 8}, {"$set": {"name": "eight"}}, upsert=True),
            _update("parent", {"_id": 1}, {"$set": {"name": "other"}}, upsert=True),
            _update("parent", {"_id": 1}, {"name": "whole"}),
            _delete("parent", {"_id": 1}, 1),
            json.dumps({"findAndModify": "child", "query": {}, "sort": {"_id": -1}, "update": {"$set": {"x": 1}}}),
            json.dumps({"findAndModify": "child", "query": {"parent": 1}, "sort": {"_id": 1}, "remove": True}),
            json.dumps({"findAndModify": "child", "query": {"_id": 9}, "update": {"$set": {"x": 1}}, "upsert": True}),
        ],
    )
    def test_each_command_is_taken_back_and_done_again(self, filled: Ground, engine: Engine, statement: str):
        before = filled.content()
        effect = _done(engine, statement)
        after = filled.content()
        assert after != before
        assert effect.num_rows == 1
        engine.write(effect.inverse(), lambda *_: None)
        assert filled.content() == before
        engine.write(effect, lambda *_: None)
        assert filled.content() == after

    def test_a_document_of_all_types_comes_back_byte_by_byte(self, filled: Ground, engine: Engine, mongodb: Mongodb):
        mongodb.insert("loose", {"_id": "all", **OF_EACH_TYPE})
        before = filled.content()
        effect = _done(engine, _delete("loose", {"_id": "all"}))
        assert filled.content() != before
        engine.write(effect.inverse(), lambda *_: None)
        assert filled.content() == before

    def test_a_document_that_gets_its_id_from_us_is_done_and_taken_back(self, filled: Ground, engine: Engine):
        before = filled.content()
        told = engine.rehearse(_sql(_insert("loose", {"word": "new"})), Mode.IMAGES)
        effect = _done(engine, _insert("loose", {"word": "new"}))
        assert effect.digest() == told.digest()
        engine.write(effect.inverse(), lambda *_: None)
        assert filled.content() == before

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            (_insert("absent", {"_id": 1}), "there is no collection absent in shop"),
            (_insert("ring", {"_id": 1}), "collection shop/ring: is capped"),
        ],
    )
    def test_collections_that_no_undo_restores_are_refused(
        self, filled: Ground, engine: Engine, statement: str, message: str
    ):
        filled.others('{"create": "ring", "capped": true, "size": 4096}')
        with pytest.raises(InputError, match=message):
            engine.read(_sql(statement), Mode.IMAGES)

    def test_values_stand_in_the_statement(self, filled: Ground, engine: Engine):
        with pytest.raises(InputError, match="parameters: MongoDB has none"):
            engine.read(Sql(database="here", statements=(_delete("loose", {}),), parameters=((1,),)), Mode.IMAGES)

    def test_no_larger_share_than_allowed(self, filled: Ground):
        settings = filled.settings.model_copy(update={"max_share": 0.5})
        with contextlib.closing(open_engine("here", settings, PASSWORD)) as engine:
            with pytest.raises(InputError, match="a larger share of it than max_share"):
                engine.rehearse(_sql(_delete("parent", {"_id": {"$lt": 3}})), Mode.IMAGES)
            assert engine.rehearse(_sql(_delete("parent", {"_id": 1})), Mode.IMAGES).num_rows == 1

    def test_a_wrong_password_is_told_without_it(self, filled: Ground):
        with pytest.raises(InputError, match="does not let the user in") as caught:
            open_engine("here", filled.settings, "wrong-password")
        assert "wrong-password" not in f"{caught.value}"

    def test_one_that_cannot_be_held_so_long_is_refused(self, filled: Ground):
        settings = filled.settings.model_copy(update={"hold_s": 60.0})
        with contextlib.closing(open_engine("here", settings, PASSWORD)) as engine:
            with pytest.raises(InputError, match="Mend: set hold_s to 55 or less"):
                engine.read(filled.sql("update"), Mode.HOLD)
            engine.read(filled.sql("update"), Mode.IMAGES)

    def test_what_is_held_is_rolled_back_when_its_time_is_over(self, filled: Ground):
        before = filled.content()
        settings = filled.settings.model_copy(update={"hold_s": 0.3})
        with contextlib.closing(open_engine("here", settings, PASSWORD)) as engine:
            kept: list[tuple[Effect, Any]] = []
            engine.hold("action", filled.sql("update"), lambda effect, mark: kept.append((effect, mark)))
            _, mark = kept[0]
            until(lambda: not engine.held("action", mark).is_open)
            engine.end_hold("action", commit=True)
            assert not engine.held("action", mark).is_committed
        assert filled.content() == before

    def test_what_others_are_changing_is_waited_for_and_no_longer_than_said(self, filled: Ground, engine: Engine):
        settings = filled.settings.model_copy(update={"lock_timeout_s": 0.2})
        with contextlib.closing(open_engine("here", settings, PASSWORD)) as other:
            other.hold("action", filled.sql("update"), lambda *_: None)
            with contextlib.closing(open_engine("here", settings, PASSWORD)) as hasty, pytest.raises(Busy):
                hasty.rehearse(filled.sql("update"), Mode.IMAGES)
            ends = threading.Timer(0.3, other.end_hold, ("action",), {"commit": False})
            ends.start()
            assert engine.rehearse(filled.sql("update"), Mode.IMAGES).num_rows == 2
            ends.join()

    def test_what_may_still_be_committed_is_in_doubt(self, filled: Ground, engine: Engine):
        """Another process finds it, while the server still has the transaction of one that died."""
        settings = filled.settings.model_copy(update={"lock_timeout_s": 0.2})
        kept: list[tuple[Effect, Any]] = []
        engine.hold("action", filled.sql("several"), lambda effect, mark: kept.append((effect, mark)))
        effect, mark = kept[0]
        with contextlib.closing(open_engine("here", settings, PASSWORD)) as other:
            with pytest.raises(InDoubt):
                other.was_committed(mark, effect)
            engine.end_hold("action", commit=True)
            assert other.held("action", mark).is_committed is None
            assert other.was_committed(mark, effect)

    def test_a_commit_whose_answer_is_lost_is_in_doubt_and_later_told(
        self, filled: Ground, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ):
        whole = ClientSession.commit_transaction

        def loses(session: Any) -> None:
            whole(session)
            lost = ConnectionFailure("x")
            lost._add_error_label("UnknownTransactionCommitResult")
            raise lost

        kept: list[tuple[Effect, Any]] = []
        with monkeypatch.context() as patched:
            patched.setattr(ClientSession, "commit_transaction", loses)
            with pytest.raises(InDoubt):
                engine.perform(filled.sql("update"), lambda effect, mark: kept.append((effect, mark)))
        effect, mark = kept[0]
        assert engine.was_committed(mark, effect)
        engine.write(effect.inverse(), lambda *_: None)
        assert not engine.was_committed(mark, effect)


def _sql(*statements: str) -> Sql:
    return Sql(database="here", statements=statements)


def _done(engine: Engine, *statements: str) -> Effect:
    kept: list[Effect] = []
    engine.perform(_sql(*statements), lambda effect, _: kept.append(effect))
    return kept[0]
