"""What stores have in common: every statement.

Statements are plain enough for all databases; where rows must be locked, the database has the words for it. Whoever
ends jobs locks their batches first, in order of their ids: so nobody waits in a circle, and the sequence numbers within
a batch are in the order in which others come to see them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import zstandard

from autoclave.core import Problem
from autoclave.service.store.database import Database
from autoclave.service.store.interface import (
    Batch,
    Bounds,
    Event,
    JobSpec,
    JobState,
    KeyReused,
    Load,
    News,
    ProblemRecord,
    QueueFull,
    StartedJob,
    Waiting,
)
from autoclave.service.store.records import (
    about,
    body_of,
    free_text,
    options_of,
    problem_of,
    record_of,
    spec_of,
    state_of,
    token_of,
)
from autoclave.service.tokens import TokenRecord

_UNFINISHED = "state IN ('accepted', 'running')"
_BATCH = "id, client, idempotency_key, fingerprint, priority, created, deadline, keep_s"
_STATE = "id, batch, client, place, label, state, sequence"
_TOKEN = "id, label, hash, scopes, created, expires, is_revoked"


class SqlStore(Database):
    """A `Store` in a database that speaks SQL."""

    # --- Problems --------------------------------------------------------------------------------------------------

    def put_problems(self, problems: Iterable[Problem]) -> list[bool]:
        packer = zstandard.ZstdCompressor(level=3)
        rows: list[tuple[Any, ...]] = []
        for problem in problems:
            body = body_of(problem)
            statement = free_text(problem.statement)
            rows.append((problem.digest, about(problem), statement, packer.compress(body), len(body), time.time()))
        added = [False] * len(rows)
        insert = (
            "INSERT INTO problems (digest, about, statement, body, size, created) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (digest) DO NOTHING"
        )
        with self._changing():
            for place, row in sorted(
                enumerate(rows), key=lambda numbered: numbered[1][0]
            ):  # others may upload them too
                added[place] = bool(
                    self._run(insert, *row)
                    or self._run("UPDATE problems SET is_deleted = 0 WHERE digest = ? AND is_deleted = 1", row[0])
                )
        return added

    def problem(self, digest: str) -> Problem | None:
        row = self._row("SELECT body FROM problems WHERE digest = ?", digest)
        return None if row is None else problem_of(zstandard.ZstdDecompressor().decompress(row[0]))

    def problem_records(self, digests: Sequence[str]) -> list[ProblemRecord]:
        rows = self._rows_of(
            "SELECT digest, about, size, created, statement FROM problems WHERE is_deleted = 0 AND digest IN (*)",
            digests,
        )
        return [record_of(*row) for row in rows]

    def list_problems(self, after: str, limit: int) -> list[ProblemRecord]:
        rows = self._rows(
            "SELECT digest, about, size, created FROM problems WHERE is_deleted = 0 AND digest > ? "
            "ORDER BY digest LIMIT ?",
            after.partition("\0")[0],  # the same place among digests, and text for every database
            limit,
        )
        return [record_of(*row) for row in rows]

    def delete_problem(self, digest: str) -> bool:
        with self._changing():
            hidden = self._run("UPDATE problems SET is_deleted = 1 WHERE digest = ? AND is_deleted = 0", digest)
            self._remove_deleted()
        return bool(hidden)

    def _remove_deleted(self) -> None:
        self._run(
            "DELETE FROM problems WHERE is_deleted = 1 AND NOT EXISTS "
            f"(SELECT 1 FROM jobs WHERE jobs.digest = problems.digest AND {_UNFINISHED})"
        )

    # --- Tokens ----------------------------------------------------------------------------------------------------

    def add_token(self, token: TokenRecord) -> None:
        scopes = " ".join(sorted(token.scopes))
        with self._changing():
            self._run(
                f"INSERT INTO tokens ({_TOKEN}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(token.id, token.label, token.hash, scopes, token.created, token.expires, int(token.is_revoked)),
            )

    def token(self, id: str) -> TokenRecord | None:
        row = self._row(f"SELECT {_TOKEN} FROM tokens WHERE id = ?", id)
        return None if row is None else token_of(*row)

    def tokens(self) -> list[TokenRecord]:
        return [token_of(*row) for row in self._rows(f"SELECT {_TOKEN} FROM tokens ORDER BY created, id")]

    def revoke_token(self, id: str) -> bool:
        with self._changing():
            return bool(self._run("UPDATE tokens SET is_revoked = 1 WHERE id = ?", id))

    # --- Accepting -------------------------------------------------------------------------------------------------

    def add_batch(self, batch: Batch, jobs: Sequence[tuple[str, JobSpec]], bounds: Bounds | None = None) -> Batch:
        with self._changing() as events:
            self._lock_queue()
            if before := self.batch_of_key(batch.client, batch.key):
                if before.fingerprint != batch.fingerprint:
                    raise KeyReused(batch.key)
                return before
            if bounds:
                self._require_room(batch.client, len(jobs), bounds)
            turn = self._next_turn(batch.client, batch.priority)
            self._run(
                f"INSERT INTO batches ({_BATCH}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(batch.id, batch.client, batch.key, batch.fingerprint, batch.priority, batch.created),
                *(batch.deadline, batch.keep_s),
            )
            shared = (batch.id, batch.client, batch.priority, batch.deadline)
            self._run_many(
                "INSERT INTO jobs (id, place, turn, digest, label, source, options, batch, client, priority, deadline) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        id,
                        place,
                        turn + place,
                        spec.digest,
                        free_text(spec.label),
                        spec.source,
                        options_of(spec),
                        *shared,
                    )
                    for place, (id, spec) in enumerate(jobs)
                ),
            )
            if batch.keep_s is not None:
                self._watch(batch.id)
            events.append(Event(News.WAITING))
        return batch

    def _require_room(self, client: str, count: int, bounds: Bounds) -> None:
        waiting = "SELECT count(*) FROM jobs WHERE state = 'accepted'"
        own = self._value(f"{waiting} AND client = ?", client) + count - bounds.of_client
        if own > 0:
            raise QueueFull(own, is_own_share=True)
        total = self._value(waiting) + count - bounds.total
        if total > 0:
            raise QueueFull(total, is_own_share=False)

    def _next_turn(self, client: str, priority: int) -> int:
        """Clients take turns, because the jobs of each have turns of their own: behind those of it that wait, and not
        before the job that is next. (Start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996, 2.1, unit lengths.)
        """
        turns = "SELECT turn FROM jobs WHERE state = 'accepted' AND priority = ?"
        own = self._row(f"{turns} AND client = ? ORDER BY turn DESC LIMIT 1", priority, client)
        head = self._row(f"{turns} ORDER BY turn LIMIT 1", priority)
        return max(0 if own is None else own[0] + 1, 0 if head is None else head[0])

    def batch_of_key(self, client: str, key: str) -> Batch | None:
        row = self._row(f"SELECT {_BATCH} FROM batches WHERE client = ? AND idempotency_key = ?", client, key)
        return None if row is None else Batch(*row)

    def batch(self, id: str) -> Batch | None:
        row = self._row(f"SELECT {_BATCH} FROM batches WHERE id = ?", id)
        return None if row is None else Batch(*row)

    # --- Taking and ending -----------------------------------------------------------------------------------------

    def claim(self, count: int, now: float) -> list[StartedJob]:
        with self._changing():
            rows = self._rows(
                "SELECT number, id, batch, client, digest, label, source, options, starts FROM jobs "
                "WHERE state = 'accepted' AND (deadline IS NULL OR deadline > ?) "
                f"ORDER BY priority DESC, turn, number LIMIT ? {self.FREE}",
                now,
                count,
            )
            self._run_many(
                "UPDATE jobs SET state = 'running', node = ?, starts = starts + 1 WHERE number = ?",
                [(self.node, row[0]) for row in rows],
            )
        return [
            StartedJob(id, batch, client, spec_of(*spec), starts + 1) for _, id, batch, client, *spec, starts in rows
        ]

    def expire(self, now: float, verdict: str) -> float | None:
        late = "SELECT id FROM jobs WHERE state = 'accepted' AND deadline <= ?"
        if ids := [row[0] for row in self._rows(late, now)]:
            with self._changing() as events:
                self._end("done", dict.fromkeys(ids, verdict), events, "state = 'accepted'")
        return self._value("SELECT min(deadline) FROM jobs WHERE state = 'accepted' AND deadline IS NOT NULL")

    def finish(self, verdicts: Sequence[tuple[str, str]]) -> list[str]:
        with self._changing() as events:
            return self._end("done", dict(verdicts), events)

    def cancel(self, ids: Sequence[str]) -> list[str]:
        with self._changing() as events:
            return self._cancel(ids, events)

    def _cancel(self, ids: Sequence[str], events: list[Event]) -> list[str]:
        known = len(events)
        cancelled = self._end("cancelled", dict.fromkeys(ids), events)
        events += [Event(News.CANCELLED, event.batch) for event in events[known:]]
        return cancelled

    def _end(
        self, state: str, verdicts: Mapping[str, str | None], events: list[Event], which: str = _UNFINISHED
    ) -> list[str]:
        """End those of the jobs that have not. A program is not needed any more, so it goes."""
        ids = list(verdicts)
        batches = sorted({row[0] for row in self._rows_of(f"SELECT batch FROM jobs WHERE {which} AND id IN (*)", ids)})
        locked = f"SELECT id, last_sequence FROM batches WHERE id IN (*) ORDER BY id {self.LOCKED}"
        last: dict[str, int] = dict(self._rows_of(locked, batches))
        left: dict[str, str] = dict(self._rows_of(f"SELECT id, batch FROM jobs WHERE {which} AND id IN (*)", ids))
        rows: list[tuple[Any, ...]] = []
        for id in ids:
            if (batch := left.get(id)) in last:
                last[batch] += 1
                rows.append((state, verdicts[id], last[batch], id))
        self._run_many(
            "UPDATE jobs SET state = ?, verdict = ?, sequence = ?, source = NULL, node = NULL WHERE id = ?", rows
        )
        ended = [row[-1] for row in rows]
        touched = sorted({left[id] for id in ended})
        self._run_many(
            f"UPDATE batches SET last_sequence = ?, ended = {self.NOW} WHERE id = ?", [(last[id], id) for id in touched]
        )
        events += [Event(News.ENDED, batch) for batch in touched]
        return ended

    def purge(self, before: float) -> int:
        with self._changing():
            gone = self._run(
                "DELETE FROM batches WHERE coalesce(ended, created) < ? AND NOT EXISTS "
                f"(SELECT 1 FROM jobs WHERE jobs.batch = batches.id AND {_UNFINISHED})",
                before,
            )
            self._remove_deleted()
        return gone

    # --- Looking ---------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[Waiting]:
        rows = self._rows(f"SELECT id, batch, client, priority, deadline FROM jobs WHERE {_UNFINISHED} ORDER BY number")
        return [Waiting(*row) for row in rows]

    def ended_among(self, ids: Collection[str]) -> list[str]:
        there = {row[0] for row in self._rows_of(f"SELECT id FROM jobs WHERE {_UNFINISHED} AND id IN (*)", list(ids))}
        return [id for id in ids if id not in there]

    def job(self, id: str) -> JobState | None:
        row = self._row(f"SELECT {_STATE}, verdict FROM jobs WHERE id = ?", id)
        return None if row is None else state_of(*row)

    def jobs_of(self, batch: str) -> list[JobState]:
        rows = self._rows(f"SELECT {_STATE}, NULL FROM jobs WHERE batch = ? ORDER BY place", batch)
        return [state_of(*row) for row in rows]

    def ended(self, batch: str, after: int) -> list[JobState]:
        rows = self._rows(
            f"SELECT {_STATE}, verdict FROM jobs WHERE batch = ? AND sequence > ? ORDER BY sequence", batch, after
        )
        return [state_of(*row) for row in rows]

    def is_finished(self, batch: str) -> bool:
        return self._row(f"SELECT 1 FROM jobs WHERE batch = ? AND {_UNFINISHED} LIMIT 1", batch) is None

    def load(self) -> Load:
        of_clients = "SELECT count(*) AS waiting FROM jobs WHERE state = 'accepted' GROUP BY client"
        waiting, clients = self._row(f"SELECT coalesce(sum(waiting), 0), count(*) FROM ({of_clients}) AS of_clients")
        slots, per_s = self._row(
            "SELECT coalesce(sum(slots), 0), coalesce(sum(per_s), 0.0) FROM nodes WHERE id <> ?", self.node
        )
        return Load(int(waiting), clients, int(slots), float(per_s))

    # --- Several nodes ---------------------------------------------------------------------------------------------

    def beat(self, slots: int, per_s: float) -> None:
        with self._changing():
            self._run(
                f"INSERT INTO nodes (id, slots, per_s, seen) VALUES (?, ?, ?, {self.NOW}) "
                "ON CONFLICT (id) DO UPDATE SET slots = excluded.slots, per_s = excluded.per_s, seen = excluded.seen",
                *(self.node, slots, per_s),
            )

    def adopt(self, lease_s: float) -> list[Batch]:
        gone = "node NOT IN (SELECT id FROM nodes)"
        with self._changing() as events:
            self._run(f"DELETE FROM nodes WHERE id <> ? AND seen < {self.NOW} - ?", self.node, lease_s)
            numbers = self._rows(f"SELECT number FROM jobs WHERE state = 'running' AND {gone} {self.FREE}")
            self._run_many("UPDATE jobs SET state = 'accepted', node = NULL WHERE number = ?", numbers)
            batches = sorted({row[0] for row in self._rows(f"SELECT batch FROM watches WHERE {gone} {self.FREE}")})
            for batch in batches:
                self._watch(batch)
            self._run_many(f"DELETE FROM watches WHERE batch = ? AND {gone}", [(batch,) for batch in batches])
            if numbers:
                events.append(Event(News.WAITING))
            return [Batch(*row) for row in self._rows_of(f"SELECT {_BATCH} FROM batches WHERE id IN (*)", batches)]

    def give_back(self, keep: Collection[str]) -> None:
        with self._changing() as events:
            rows = self._rows("SELECT id, number FROM jobs WHERE state = 'running' AND node = ?", self.node)
            numbers = [(number,) for id, number in rows if id not in keep]
            self._run_many(
                "UPDATE jobs SET state = 'accepted', node = NULL, starts = starts - 1 "
                "WHERE number = ? AND state = 'running'",
                numbers,
            )
            if numbers:
                events.append(Event(News.WAITING))

    def leave(self) -> None:
        self.give_back(())
        with self._changing():
            self._run("DELETE FROM nodes WHERE id = ?", self.node)

    def watch(self, batch: str) -> None:
        with self._changing():
            if self._rows(f"SELECT 1 FROM batches WHERE id = ? {self.LOCKED}", batch):
                self._watch(batch)

    def _watch(self, batch: str) -> None:
        self._run("INSERT INTO watches (batch, node) VALUES (?, ?) ON CONFLICT DO NOTHING", batch, self.node)

    def abandon(self, batch: str) -> int:
        with self._changing() as events:
            self._rows(f"SELECT 1 FROM batches WHERE id = ? {self.LOCKED}", batch)  # a client may just come elsewhere
            self._run("DELETE FROM watches WHERE batch = ? AND node = ?", batch, self.node)
            if self._value("SELECT count(*) FROM watches WHERE batch = ?", batch):
                return 0
            ids = [row[0] for row in self._rows(f"SELECT id FROM jobs WHERE batch = ? AND {_UNFINISHED}", batch)]
            return len(self._cancel(ids, events))
