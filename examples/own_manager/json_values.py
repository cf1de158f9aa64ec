"""A manager of one's own: actions on the values of a JSON file, of which each is changed by one atomic write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, JsonValue

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.files import write_atomically
from autoclave.core.json import canonical_json
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NothingLeft, NotRedone, NotUndone, Plan
from autoclave.runtime.policy.request import Access, Request


class SetValue(Config):
    """Set a value of the JSON file; null removes it."""

    do: Literal["set_value"] = "set_value"
    key: str = Field(pattern=r"^[a-z0-9_-]+$")
    value: JsonValue


class JsonValues(Manager):
    """Actions on the JSON object in the file `path` of the settings. A missing value counts as null."""

    operations: Mapping[str, type[Config]] = {"set_value": SetValue}

    def __init__(self, settings: Mapping[str, Any], state: Path) -> None:
        self._path = Path(settings["path"])

    def plan(self, action: str, operation: Config) -> Plan:
        given = cast("SetValue", operation)
        change = {"key": given.key, "before": self._value(given.key), "after": given.value}
        if change["before"] == change["after"]:
            raise InputError(f"{given.key}: has that value already")
        verb = "create" if change["before"] is None else "delete" if given.value is None else "modify"
        resource = f"values/{given.key}"
        return Plan(
            digest=hashlib.sha256(canonical_json(change)).hexdigest(),
            changes=(f"{verb} {given.key}",),
            request=Request((Access(verb, resource),)),
            footprint=Footprint(writes=frozenset({resource})),
            guarantee=Guarantee.EXACT,
            kept=change,
        )

    def execute(self, action: str, started: Json) -> Json:
        self._apply(started, InputError)
        return started

    def find_out(self, action: str, started: Json) -> Json | None:
        now = self._value(started["key"])
        if now not in (started["before"], started["after"]):
            raise InDoubt(f"{started['key']}: has another value than before and after")
        return started if now == started["after"] else None

    def put_back(self, action: str, started: Json) -> bool:
        if self._value(started["key"]) == started["after"]:
            self._write(started["key"], started["before"])
        return self._value(started["key"]) == started["before"]

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found, seen = dict[str, list[str]](), set[str]()
        for action, receipt in done:  # the last first: a later action may have changed what an earlier one left
            key = receipt["key"]
            if key not in seen and self._value(key) != receipt["after"]:
                found[action] = [key]
            seen.add(key)
        return found

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: Any
    ) -> Json:
        key, now = receipt["key"], self._value(receipt["key"])
        choice = choices.get(key, default)
        if now != receipt["after"] and choice is Choice.SKIP:
            raise NothingLeft(f"{key}: another value stays")
        if now != receipt["after"] and choice is not Choice.FORCE:
            raise InputError(f"{key}: has another value by now; use skip or force")
        return {"key": key, "before": now, "after": receipt["before"]}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        self._apply(undoing, NotUndone, is_late=is_late)
        return undoing

    def plan_redo(self, action: str, undone: Json) -> Json:
        if self._value(undone["key"]) != undone["after"]:
            raise InputError(f"{undone['key']}: has another value by now")
        return {"key": undone["key"], "before": undone["after"], "after": undone["before"]}

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        self._apply(redoing, NotRedone, is_late=is_late)
        return {**receipt, **redoing}

    def _apply(self, change: Json, error: type[InputError], *, is_late: bool = False) -> None:
        now = self._value(change["key"])
        if now != change["before"] and not (is_late and now == change["after"]):
            raise error(f"{change['key']}: another program has changed it")
        self._write(change["key"], change["after"])

    def _value(self, key: str) -> JsonValue:
        return json.loads(self._path.read_text(encoding="utf-8")).get(key)

    def _write(self, key: str, value: JsonValue) -> None:
        values = {**json.loads(self._path.read_text(encoding="utf-8")), key: value}
        kept = {name: each for name, each in values.items() if each is not None}
        write_atomically(self._path, json.dumps(kept, indent=2))
