"""Actions on key-value databases: commands that bring the commands that take them back.

Theory of operation. The keys that an action and its undo name are copied to a server of our own, where both are tried
(`trial`). The action is done in one transaction (WATCH, MULTI, EXEC), which happens only if all these keys hold what
they held in the trial; its undo, only if they hold what the action left. So a digest of what they held before and after
is all that is kept, in the journal. The same digests tell after a crash, or a connection that was lost, whether a
transaction happened.

No lock is held on the server: another session counts as somebody else. A server that is part of a cluster is not known.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import as_name
from autoclave.runtime.databases.redis.commands import Commands
from autoclave.runtime.databases.redis.store import State, Store
from autoclave.runtime.databases.redis.throwaway import ThrowAway
from autoclave.runtime.databases.redis.trial import Trial, keys_of, leads_to, try_out
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.footprints import Footprint, meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, NotRedone, NotUndone, Plan, UndoneWith
from autoclave.runtime.policy.request import Access, Request

_ROOT = "databases"


class KeyValueManager:
    """Actions on the key-value databases of `connections`. `key_of` gives the password that a secret holds."""

    operations: Mapping[str, type[Config]] = {"commands": Commands}

    def __init__(self, connections: Mapping[str, DatabaseConnection], key_of: Callable[[str], str]) -> None:
        self._connections, self._key_of = connections, key_of
        self._stores: dict[str, Store] = {}
        self._place: ThrowAway | None = None

    def close(self) -> None:
        """Let go of all connections, and end the server for tests."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        if self._place is not None:
            self._place.close()
            self._place = None

    # --- Planning ---------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """See `Manager`: no names of keys, which may be data of somebody."""
        return "\n".join(f"key-value database {name} (redis)" for name in self._connections)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: what keys hold is copied to where it is tried."""
        commands = cast("Commands", operation)
        self._store(commands.database)
        keys = keys_of(commands, self._throw_away(commands.database))
        return Request(tuple(Access("read", self._resource(commands.database, key)) for key in keys))

    def plan(self, action: str, operation: Config) -> Plan:
        commands = cast("Commands", operation)
        name = commands.database
        trial = self._tried(commands)
        resources = {key: self._resource(name, key) for key in trial.keys}
        accesses = [Access("read", resource) for resource in resources.values()]
        accesses += [Access(trial.verb(key), resources[key], rows=1) for key in trial.changed]
        told = [commands.model_dump(mode="json"), _plain(trial.before), _plain(trial.after)]
        return Plan(
            digest=hashlib.sha256(canonical_json(told)).hexdigest(),
            changes=(*self._changes(name, trial), *_in_words(commands)),
            request=Request(tuple(accesses), Guarantee.EXACT),
            footprint=Footprint(frozenset(resources.values()), frozenset(resources[key] for key in trial.changed)),
            guarantee=Guarantee.EXACT,
            kept={"before": _plain(trial.before), "after": _plain(trial.after), "keys": _words(trial.keys)},
        )

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        return self.plan(action, operation)

    def _tried(self, commands: Commands) -> Trial:
        settings = self._settings(commands.database)
        live, place = self._store(commands.database), self._throw_away(commands.database)
        try:
            return try_out(commands, live, place, settings.max_rows)
        except InputError as error:
            where = f"database {commands.database}"
            raise InputError(f"{error}" if f"{error}".startswith(where) else f"{where}: {error}") from None

    def _changes(self, name: str, trial: Trial) -> Iterator[str]:
        for key in trial.changed:
            yield f"{trial.verb(key)} key {self._row(name, key)}"

    def _settings(self, name: str) -> DatabaseConnection:
        if name not in self._connections:
            known = ", ".join(self._connections) or "none"
            raise InputError(f"database {name!r}: there is no such key-value database; there are {known}")
        return self._connections[name]

    def _row(self, name: str, key: bytes) -> str:
        settings = self._settings(name)
        return f"{name}/{settings.dbname}/{as_name(key)}"

    def _resource(self, name: str, key: bytes) -> str:
        return f"{_ROOT}/{self._row(name, key)}"

    def _store(self, name: str) -> Store:
        settings = self._settings(name)
        if name not in self._stores:
            password = self._key_of(settings.password_secret) if settings.password_secret else ""
            self._stores[name] = open_store(name, settings, password)
        return self._stores[name]

    def _throw_away(self, name: str) -> ThrowAway:
        if self._place is not None and not self._place.is_alive:
            self._place.close()
            self._place = None
        if self._place is None:
            self._place = ThrowAway(f"database {name}")
        return self._place

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. Nothing is made ready: the transaction is."""
        commands = cast("Commands", operation)
        return {
            "database": commands.database,
            "operation": commands.model_dump(mode="json"),
            **plan.kept,
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def execute(self, action: str, started: Json) -> Json:
        commands = Commands.model_validate(started["operation"])
        self._transact(started, started["before"], commands.commands)
        return dict(started)

    def _transact(self, told: Json, wanted: Json, commands: Sequence[Sequence[str]]) -> None:
        keys = [bytes.fromhex(key) for key in told["keys"]]
        self._store(told["database"]).run_if(keys, _state(wanted), commands)

    def _now(self, told: Json) -> dict[str, str]:
        """What the keys of an action hold, as it is written in the journal."""
        return _plain(self._store(told["database"]).state([bytes.fromhex(key) for key in told["keys"]]))

    def find_out(self, action: str, started: Json) -> Json | None:
        now = self._now(started)
        if now == started["after"]:
            return dict(started)
        if now == started["before"]:
            return None
        raise InDoubt(f"action {action}: its keys hold neither what they held before nor what it would have left")

    def observed(self, action: str, receipt: Json) -> Request:
        trial = Trial(
            tuple(bytes.fromhex(key) for key in receipt["keys"]), _state(receipt["before"]), _state(receipt["after"])
        )
        resources = {key: self._resource(receipt["database"], key) for key in trial.keys}
        accesses = [Access("read", resource) for resource in resources.values()]
        accesses += [Access(trial.verb(key), resources[key], rows=1) for key in trial.changed]
        return Request(tuple(accesses), Guarantee.EXACT)

    def accept(self, action: str, started: Json) -> Json:
        return {**started, "after": self._now(started)}

    def put_back(self, action: str, started: Json) -> bool:
        now = self._now(started)
        if now != started["after"]:
            return now == started["before"]
        with contextlib.suppress(InputError, InDoubt):
            self._transact(started, started["after"], Commands.model_validate(started["operation"]).undo)
        return self._now(started) == started["before"]

    def keep(self, action: str, receipt: Json) -> None:
        """See `Manager`: digests are in the journal."""

    def kept_bytes(self, receipt: Json) -> int:
        return 0

    def discard(self, action: str) -> None:
        """See `Manager`: nothing is kept."""

    def commit(self, action: str, receipt: Json) -> None:
        """See `Manager`: nothing is left open."""

    def lapsed(self, action: str, receipt: Json) -> str:
        return ""

    # --- Taking back ------------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        return ""

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:
            now, after, name = self._now(receipt), receipt["after"], receipt["database"]
            rows = [self._row(name, bytes.fromhex(key)) for key in receipt["keys"] if now.get(key) != after.get(key)]
            if own := [row for row in rows if not meet({f"{_ROOT}/{row}"}, seen)]:
                found[action] = own
            seen |= set(receipt["writes"])
        return found

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        now = self._now(receipt)
        chosen = {default, *choices.values()}
        if now != receipt["after"] and chosen & {Choice.SKIP, Choice.SAVE_ASIDE}:
            raise InputError(f"action {action}: the undo is commands: force it, or leave it as it is")
        wanted = now if Choice.FORCE in chosen else receipt["after"]
        return {**receipt, "found": wanted}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        if is_late and self._now(undoing) == undoing["before"]:
            return dict(undoing)
        commands = Commands.model_validate(undoing["operation"])
        self._require_leads(undoing, undoing["found"], commands.undo, undoing["before"], NotUndone)
        self._settle(undoing, undoing["found"], commands.undo, undoing["before"], NotUndone)
        return dict(undoing)

    def plan_redo(self, action: str, undone: Json) -> Json:
        if self._now(undone) != undone["before"]:
            raise InputError(f"action {action}: its keys changed since it was undone")
        return dict(undone)

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        return self.observed(action, receipt)

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        if is_late and self._now(redoing) == redoing["after"]:
            return dict(receipt)
        commands = Commands.model_validate(redoing["operation"]).commands
        self._require_leads(redoing, redoing["before"], commands, redoing["after"], NotRedone)
        self._settle(redoing, redoing["before"], commands, redoing["after"], NotRedone)
        return dict(receipt)

    def _require_leads(
        self, told: Json, start: Json, commands: Sequence[Sequence[str]], end: Json, error: type[InputError]
    ) -> None:
        """Try on copies whether commands lead from what keys hold to what they are to hold."""
        keys, name = [bytes.fromhex(key) for key in told["keys"]], told["database"]
        store = self._store(name)
        try:
            found = leads_to(commands, keys, store.copy(keys), self._throw_away(name))
        except InputError as refused:
            raise error(f"the commands fail: {refused}") from None
        if _plain(found) != end:
            wrong = [key for key in told["keys"] if _plain(found).get(key) != end.get(key)]
            names = ", ".join(self._row(name, bytes.fromhex(key)) for key in wrong)
            raise error(f"{names} would not be as wanted: somebody else has changed it since, or its time was over")

    def _settle(
        self, told: Json, start: Json, commands: Sequence[Sequence[str]], end: Json, error: type[InputError]
    ) -> None:
        """Do commands, and look how it ended where the connection was lost."""
        try:
            self._transact(told, start, commands)
        except InDoubt as doubt:
            now = self._now(told)
            if now == end:
                return
            if now == start:
                raise HostError(f"{doubt}. Fix: try again when the database answers") from None
            raise
        except InputError as refused:
            raise error(f"{refused}") from None

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: which keys; what they held is not kept."""
        if receipt is None or "keys" not in receipt:
            return []
        before, after, name = receipt["before"], receipt["after"], cast("Commands", operation).database
        changed = [key for key in receipt["keys"] if before.get(key) != after.get(key)]
        rows = [(key, self._row(name, bytes.fromhex(key))) for key in changed]
        return [
            *(f"- {row}; what it held is not kept" for key, row in rows if key in before),
            *(f"+ {row}" for key, row in rows if key in after),
        ]


def open_store(name: str, settings: DatabaseConnection, password: str) -> Store:
    """A database by its settings: `host` (a name, or the path of a socket), `port`, `dbname` (a number), `user`.

    Raises:
        InputError: the settings do not fit, or the server does not let us in.
        HostError: it does not answer, or something is not installed.
    """
    where = f"database {name}"
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise HostError(f"{where}: Redis needs redis. Fix: {install_command('databases')}") from None
    if not settings.dbname.isdigit():
        raise InputError(f"{where}: engine redis needs dbname, the number of a database")
    given: dict[str, Any] = {
        "db": int(settings.dbname),
        "username": settings.user or None,
        "password": password or None,
        "socket_timeout": settings.statement_timeout_s,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.host.startswith("/"):
        connection: Any = redis.UnixDomainSocketConnection(path=settings.host, **given)
    else:
        connection = redis.Connection(host=settings.host or "127.0.0.1", port=settings.port or 6379, **given)
    store = Store(connection, where)
    store.open()
    return store


def _plain(state: State) -> dict[str, str]:
    """What keys hold, as JSON data."""
    return {key.hex(): digest for key, digest in sorted(state.items())}


def _state(plain: Json) -> State:
    return {bytes.fromhex(key): digest for key, digest in plain.items()}


def _words(keys: Sequence[bytes]) -> list[str]:
    return [key.hex() for key in keys]


def _in_words(commands: Commands) -> Iterator[str]:
    count = len(commands.undo)
    yield (
        f"undo by {count} command{'' if count == 1 else 's'} of its own, tried twice on copies of the keys; it is done "
        "only where these hold what the action left"
    )
