"""What a statement of MongoDB is: one command that changes documents of one collection, as steps. Pure.

A step is the smallest command whose documents can be told beforehand by its own filter: each of the `updates` and
`deletes` of a command is one. Only fields that are known are let through, so none that is about sessions, transactions,
concerns or validation is; nor is anything that runs code, or writes by a pipeline into another place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.mongodb.documents import Document, key_in_words, statement_of

_MOST_CHARACTERS = 16_000_000
_MOST_LEVELS = 100
_OF_FIELDS = frozenset(
    {"$set", "$unset", "$inc", "$mul", "$min", "$max", "$rename", "$setOnInsert", "$currentDate", "$bit"}
)
_OF_ARRAYS = frozenset({"$push", "$pull", "$pullAll", "$addToSet", "$pop"})
_OPERATORS = _OF_FIELDS | _OF_ARRAYS
_STAGES = frozenset({"$set", "$addFields", "$unset", "$project", "$replaceWith", "$replaceRoot"})
_REFUSED = frozenset({"$where", "$function", "$accumulator", "$out", "$merge", "$lookup", "$unionWith", "$graphLookup"})
_UNSETTLED = frozenset({"$currentDate", "$rand", "$sampleRate"})
_CLOCKS = ("$$NOW", "$$CLUSTER_TIME")


@dataclass(frozen=True)
class Step:
    """A command that is sent by itself.

    Attributes:
        verb: `insert`, `update` or `delete`.
        collection: which it writes.
        command: what is sent. Of `insert`: nothing.
        documents: of `insert`: those that come.
        finding: what `find` needs to find the documents that it will change, besides a limit: `filter` and others.
        is_single: whether it changes one document at most, although its filter may meet more.
        upserts: whether it makes a document when none is met.
        names_found: whether the answer names the document that was changed (`findAndModify`).
        is_settled: whether it would bring the same again.
    """

    verb: str
    collection: str
    command: Document = field(default_factory=dict[str, Any])
    documents: tuple[Document, ...] = ()
    finding: Document = field(default_factory=dict[str, Any])
    is_single: bool = False
    upserts: bool = False
    names_found: bool = False
    is_settled: bool = True

    @property
    def verbs(self) -> frozenset[str]:
        """In the words of the policy."""
        if self.verb == "update":
            return frozenset({"modify", "create"} if self.upserts else {"modify"})
        return frozenset({"create" if self.verb == "insert" else "delete"})

    @property
    def keys(self) -> list[str] | None:
        """The keys of the only documents that it can be about; None: it may look at others."""
        if self.verb == "insert":
            return []
        if "collation" in self.finding or "_id" not in self.finding["filter"]:
            return None
        wanted = self.finding["filter"]["_id"]
        if isinstance(wanted, dict):
            wanted = wanted.get("$in", [wanted["$eq"]] if "$eq" in wanted else None)
        else:
            wanted = [wanted]
        if not isinstance(wanted, list) or not all(_is_plain(each) for each in wanted):
            return None
        return [key_in_words(each) for each in wanted]


def parsed(text: str, number: int) -> list[Step]:
    """A statement as steps.

    Raises:
        InputError: it is none, or more than one action can be. `number`: of the statement, for the message.
    """
    try:
        if len(text) > _MOST_CHARACTERS:
            raise InputError(f"is longer than {_MOST_CHARACTERS} characters")
        command = statement_of(text)
        verb = next(iter(command), "")
        if verb not in _READERS:
            known = ", ".join(_READERS)
            raise InputError(f"its first field must be the command, one of {known}; all else is not let through")
        _require_harmless(command, 0)
        _require_collection(command[verb])
        return list(_READERS[verb](command))
    except InputError as error:
        raise InputError(f"statement {number}: {error}") from None


# --- Commands -------------------------------------------------------------------------------------------------------


def _inserted(command: Document) -> Iterator[Step]:
    from bson.objectid import ObjectId

    _require_fields(command, {"insert", "documents"}, {"ordered"}, "insert")
    _require_ordered(command)
    given = _objects(command["documents"], "documents")
    named = tuple(each if "_id" in each else {"_id": ObjectId(), **each} for each in given)
    is_settled = all("_id" in each for each in given) and not any(map(_has_empty_timestamp, given))
    yield Step("insert", command["insert"], documents=named, is_settled=is_settled)


def _updated(command: Document) -> Iterator[Step]:
    _require_fields(command, {"update", "updates"}, {"ordered", "let"}, "update")
    _require_ordered(command)
    for number, each in enumerate(_objects(command["updates"], "updates")):
        place = f"updates[{number}]"
        _require_fields(each, {"q", "u"}, {"upsert", "multi", "collation", "arrayFilters", "hint"}, place)
        _require_update(each["u"], f"{place}.u")
        query, multi, upserts = _object(each["q"], f"{place}.q"), _flag(each, "multi"), _flag(each, "upsert")
        yield Step(
            "update",
            command["update"],
            {"update": command["update"], "updates": [each], **_some(command, {"let"})},
            finding={"filter": query, **_some(each, {"collation", "hint"}), **_some(command, {"let"})},
            is_single=not multi,
            upserts=upserts,
            is_settled=_is_settled([each, command.get("let")]) and (not upserts or _names_id(each["q"])),
        )


def _deleted(command: Document) -> Iterator[Step]:
    _require_fields(command, {"delete", "deletes"}, {"ordered", "let"}, "delete")
    _require_ordered(command)
    for number, each in enumerate(_objects(command["deletes"], "deletes")):
        place = f"deletes[{number}]"
        _require_fields(each, {"q", "limit"}, {"collation", "hint"}, place)
        if each["limit"] not in (0, 1) or isinstance(each["limit"], bool):
            raise InputError(f"{place}.limit: must be 0 (all that are met) or 1")
        query = _object(each["q"], f"{place}.q")
        yield Step(
            "delete",
            command["delete"],
            {"delete": command["delete"], "deletes": [each], **_some(command, {"let"})},
            finding={"filter": query, **_some(each, {"collation", "hint"}), **_some(command, {"let"})},
            is_single=each["limit"] == 1,
        )


def _found_and_modified(command: Document) -> Iterator[Step]:
    like_find, others = {"sort", "collation", "hint", "let"}, {"remove", "update", "new", "upsert", "arrayFilters"}
    _require_fields(command, {"findAndModify", "query"}, like_find | others, "findAndModify")
    query, removes, upserts = _object(command["query"], "query"), _flag(command, "remove"), _flag(command, "upsert")
    _flag(command, "new")
    if removes == ("update" in command):
        raise InputError("findAndModify: give one of both, `remove: true` or `update`")
    if removes and upserts:
        raise InputError("findAndModify: `upsert` does not go with `remove`")
    if not removes:
        _require_update(command["update"], "update")
    rest = {name: value for name, value in command.items() if name != "new"}
    yield Step(
        "delete" if removes else "update",
        command["findAndModify"],
        {**rest, "fields": {"_id": 1}},
        finding={"filter": query, **_some(command, like_find)},
        is_single=True,
        upserts=upserts,
        names_found=True,
        is_settled=removes or (_is_settled(command) and (not upserts or _names_id(command["query"]))),
    )


_READERS = {
    "insert": _inserted,
    "update": _updated,
    "delete": _deleted,
    "findAndModify": _found_and_modified,
}


# --- Rules ----------------------------------------------------------------------------------------------------------


def _require_fields(given: Mapping[str, Any], needed: set[str], more: set[str], place: str) -> None:
    if missing := sorted(needed - given.keys()):
        raise InputError(f"{place}: lacks {', '.join(missing)}")
    if unknown := sorted(given.keys() - needed - more):
        raise InputError(
            f"{place}: {', '.join(unknown)}: not let through; known are {', '.join(sorted(needed | more))}"
        )


def _require_ordered(command: Document) -> None:
    if "ordered" in command and not _flag(command, "ordered"):
        raise InputError("ordered: must be true: all is done or nothing")


def _require_collection(name: Any) -> None:
    """Whether documents of a collection can be named: `SCHEMA/NAME` has two parts, and the server keeps some names."""
    if not isinstance(name, str) or not name or name.startswith("system.") or set(name) & set("$/\0"):
        raise InputError("the name of its collection must be a text without $ and /, and not begin with system.")


def _require_update(update: Any, place: str) -> None:
    """An update is operators, a whole document, or stages that look at nothing but the document."""
    if isinstance(update, list):
        for stage in update:
            if not isinstance(stage, dict) or len(stage) != 1 or not stage.keys() <= _STAGES:
                raise InputError(f"{place}: each stage must be one of {', '.join(sorted(_STAGES))}")
        return
    names = _object(update, place).keys()
    if any(name.startswith("$") for name in names) and not names <= _OPERATORS:
        raise InputError(f"{place}: must be a document, or operators out of {', '.join(sorted(_OPERATORS))}")


def _require_harmless(value: Any, level: int) -> None:
    if level > _MOST_LEVELS:
        raise InputError("is nested too deeply")
    if isinstance(value, dict):
        if found := value.keys() & _REFUSED:
            raise InputError(f"{min(found)}: runs code, or reaches another collection; it is not let through")
        for each in value.values():
            _require_harmless(each, level + 1)
    elif isinstance(value, list):
        for each in value:
            _require_harmless(each, level + 1)


def _is_settled(value: Any) -> bool:
    if isinstance(value, dict):
        return (
            not value.keys() & _UNSETTLED and not _has_empty_timestamp(value) and all(map(_is_settled, value.values()))
        )
    if isinstance(value, list):
        return all(map(_is_settled, value))
    return not (isinstance(value, str) and value.startswith(_CLOCKS))


def _has_empty_timestamp(document: Document) -> bool:
    """Whether the server puts its own time into a field."""
    from bson.timestamp import Timestamp

    return any(isinstance(each, Timestamp) and not each.time and not each.inc for each in document.values())


def _names_id(query: Any) -> bool:
    """Whether an upsert takes the `_id` from its filter."""
    return "_id" in query and _is_plain(query["_id"])


def _is_plain(value: Any) -> bool:
    from bson.objectid import ObjectId

    return isinstance(value, str | int | ObjectId) and not isinstance(value, bool)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"{name}: must be true or false")
    return value


def _object(value: Any, place: str) -> Document:
    if not isinstance(value, dict):
        raise InputError(f"{place}: must be an object")
    return value


def _objects(value: Any, place: str) -> list[Document]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{place}: must be an array of one object or more")
    return [_object(each, f"{place}[{number}]") for number, each in enumerate(value)]


def _some(given: Mapping[str, Any], names: Collection[str]) -> Document:
    return {name: value for name, value in given.items() if name in names}
