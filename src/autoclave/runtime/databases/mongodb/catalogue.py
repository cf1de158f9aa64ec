"""The collections of a MongoDB database, and what may be known of them without a look at a document. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.runtime.databases.places import place_of
from autoclave.runtime.databases.schema import Column, Table


@dataclass(frozen=True)
class CollectionFacts:
    """A collection, as the server lists it, and the fields of its unique indexes."""

    schema: str
    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unique: tuple[tuple[str, ...], ...] = ()

    @property
    def place(self) -> str:
        return place_of(self.schema, self.name)

    @property
    def obstacle(self) -> str:
        """Why what is done to it could not be seen, or taken back; empty: it could."""
        if self.kind != "collection":
            return f"is a {self.kind}, documents of which are not kept"
        if self.options.get("capped"):
            return "is capped: documents that come push out others, which is not seen"
        if self.options.get("encryptedFields"):
            return "is encrypted: the server keeps more collections for it, which are not seen"
        return ""

    def as_table(self) -> Table:
        """What its validator says of fields; of documents, nothing."""
        rules = self.options.get("validator", {}).get("$jsonSchema", {})
        needed = rules.get("required", ())
        columns = tuple(
            Column(name, _kind(rule), name not in needed) for name, rule in rules.get("properties", {}).items()
        )
        return Table(self.name, columns, ("_id",), self.unique, is_view=self.kind == "view")


def catalogue_of(database: Any, *, with_indexes: bool = False) -> dict[str, CollectionFacts]:
    """The collections that the user may see, by `DBNAME/COLLECTION`."""
    found: dict[str, CollectionFacts] = {}
    for each in database.list_collections():
        name, kind = each["name"], each.get("type", "collection")
        if name.startswith("system.") or "/" in name:
            continue
        unique = _unique(database[name]) if with_indexes and kind == "collection" else ()
        facts = CollectionFacts(database.name, name, kind, each.get("options", {}), unique)
        found[facts.place] = facts
    return found


def _unique(collection: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(each["key"]) for each in collection.list_indexes() if each.get("unique"))


def _kind(rule: Any) -> str:
    kinds = rule.get("bsonType", rule.get("type", "any")) if isinstance(rule, Mapping) else "any"
    return kinds if isinstance(kinds, str) else " or ".join(map(str, kinds))
