"""What commands did to documents, told by reading these before and after each, in one transaction.

Of a step, the documents that its own filter finds are read; it is run; and they are read again by their `_id`. All of
that sees one snapshot and what the transaction itself wrote, so nobody else comes between. The server says how many
documents it met and changed, or which: were it others than those, the action would be refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image, TableEffect, is_same, net
from autoclave.runtime.databases.limits import too_many
from autoclave.runtime.databases.mongodb.documents import id_of, key_in_words
from autoclave.runtime.databases.mongodb.parsing import Step
from autoclave.runtime.databases.mongodb.rows import Rows
from autoclave.runtime.databases.places import place_of

Event = tuple[str, Image | None, Image | None]


class Recorder:
    """Of one transaction. `max_rows`: of one action."""

    def __init__(self, rows: Rows, schema: str, max_rows: int) -> None:
        self._rows, self._schema, self._max_rows = rows, schema, max_rows
        self._events: dict[str, list[Event]] = {}

    def run(self, step: Step) -> None:
        """Run a step.

        Raises:
            InputError: what it changed cannot be told.
        """
        events = self._inserted(step) if step.verb == "insert" else self._changed(step)
        self._events.setdefault(place_of(self._schema, step.collection), []).extend(events)

    def table_effects(self) -> Iterator[TableEffect]:
        """What became of each collection."""
        for place, events in sorted(self._events.items()):
            removed, added = net(events)
            if removed or added:
                yield TableEffect(place, "", tuple(removed), tuple(added))

    def _inserted(self, step: Step) -> list[Event]:
        if len(step.documents) > self._max_rows:
            raise self._too_many()
        self._rows.insert(step.collection, step.documents)
        now = self._rows.by_id(step.collection, [each["_id"] for each in step.documents])
        if len(now) != len(step.documents):
            raise _unclear(step)
        return [(key, None, image) for key, image in now.items()]

    def _changed(self, step: Step) -> list[Event]:
        before = self._rows.find(step.collection, step.finding, 1 if step.is_single else self._max_rows + 1)
        if len(before) > self._max_rows:
            raise self._too_many()
        told = self._rows.send(step.command)
        now = self._rows.by_id(step.collection, [id_of(image) for image in before])
        events: list[Event] = [
            (image[0], image, now.get(image[0])) for image in before if not is_same(image, now.get(image[0]))
        ]
        made = made_by(step, told)
        if not is_told(step, told, [key for key, _ in before], len(events), len(made)):
            raise _unclear(step)
        came = self._rows.by_id(step.collection, made)
        if len(came) != len(made):
            raise _unclear(step)
        return [*events, *((key, None, image) for key, image in came.items())]

    def _too_many(self) -> InputError:
        return InputError(too_many(self._max_rows))


def made_by(step: Step, told: Mapping[str, Any]) -> list[Any]:
    """The `_id` of documents that came since none was met, by the server's answer."""
    if step.names_found:
        last = told.get("lastErrorObject") or {}
        return [last["upserted"]] if "upserted" in last else []
    return [each["_id"] for each in told.get("upserted", ())]


def is_told(step: Step, told: Mapping[str, Any], found: list[str], num_changed: int, num_made: int) -> bool:
    """Whether the server's answer says that exactly the documents that were found were met and changed.

    `found`: their keys; `num_changed`: how many of them are not as they were.
    """
    if step.names_found:
        value = told.get("value")
        return found == ([key_in_words(value["_id"])] if value else [])
    if step.verb == "delete":
        return told["n"] == len(found) == num_changed
    return told["n"] == len(found) + num_made and told["nModified"] == num_changed


def _unclear(step: Step) -> InputError:
    more = "; of several that it meets, name one by _id, or say which (sort), or all (multi)" if step.is_single else ""
    return InputError(
        f"collection {step.collection}: the command changed other documents than its filter finds{more}; "
        "it is taken back"
    )
