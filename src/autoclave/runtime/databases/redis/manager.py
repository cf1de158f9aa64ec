"""Actions on key-value databases: commands, undone by writing back what their keys held.

Theory of operation. A plan does the commands, reads what their keys hold then, and writes back what they held before,
all in one transaction (WATCH, MULTI, EXEC), of which no other client sees a part. What the keys held before and after
(DUMP, with the time at which each ends) is kept in the state. The action is done in one transaction, only where the
keys hold what they held when it was planned; its undo, only where they hold what the action left. So the digests of
both tell after a crash, or a lost connection, whether a transaction happened.

No lock is held on the server: another session counts as another client. Clusters are not supported.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import row_name
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.redis.commands import REMOVING, Commands, require_allowed
from autoclave.runtime.databases.redis.store import (
    Images,
    KeyImage,
    KeysChanged,
    Store,
    digests_of,
    open_store,
    restoring,
)
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.footprints import Footprint, meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import (
    Choice,
    InDoubt,
    Json,
    Manager,
    NothingLeft,
    NotRedone,
    NotUndone,
    Plan,
    UndoneWith,
)
from autoclave.runtime.policy.request import Access, Request


class KeyValueManager(Manager):
    """Actions on the key-value databases of `connections`.

    `state` is a folder that nothing else touches: what keys held is kept in it. `key_of` gives the password that a
    secret holds.
    """

    operations: Mapping[str, type[Config]] = {"commands": Commands}

    def __init__(
        self, connections: Mapping[str, DatabaseConnection], state: Path, key_of: Callable[[str], str]
    ) -> None:
        self._databases, self._kept = Databases(connections, key_of, open_store), KeptRows(state)

    def close(self) -> None:
        """Close all connections."""
        self._databases.close()

    # --- Planning ---------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """See `Manager`: no names of keys, which may be personal data."""
        return "\n".join(f"key-value database {name} (redis)" for name in self._databases)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: planning does the commands and rolls them back, so what they do must be permitted before."""
        commands = cast("Commands", operation)
        name, keys = commands.database, self._keys(commands)
        there, removed = self._store(name).read(keys), _removed(commands)
        found = [Access("read", self._resource(name, key)) for key in keys]
        for key in (key for key, is_written in keys.items() if is_written):
            verb = "create" if key not in there else "delete" if key in removed else "modify"
            found.append(Access(verb, self._resource(name, key), rows=1))
        return Request(tuple(found))

    def _keys(self, commands: Commands) -> dict[str, bool]:
        require_allowed(commands.commands)
        name, keys = commands.database, self._store(commands.database).keys_of(commands.commands)
        if len(keys) > (most := self._databases.settings(name).max_rows):
            raise InputError(
                f"database {name}: names {len(keys)} keys, and max_rows is {most}. Fix: do it in parts, or have the "
                "limit raised"
            )
        return keys

    def plan(self, action: str, operation: Config) -> Plan:
        try:
            return self._rehearsed(action, cast("Commands", operation))
        except BaseException:
            self._kept.discard(action)
            raise

    def _rehearsed(self, action: str, commands: Commands) -> Plan:
        name, keys = commands.database, list(self._keys(commands))
        before, after = self._store(name).rehearse(
            keys, commands.commands, lambda images: self._keep(action, "before", images)
        )
        told = {"keys": keys, "before": digests_of(before), "after": digests_of(after)}
        if told["before"] == told["after"]:
            raise InputError(f"database {name}: the commands change nothing as it is now")
        self._keep(action, "after", after)
        if (num_bytes := self._num_bytes(action)) > self._databases.settings(name).max_bytes:
            raise InputError(f"database {name}: {num_bytes} bytes would be kept, more than max_bytes")
        return self._plan_of(commands, told)

    def _plan_of(self, commands: Commands, told: Json) -> Plan:
        name = commands.database
        digest = hashlib.sha256(canonical_json([commands.model_dump(mode="json"), told["before"], told["after"]]))
        resources = {key: self._resource(name, key) for key in told["keys"]}
        verbs = _verbs(told)
        return Plan(
            digest=digest.hexdigest(),
            changes=tuple(f"{verb} key {self._row(name, key)}" for key, verb in verbs.items()),
            request=self._request(name, told),
            footprint=Footprint(frozenset(resources.values()), frozenset(resources[key] for key in verbs)),
            guarantee=Guarantee.EXACT,
            kept=dict(told),
        )

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """See `Manager`: the same commands do the same to keys that hold the same."""
        commands = cast("Commands", operation)
        if self._kept.get_mark(action, "after") is not None and self._now(commands.database, kept) == kept["before"]:
            return self._plan_of(commands, kept)
        return self.plan(action, operation)

    def _request(self, name: str, told: Json) -> Request:
        accesses = [Access("read", self._resource(name, key)) for key in told["keys"]]
        accesses += [Access(verb, self._resource(name, key), rows=1) for key, verb in _verbs(told).items()]
        return Request(tuple(accesses), Guarantee.EXACT)

    def _row(self, name: str, key: str) -> str:
        return row_name(name, self._databases.settings(name).dbname, key)

    def _resource(self, name: str, key: str) -> str:
        return f"databases/{self._row(name, key)}"

    def _store(self, name: str) -> Store:
        return self._databases.engine(name)

    # --- What is kept -----------------------------------------------------------------------------------------------

    def _keep(self, action: str, name: str, images: Images) -> None:
        self._kept.put_mark(action, name, images)

    def _images(self, action: str, name: str) -> Images:
        found = self._kept.get_mark(action, name)
        if found is None:
            raise InputError(f"action {action}: what its keys held is not kept any more")
        return {key: KeyImage(*image) for key, image in found.items()}

    def _num_bytes(self, action: str) -> int:
        return sum(len(each.dump) for name in ("before", "after") for each in self._images(action, name).values())

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. Nothing is made ready: the transaction is."""
        commands = cast("Commands", operation)
        return {
            "database": commands.database,
            "operation": commands.model_dump(mode="json"),
            **plan.kept,
            "kept_bytes": self._num_bytes(action),
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def execute(self, action: str, started: Json) -> Json:
        name, keys = started["database"], started["keys"]
        commands = Commands.model_validate(started["operation"]).commands
        left, is_done = self._store(name).run_if(keys, started["before"], commands)
        if not is_done or digests_of(left) != started["after"]:
            before = restoring(keys, self._images(action, "before"))
            self._store(name).run_if(keys, digests_of(left), before)
            raise InputError(f"database {name}: the commands did something else than was planned, and were rolled back")
        return dict(started)

    def _now(self, name: str, told: Json) -> dict[str, str]:
        """The digests of what the keys of an action hold."""
        return digests_of(self._store(name).read(told["keys"]))

    def find_out(self, action: str, started: Json) -> Json | None:
        now = self._now(started["database"], started)
        if now == started["after"]:
            return dict(started)
        if now == started["before"]:
            return None
        raise InDoubt(f"action {action}: its keys hold neither what they held before nor what it would have left")

    def answers(self, action: str, begun: Json) -> bool:
        """See `Manager`: connecting is limited in time."""
        return True

    def observed(self, action: str, receipt: Json) -> Request:
        return self._request(receipt["database"], receipt)

    def accept(self, action: str, started: Json) -> Json:
        images = self._store(started["database"]).read(started["keys"])
        self._keep(action, "after", images)
        return {**started, "after": digests_of(images)}

    def put_back(self, action: str, started: Json) -> bool:
        now = self._now(started["database"], started)
        if now == started["after"]:
            before = restoring(started["keys"], self._images(action, "before"))
            with contextlib.suppress(KeysChanged, InDoubt):
                self._store(started["database"]).run_if(started["keys"], now, before)
            now = self._now(started["database"], started)
        return now == started["before"]

    def discard(self, action: str) -> None:
        self._kept.discard(action)

    # --- Taking back ------------------------------------------------------------------------------------------------

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:
            now, after, name = self._now(receipt["database"], receipt), receipt["after"], receipt["database"]
            rows = [self._row(name, key) for key in receipt["keys"] if now.get(key) != after.get(key)]
            if own := [row for row in rows if not meet({f"databases/{row}"}, seen)]:
                found[action] = own
            seen |= set(receipt["writes"])
        return found

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        name, found = receipt["database"], self._store(receipt["database"]).read(receipt["keys"])
        now, keys = digests_of(found), list[str]()
        for key in receipt["keys"]:
            row = self._row(name, key)
            is_changed = now.get(key) != receipt["after"].get(key)
            choice = choices.get(row, default) if is_changed else Choice.FORCE
            if choice is Choice.SAVE_ASIDE:
                raise InputError(f"{row}: a key has no other place to be saved in; use skip or force")
            if choice is Choice.REFUSE:
                raise InputError(f"action {action}: another client has changed {row} since")
            if choice is Choice.FORCE:
                keys.append(key)
        if not keys:
            raise NothingLeft("others have changed all of its keys since")
        return self._change(action, receipt, keys, found, self._images(action, "before"))

    def _change(self, action: str, told: Json, keys: Sequence[str], source: Images, target: Images) -> Json:
        """Keep what keys hold and what they are to hold; JSON data for `_write`."""
        images = f"undo-{token_hex(4)}"
        source = {key: image for key, image in source.items() if key in keys}
        target = {key: image for key, image in target.items() if key in keys}
        self._keep(action, f"{images}-from", source)
        self._keep(action, f"{images}-to", target)
        states = {"from": digests_of(source), "to": digests_of(target)}
        return {**told, **states, "images": images, "changed": list(keys)}

    def _write(self, action: str, change: Json, error: type[InputError], *, is_late: bool) -> None:
        """Have keys hold what they are to hold, unless that was done before a crash.

        Raises:
            error: nothing was done.
            InDoubt: the keys hold neither.
        """
        store, keys = self._store(change["database"]), change["changed"]
        if is_late:
            now = digests_of(store.read(keys))
            if now == change["to"]:
                return
            if now != change["from"]:
                raise InDoubt(f"action {action}: its keys hold neither what they held before nor what it left")
        try:
            store.run_if(keys, change["from"], restoring(keys, self._images(action, f"{change['images']}-to")))
        except InDoubt as doubt:
            if (now := digests_of(store.read(keys))) == change["from"]:
                raise error(f"{doubt}. Fix: try again when the database answers") from None
            if now != change["to"]:
                raise
        except InputError as refused:
            raise error(f"{refused}") from None

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        self._write(action, undoing, NotUndone, is_late=is_late)
        return dict(undoing)

    def plan_redo(self, action: str, undone: Json) -> Json:
        images, keys = undone["images"], undone["changed"]
        if digests_of(self._store(undone["database"]).read(keys)) != undone["to"]:
            raise InputError(f"action {action}: its keys changed since it was undone")
        source, target = self._images(action, f"{images}-to"), self._images(action, f"{images}-from")
        return self._change(action, undone, keys, source, target)

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        self._write(action, redoing, NotRedone, is_late=is_late)
        return dict(receipt)

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: which keys."""
        if receipt is None or "keys" not in receipt:
            return []
        name, changed = cast("Commands", operation).database, _verbs(receipt)
        return [
            f"{sign} {self._row(name, key)}"
            for sign, there in (("-", receipt["before"]), ("+", receipt["after"]))
            for key in changed
            if key in there
        ]


def _removed(commands: Commands) -> set[str]:
    """The keys that commands remove by name."""
    return {key for name, *keys in commands.commands for key in keys[: REMOVING.get(name.upper(), 0)]}


def _verbs(told: Json) -> dict[str, str]:
    """What becomes of each key that changes."""
    before, after = told["before"], told["after"]
    changed = (key for key in told["keys"] if before.get(key) != after.get(key))
    return {key: "create" if key not in before else "modify" if key in after else "delete" for key in changed}
