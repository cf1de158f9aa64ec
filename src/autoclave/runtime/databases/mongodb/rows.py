"""Documents of a MongoDB database looked up, compared with their images, and written back, in a transaction.

They are read as the bytes that they are, and written as these. What was written is read again, and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from autoclave.runtime.databases.effects import Effect, Image, TableEffect, is_same
from autoclave.runtime.databases.engine import Rejected
from autoclave.runtime.databases.mongodb.documents import bytes_of, codec, id_of, image_of

_AT_ONCE = 500
_BYTE_BY_BYTE = {"locale": "simple"}
Places = dict[tuple[str, str], Image | None]


class Rows:
    """Of one database, in the transaction of a session."""

    def __init__(self, database: Any, session: Any, statement_ms: int) -> None:
        self._database, self._session, self._statement_ms = database, session, statement_ms

    # --- Looking ----------------------------------------------------------------------------------------------------

    def find(self, collection: str, finding: Mapping[str, Any], limit: int = 0) -> list[Image]:
        """Documents that `find` finds; limit 0: all of them."""
        from bson.codec_options import CodecOptions
        from bson.raw_bson import RawBSONDocument

        command = {"find": collection, **finding, "limit": limit, "maxTimeMS": self._statement_ms}
        found = self._database.cursor_command(
            command, session=self._session, codec_options=CodecOptions(document_class=RawBSONDocument)
        )
        where = f"collection {self._database.name}/{collection}"
        return [image_of(bytes(each.raw), where) for each in found]

    def by_id(self, collection: str, ids: Sequence[Any]) -> dict[str, Image]:
        """The documents that are there under some `_id`, by their keys."""
        found: dict[str, Image] = {}
        for some in _parts(ids):
            finding = {"filter": {"_id": {"$in": some}}, "collation": _BYTE_BY_BYTE}
            found |= {image[0]: image for image in self.find(collection, finding)}
        return found

    def number(self, collection: str) -> int:
        """How many there are."""
        return self._database[collection].count_documents({}, session=self._session)

    # --- Comparing --------------------------------------------------------------------------------------------------

    def contested(self, effect: Effect, places: Iterable[str]) -> Places:
        """See `Engine.contested`. `places`: collections that are there."""
        found: Places = {}
        for each in effect.tables:
            if each.table in places:
                found.update(self._contested(each))
            else:
                found[each.table, ""] = None
        return found

    def _contested(self, effect: TableEffect) -> Iterator[tuple[tuple[str, str], Image | None]]:
        gone = {image[0] for image in effect.removed}
        there = self._there(effect)
        for image in effect.removed:
            if not is_same(now := there.get(image[0]), image):
                yield (effect.table, image[0]), now
        for image in effect.added:
            if image[0] not in gone and image[0] in there:
                yield (effect.table, image[0]), there[image[0]]

    def _there(self, effect: TableEffect) -> dict[str, Image]:
        images = {image[0]: image for image in (*effect.removed, *effect.added)}
        return self.by_id(_name(effect), [id_of(image) for image in images.values()])

    # --- Writing ----------------------------------------------------------------------------------------------------

    def send(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run a command that writes; its answer."""
        from pymongo.errors import WriteError

        told = self._database.command(
            {**command, "maxTimeMS": self._statement_ms}, session=self._session, codec_options=codec()
        )
        for error in told.get("writeErrors", ()):
            raise WriteError(error.get("errmsg", ""), error.get("code"), error)
        return told

    def insert(self, collection: str, documents: Sequence[Any]) -> None:
        self._database[collection].insert_many(documents, session=self._session)

    def write(self, effect: Effect) -> None:
        """Make an effect true, when nothing is contested.

        Raises:
            Rejected: documents did not become what they were to become.
        """
        from bson.raw_bson import RawBSONDocument

        for each in effect.tables:
            for some in _parts([id_of(image) for image in each.removed]):
                among = {"q": {"_id": {"$in": some}}, "limit": 0, "collation": _BYTE_BY_BYTE}
                self.send({"delete": _name(each), "deletes": [among]})
        for each in effect.tables:
            for some in _parts(each.added):
                self.insert(_name(each), [RawBSONDocument(bytes_of(text)) for _, text in some])
        for each in effect.tables:
            there, added = self._there(each), dict(each.added)
            if there.keys() != added.keys() or not all(is_same(there[image[0]], image) for image in each.added):
                raise Rejected(f"collection {each.table}: documents did not become what they were to become")


def _name(effect: TableEffect) -> str:
    return effect.table.split("/", 1)[1]


def _parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), _AT_ONCE):
        yield things[start : start + _AT_ONCE]
