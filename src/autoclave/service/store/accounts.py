"""Tokens, usage and load of clients, and servers: for operators."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict

from autoclave.service.store.records import ClientLoad, Server, Usage, token_of
from autoclave.service.store.statements import Statements
from autoclave.service.tokens import Scope, TokenRecord

UNFINISHED = "state IN ('accepted', 'running')"
_HOUR_S, _DAY_S = 3600, 86400
USAGE_KEPT_S = 2 * _DAY_S
_TOKEN = "id, label, hash, scopes, created, expires, is_revoked, limits"


class Accounts(Statements):
    """Tokens, usage, load and servers. Hours and days are those of UTC."""

    def add_token(self, token: TokenRecord) -> None:
        """Store a token. Its admin scope is among its limits: earlier programs do not know that scope."""
        scopes = " ".join(sorted(token.scopes - {Scope.ADMIN}))
        limits = asdict(token.limits) | {"is_admin": Scope.ADMIN in token.scopes}
        with self._changing():
            self._run(
                f"INSERT INTO tokens ({_TOKEN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(token.id, token.label, token.hash, scopes, token.created, token.expires, int(token.is_revoked)),
                json.dumps(limits),
            )

    def token(self, id: str) -> TokenRecord | None:
        row = self._row(f"SELECT {_TOKEN} FROM tokens WHERE id = ?", id)
        return None if row is None else token_of(row)

    def tokens(self) -> list[TokenRecord]:
        return [token_of(row) for row in self._rows(f"SELECT {_TOKEN} FROM tokens ORDER BY created, id")]

    def revoke_token(self, id: str) -> bool:
        """Revoke a token; return False if it does not exist."""
        with self._changing():
            return bool(self._run("UPDATE tokens SET is_revoked = 1 WHERE id = ?", id))

    def usage(self, now: float) -> dict[str, Usage]:
        """Return the CPU seconds of clients in this hour and this day."""
        hour, day = (int(now // length) * length for length in (_HOUR_S, _DAY_S))
        rows = self._rows(
            "SELECT client, sum(CASE WHEN hour = ? THEN cpu_s ELSE 0.0 END), sum(cpu_s) FROM client_usage "
            "WHERE hour >= ? GROUP BY client",
            *(hour, day),
        )
        return {client: Usage(*seconds) for client, *seconds in rows}

    def charge(self, *used: tuple[str, float]) -> None:
        """Add CPU seconds to the usage of clients."""
        with self._changing():
            self._charge(used)

    def _charge(self, used: Iterable[tuple[str, float]]) -> None:
        cpu_s = defaultdict[str, float](float)
        for client, seconds in used:
            cpu_s[client] += seconds
        hour = int(time.time() // _HOUR_S) * _HOUR_S
        self._run_many(
            "INSERT INTO client_usage (client, hour, cpu_s) VALUES (?, ?, ?) ON CONFLICT (client, hour) "
            "DO UPDATE SET cpu_s = client_usage.cpu_s + excluded.cpu_s",
            [(client, hour, seconds) for client, seconds in sorted(cpu_s.items())],  # in one order, against deadlocks
        )

    def clients(self) -> list[ClientLoad]:
        """Return the clients that have unfinished jobs, those with the most first."""
        rows = self._rows(
            "SELECT jobs.client, sum(CASE WHEN state = 'accepted' THEN 1 ELSE 0 END), "
            "sum(CASE WHEN state = 'running' THEN 1 ELSE 0 END), min(created) FROM jobs "
            f"JOIN batches ON batches.id = jobs.batch WHERE {UNFINISHED} GROUP BY jobs.client ORDER BY count(*) DESC"
        )
        return [ClientLoad(*row) for row in rows]

    def unfinished(self, column: str, value: str) -> list[str]:
        """Return the ids of the unfinished jobs with this `client`, `batch` or `id`."""
        return [row[0] for row in self._rows(f"SELECT id FROM jobs WHERE {UNFINISHED} AND {column} = ?", value)]

    def servers(self) -> list[Server]:
        return [Server(*row) for row in self._rows(f"SELECT id, name, slots, per_s, {self.NOW} - seen FROM nodes")]

    def end_server(self, id: str) -> None:
        """Have a server end with its next heartbeat, as after SIGTERM."""
        with self._changing():
            self._run("UPDATE nodes SET must_end = 1 WHERE id = ?", id)
