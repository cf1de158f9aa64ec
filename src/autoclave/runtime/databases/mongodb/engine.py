"""One MongoDB database as an engine of databases. Has not yet been run on a real server.

Theory of operation. `user` of the settings has rights on this database alone, which is the barrier; commands that are
none of the four that change documents are not let through (`parsing`). What is proposed runs in one transaction on a
snapshot, in which the documents that it changes are read before and after (`recorder`), and is committed when most of
the replica set has it. Documents are kept and written back as the bytes that they are (`documents`, `rows`). Whether a
transaction was committed is told by the documents themselves, since all of them were written at once or none; to see
that it is not still under way, the same is written again, and rolled back, which a transaction that is open prevents.
Nothing of ours is in the database between two transactions.

A table is a collection, a row a document, its key the `_id`. A collection has no layout. Not seen, and not taken back:
what triggers of a hosting service do, and what indexes with a time to live take away later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Mapping
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect, Image, as_name, without_collection
from autoclave.runtime.databases.engine import Contested, Held, Json, Keep, Reading, Rejected
from autoclave.runtime.databases.limits import require_limits
from autoclave.runtime.databases.mongodb.catalogue import CollectionFacts, catalogue_of
from autoclave.runtime.databases.mongodb.connection import Server
from autoclave.runtime.databases.mongodb.failures import REFUSED_DOCUMENTS, code_of, translated, words
from autoclave.runtime.databases.mongodb.holding import MOST_S, Holding
from autoclave.runtime.databases.mongodb.parsing import Step, parsed
from autoclave.runtime.databases.mongodb.recorder import Recorder
from autoclave.runtime.databases.mongodb.rows import Rows
from autoclave.runtime.databases.operations import Sql, in_statement
from autoclave.runtime.databases.places import place_of, table_of
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

Planned = list[list[Step]]
"""The steps of each statement."""


class MongoDatabase:
    """See `Engine`."""

    modes = frozenset({Mode.IMAGES, Mode.HOLD})

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self._name, self._settings = name, settings
        self._server = Server(name, settings, password)
        self._holding = Holding(self._server)

    @property
    def _where(self) -> str:
        return self._server.where

    def close(self) -> None:
        self._holding.close()
        self._server.close()

    # --- Looking ----------------------------------------------------------------------------------------------------

    def schema(self) -> Schema:
        with translated(self._where):
            found = catalogue_of(self._server.database, with_indexes=True)
        return Schema({place: each.as_table() for place, each in found.items()})

    def read(self, operation: Sql, mode: Mode) -> Reading:
        planned = self._planned(operation, mode)
        writes: dict[str, frozenset[str]] = {}
        for step in _steps(planned):
            place = self._place(step)
            writes[place] = writes.get(place, frozenset()) | step.verbs
        return Reading(writes, self._reads(planned))

    def _planned(self, operation: Sql, mode: Mode) -> Planned:
        """Statements as steps.

        Raises:
            InputError: one of them is refused, or what it does could not be seen, or taken back.
        """
        if operation.parameters:
            raise InputError("parameters: MongoDB has none; values stand in the statement, in Extended JSON")
        if mode is Mode.HOLD and self._settings.hold_s > MOST_S:
            raise InputError(
                f"{self._where}: hold_s = {self._settings.hold_s:g}: MongoDB ends a transaction after 60 s "
                f"(transactionLifetimeLimitSeconds). Mend: set hold_s to {MOST_S:g} or less"
            )
        planned = [parsed(text, number + 1) for number, text in enumerate(operation.statements)]
        known = self._catalogue()
        for number, steps in enumerate(planned):
            for step in steps:
                self._require_seen(known, step, number + 1)
        return planned

    def _catalogue(self) -> Mapping[str, CollectionFacts]:
        with translated(self._where):
            return catalogue_of(self._server.database)

    def _require_seen(self, known: Mapping[str, CollectionFacts], step: Step, number: int) -> None:
        found = known.get(self._place(step))
        if found is None:
            raise InputError(
                f"statement {number}: there is no collection {step.collection} in {self._settings.dbname}; one is "
                "made by a person, since no undo takes it away"
            )
        if found.obstacle:
            raise InputError(f"statement {number}: collection {found.place}: {found.obstacle}")

    def _place(self, step: Step) -> str:
        return place_of(self._settings.dbname, step.collection)

    def _reads(self, planned: Planned) -> frozenset[str]:
        """What statements depend on: documents that they name by their `_id`, else collections."""
        found: set[str] = set()
        for step in _steps(planned):
            place, keys = self._place(step), step.keys
            found |= {place} if keys is None else {f"{place}/{as_name(key)}" for key in keys}
        return frozenset(found)

    def lease(self, tables: Collection[str]) -> None:
        for place in sorted({table_of(table) for table in tables}):
            self._server.lease(place)

    def _rows(self, session: Any) -> Rows:
        return Rows(self._server.database, session, self._server.statement_ms)

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode, planned: Effect | None = None) -> Effect:
        steps = self._planned(operation, mode)
        with without_collection():
            return self._server.attempt(lambda session: self._run(session, steps))

    def perform(self, operation: Sql, keep: Keep, planned: Effect | None = None) -> None:
        steps = self._planned(operation, Mode.IMAGES)

        def run(session: Any) -> None:
            keep(self._run(session, steps), {})
            self._server.commit(session)

        with without_collection():
            self._server.attempt(run)

    def _run(self, session: Any, planned: Planned) -> Effect:
        """Run statements in the transaction of a session; what they did."""
        rows = self._rows(session)
        recorder = Recorder(rows, self._settings.dbname, self._settings.max_rows)
        for number, steps in enumerate(planned):
            with in_statement(number + 1):
                for step in steps:
                    recorder.run(step)
        effect = Effect(
            tuple(recorder.table_effects()),
            reads=self._reads(planned),
            is_settled=all(step.is_settled for step in _steps(planned)),
        )
        require_limits(self._where, effect, self._settings, lambda place: rows.number(place.split("/", 1)[1]))
        return effect

    # --- Taking back ------------------------------------------------------------------------------------------------

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """See `Engine`: the documents tell."""
        places = self._catalogue().keys()

        def look(session: Any) -> bool:
            rows = self._rows(session)
            is_before, is_after = rows.contested(effect, places), rows.contested(effect.inverse(), places)
            if (told := effect.has_come_true(is_before, is_after)) is None:
                raise InDoubt(f"{self._where}: others have changed all that would tell whether it was committed")
            if not told and not is_before:
                with contextlib.suppress(Rejected):
                    self._written(rows, effect)  # were it still under way, this could not be
            return told

        try:
            return self._server.attempt(look)
        except HostError as error:
            raise InDoubt(f"{error}") from None

    def contested(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        places = self._catalogue().keys()
        with without_collection():
            return self._server.attempt(lambda session: self._rows(session).contested(effect, places))

    def write(self, effect: Effect, keep: Keep) -> None:
        places = self._catalogue().keys()

        def run(session: Any) -> None:
            rows = self._rows(session)
            if contested := rows.contested(effect, places):
                raise Contested.over(self._name, contested)
            self._written(rows, effect)
            keep(effect, {})
            self._server.commit(session)

        with without_collection():
            self._server.attempt(run)

    def _written(self, rows: Rows, effect: Effect) -> None:
        from pymongo.errors import PyMongoError

        try:
            rows.write(effect)
        except PyMongoError as error:
            if code_of(error) not in REFUSED_DOCUMENTS:
                raise
            raise Rejected(f"{self._where}: what others did since stands against it: {words(error)}") from None

    # --- Holding ----------------------------------------------------------------------------------------------------

    def hold(self, action: str, operation: Sql, keep: Keep) -> None:
        steps = self._planned(operation, Mode.HOLD)
        found: list[Effect] = []
        with without_collection():
            self._holding.hold(
                action,
                lambda session: found.append(self._run(session, steps)),
                lambda mark: keep(found[-1], mark),
            )

    def held(self, action: str, mark: Json) -> Held:
        nothing = {"filter": {"_id": {"$in": []}}}
        if self._holding.is_open(action, lambda session: self._rows(session).find("none", nothing)):
            return Held(True)
        return Held(False, self._holding.ended(action))

    def end_hold(self, action: str, *, commit: bool) -> None:
        self._holding.end(action, commit=commit)


def open_database(name: str, connection: DatabaseConnection, password: str) -> MongoDatabase:
    """See `Open`."""
    try:
        import pymongo  # noqa: F401
    except ImportError as error:
        raise HostError(
            f"database {name}: MongoDB needs {error.name}. Mend: pip install 'autoclave[databases]'"
        ) from None
    if not connection.dbname or not connection.user or not password:
        raise InputError(
            f"database {name}: engine mongodb needs dbname, a user of that database with rights on it alone, and the "
            "secret of its password (password_secret)"
        )
    if "/" in connection.host and not connection.host.startswith("/"):
        raise InputError(f"database {name}: host: must be a name, an address, or the folder of a socket, and no URI")
    for word in ("role", "schemas", "functions", "allows_code"):
        if getattr(connection, word):
            raise InputError(f"database {name}: {word}: is nothing that MongoDB has")
    return MongoDatabase(name, connection, password)


def _steps(planned: Planned) -> Generator[Step]:
    for steps in planned:
        yield from steps
