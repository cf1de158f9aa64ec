"""The store: problems by digest, tokens, and the durable queue of jobs, in an SQL database.

A store object belongs to one server, a node; several nodes may share a database. Jobs are ordered by priority, then
fairly between clients, then by acceptance. Times are seconds since 1970. All methods are safe to use from several
threads, block, are atomic, and survive kill -9 of the process once they return. They raise `StoreUnavailable` where the
database does not respond.

A transaction that ends jobs first locks their batches in order of their ids: transactions cannot deadlock, and other
transactions see the sequence numbers of a batch in order.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import zstandard

from autoclave.core import Problem
from autoclave.service.store.accounts import UNFINISHED, USAGE_KEPT_S, Accounts
from autoclave.service.store.records import (
    Batch,
    Bounds,
    Event,
    EventKind,
    JobSpec,
    JobState,
    KeyReused,
    Load,
    QueueFull,
    StartedJob,
    about,
    body_of,
    free_text,
    options_of,
    problem_of,
    record_of,
    spec_of,
    state_of,
)
from autoclave.service.wire import StoredProblem

_CAME = "id, created, request"
_BATCH = "id, client, idempotency_key, fingerprint, priority, created, deadline, keep_s, request"
_EXTENDED_AFTER_S = 60.0
"""Seconds for which further uses of a problem do not change its row."""
_STATE = "id, batch, client, place, label, state, sequence"


class Store(Accounts):
    """Store in an SQL database; subclasses know its driver."""

    node: str
    """Unique id of this node, other for each process."""

    @cached_property
    def _counted(self) -> dict[str, tuple[int, int, int]]:
        """By client: number of the newest job when queued jobs were last counted, and how many were the client's, and
        all. Only these, later ones, and the few that servers returned are queued, so not every batch needs to count.
        """
        return {}

    @abstractmethod
    def join(self) -> None:
        """Register this node."""

    @abstractmethod
    def subscribe(self, on_event: Callable[[Event], None]) -> None:
        """Call `on_event` for changes by any node from now on, from any thread. It must not block."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    @abstractmethod
    def _lock_queue(self) -> None:
        """Keep other transactions from accepting jobs until this one ends."""

    def put_problems(self, problems: Iterable[Problem], owner: str = "", keep_s: float | None = None) -> list[bool]:
        """Store problems by digest; return for each whether it is new.

        A new problem is the `owner`'s. With `keep_s` it expires so many seconds after the last call, unless it is also
        stored without.
        """
        now = time.time()
        expires = None if keep_s is None else now + keep_s
        packer = zstandard.ZstdCompressor(level=3)
        rows: list[tuple[Any, ...]] = []
        for problem in problems:
            body = body_of(problem)
            statement = free_text(problem.statement)
            rows.append((problem.digest, about(problem), statement, packer.compress(body), len(body), now))
        added = [False] * len(rows)
        insert = (
            "INSERT INTO problems (digest, about, statement, body, size, created, owner, expires) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING"
        )
        owned = "UPDATE problems SET is_deleted = 0, owner = ?, expires = ? WHERE digest = ?"
        with self._changing():
            # In one order, against deadlocks.
            for place, row in sorted(enumerate(rows), key=lambda numbered: numbered[1][0]):
                added[place] = bool(
                    self._run(insert, *row, owner, expires)
                    or self._run(f"{owned} AND is_deleted = 1", owner, expires, row[0])
                )
                if not added[place] and expires is None:
                    self._run(f"{owned} AND expires IS NOT NULL", owner, expires, row[0])
                elif not added[place]:
                    late = "UPDATE problems SET expires = ? WHERE digest = ? AND expires < ?"
                    self._run(late, expires, row[0], (expires or 0.0) - _EXTENDED_AFTER_S)
        return added

    def problem(self, digest: str) -> Problem | None:
        """Return a problem with its tests; a deleted one too while an unfinished job needs it."""
        row = self._row("SELECT body FROM problems WHERE digest = ?", digest)
        return None if row is None else problem_of(zstandard.ZstdDecompressor().decompress(row[0]))

    def problem_records(self, digests: Sequence[str]) -> list[StoredProblem]:
        """Return the stored problems among `digests`, in any order."""
        rows = self._rows_of(
            "SELECT digest, about, size, created, statement FROM problems WHERE is_deleted = 0 AND digest IN (*)",
            digests,
        )
        return [record_of(*row) for row in rows]

    def list_problems(self, after: str, limit: int) -> list[StoredProblem]:
        """Return the first `limit` problems by digest after `after`, without statements."""
        rows = self._rows(
            "SELECT digest, about, size, created FROM problems WHERE is_deleted = 0 AND digest > ? "
            "ORDER BY digest LIMIT ?",
            after.partition("\0")[0],  # sorts the same, and PostgreSQL has no NUL in text
            limit,
        )
        return [record_of(*row) for row in rows]

    def delete_problem(self, digest: str, owner: str | None = None) -> bool:
        """Hide a problem now, and delete it once no unfinished job needs it; return False if it is not stored, or not
        the `owner`'s if one is given.
        """
        hide = "UPDATE problems SET is_deleted = 1 WHERE digest = ? AND is_deleted = 0"
        with self._changing():
            hidden = self._run(hide, digest) if owner is None else self._run(f"{hide} AND owner = ?", digest, owner)
            self._remove_deleted()
        return bool(hidden)

    def _remove_deleted(self) -> None:
        self._run(
            "DELETE FROM problems WHERE is_deleted = 1 AND NOT EXISTS "
            f"(SELECT 1 FROM jobs WHERE jobs.digest = problems.digest AND {UNFINISHED})"
        )

    def add_batch(self, batch: Batch, jobs: Sequence[tuple[str, JobSpec]], bounds: Bounds | None = None) -> Batch:
        """Accept jobs with their ids, or return the batch that the client submitted before under the same key.

        With `keep_s`, this node watches the batch, as with `watch`.

        Raises KeyReused: the key belongs to another request. QueueFull: more jobs would be queued than the bounds
        allow.
        """
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
                f"INSERT INTO batches ({_BATCH}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(batch.id, batch.client, batch.key, batch.fingerprint, batch.priority, batch.created),
                *(batch.deadline, batch.keep_s, batch.request),
            )
            same = (batch.id, batch.client, batch.priority, batch.deadline)
            self._run_many(
                "INSERT INTO jobs (id, place, turn, digest, label, source, options, batch, client, priority, deadline) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (id, place, turn + place, spec.digest, free_text(spec.label), spec.source, options_of(spec), *same)
                    for place, (id, spec) in enumerate(jobs)
                ],
            )
            if batch.keep_s is not None:
                self._watch(batch.id)
            events.append(Event(EventKind.WAITING))
        return batch

    def _require_room(self, client: str, count: int, bounds: Bounds) -> None:
        newest = self._value("SELECT coalesce(max(number), 0) FROM jobs")
        number, own, total = self._counted.get(client, (0, 0, 0))
        if max(own - bounds.of_client, total - bounds.total) + max(newest - number, 0) + count <= 0:
            return
        waiting = "SELECT count(*) FROM jobs WHERE state = 'accepted'"
        own, total = self._value(f"{waiting} AND client = ?", client), self._value(waiting)
        self._counted[client] = newest, own, total
        if (excess := own + count - bounds.of_client) > 0:
            raise QueueFull(excess, is_own_share=True)
        if (excess := total + count - bounds.total) > 0:
            raise QueueFull(excess, is_own_share=False)

    def _next_turn(self, client: str, priority: int) -> int:
        """Return the start tag of the client's next job: after its queued jobs, and not before the next job of all.

        Start-time fair queueing with unit lengths: Goyal, Vin, Cheng, SIGCOMM 1996, 2.1.
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

    def claim(self, count: int, now: float) -> list[StartedJob]:
        """Claim the next jobs, at most `count`, for this node alone. Jobs after their deadline are left."""
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
            batches = sorted({row[2] for row in rows})
            came = {id: rest for id, *rest in self._rows_of(f"SELECT {_CAME} FROM batches WHERE id IN (*)", batches)}
        return [
            StartedJob(id, batch, client, spec_of(*spec), starts + 1, *came[batch])
            for _, id, batch, client, *spec, starts in rows
        ]

    def expire(self, now: float, verdict: str) -> float | None:
        """End queued jobs after their deadline with this verdict; return the next deadline of a queued job."""
        late = "SELECT id FROM jobs WHERE state = 'accepted' AND deadline <= ?"
        if ids := [row[0] for row in self._rows(late, now)]:
            with self._changing() as events:
                self._end("done", dict.fromkeys(ids, verdict), events, "state = 'accepted'")
        return self._value("SELECT min(deadline) FROM jobs WHERE state = 'accepted' AND deadline IS NOT NULL")

    def finish(
        self, verdicts: Sequence[tuple[str, str]], cpu_s: Mapping[str, tuple[str, float]] = MappingProxyType({})
    ) -> list[str]:
        """Store verdicts (JSON) of unfinished jobs by id; return the ids of those jobs.

        `cpu_s` has clients and CPU seconds by job. A verdict that was stored before is not charged again; a program
        that was cancelled as it ended is charged.
        """
        with self._changing() as events:
            ended = self._end("done", dict(verdicts), events)
            others = "SELECT id FROM jobs WHERE state = 'cancelled' AND id IN (*)"
            cancelled = [row[0] for row in self._rows_of(others, list(cpu_s.keys() - ended))]
            self._charge(cpu_s[id] for id in (*ended, *cancelled) if id in cpu_s)
            return ended

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Cancel unfinished jobs; return their ids."""
        with self._changing() as events:
            return self._cancel(ids, events)

    def _cancel(self, ids: Sequence[str], events: list[Event]) -> list[str]:
        known = len(events)
        cancelled = self._end("cancelled", dict.fromkeys(ids), events)
        events += [Event(EventKind.CANCELLED, event.batch) for event in events[known:]]
        return cancelled

    def _end(
        self, state: str, verdicts: Mapping[str, str | None], events: list[Event], which: str = UNFINISHED
    ) -> list[str]:
        """End unfinished jobs and delete their programs."""
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
        events += [Event(EventKind.ENDED, batch) for batch in touched]
        return ended

    def purge(self, before: float) -> tuple[int, int]:
        """Delete the batches whose last job ended before that time, and expired problems; return their numbers."""
        with self._changing():
            expired = self._run("UPDATE problems SET is_deleted = 1 WHERE expires < ? AND is_deleted = 0", time.time())
            self._run("DELETE FROM client_usage WHERE hour < ?", time.time() - USAGE_KEPT_S)
            gone = self._run(
                "DELETE FROM batches WHERE coalesce(ended, created) < ? AND NOT EXISTS "
                f"(SELECT 1 FROM jobs WHERE jobs.batch = batches.id AND {UNFINISHED})",
                before,
            )
            self._remove_deleted()
        return gone, expired

    def ended_among(self, ids: Collection[str]) -> list[str]:
        """Return the jobs among `ids` that have ended or were deleted."""
        unfinished = {
            row[0] for row in self._rows_of(f"SELECT id FROM jobs WHERE {UNFINISHED} AND id IN (*)", list(ids))
        }
        return [id for id in ids if id not in unfinished]

    def job(self, id: str) -> JobState | None:
        row = self._row(f"SELECT {_STATE}, verdict FROM jobs WHERE id = ?", id)
        return None if row is None else state_of(row)

    def jobs_of(self, batch: str) -> list[JobState]:
        """Return all jobs of a batch in order, without verdicts."""
        rows = self._rows(f"SELECT {_STATE}, NULL FROM jobs WHERE batch = ? ORDER BY place", batch)
        return [state_of(row) for row in rows]

    def ended(self, batch: str, after: int) -> list[JobState]:
        """Return the jobs of a batch that ended after sequence number `after`, in that order."""
        rows = self._rows(
            f"SELECT {_STATE}, verdict FROM jobs WHERE batch = ? AND sequence > ? ORDER BY sequence", batch, after
        )
        return [state_of(row) for row in rows]

    def is_finished(self, batch: str) -> bool:
        return self._row(f"SELECT 1 FROM jobs WHERE batch = ? AND {UNFINISHED} LIMIT 1", batch) is None

    def load(self) -> Load:
        of_clients = "SELECT count(*) AS waiting FROM jobs WHERE state = 'accepted' GROUP BY client"
        waiting, clients = self._row(f"SELECT coalesce(sum(waiting), 0), count(*) FROM ({of_clients}) AS of_clients")
        slots, per_s = self._row(
            "SELECT coalesce(sum(slots), 0), coalesce(sum(per_s), 0.0) FROM nodes WHERE id <> ?", self.node
        )
        return Load(int(waiting), clients, int(slots), float(per_s))

    def beat(self, slots: int, per_s: float, name: str = "") -> bool:
        """Record a heartbeat of this node, with its slots, verdicts per second and name; return whether it must end."""
        with self._changing():
            self._run(
                f"INSERT INTO nodes (id, slots, per_s, name, seen) VALUES (?, ?, ?, ?, {self.NOW}) "
                "ON CONFLICT (id) DO UPDATE SET slots = excluded.slots, per_s = excluded.per_s, seen = excluded.seen",
                *(self.node, slots, per_s, name),
            )
            return bool(self._value("SELECT must_end FROM nodes WHERE id = ?", self.node))

    def adopt(self, lease_s: float) -> list[Batch]:
        """Take over from nodes without a heartbeat for `lease_s` seconds, or that have left.

        Their jobs are queued again. Returns the batches that they watched, which this node watches now.
        """
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
                events.append(Event(EventKind.WAITING))
            return [Batch(*row) for row in self._rows_of(f"SELECT {_BATCH} FROM batches WHERE id IN (*)", batches)]

    def give_back(self, keep: Collection[str]) -> None:
        """Queue the jobs that this node claimed again, except those in `keep`, without counting a start."""
        with self._changing() as events:
            rows = self._rows("SELECT id, number FROM jobs WHERE state = 'running' AND node = ?", self.node)
            numbers = [(number,) for id, number in rows if id not in keep]
            self._run_many(
                "UPDATE jobs SET state = 'accepted', node = NULL, starts = starts - 1 "
                "WHERE number = ? AND state = 'running'",
                numbers,
            )
            if numbers:
                events.append(Event(EventKind.WAITING))

    def leave(self) -> None:
        """Unregister this node and queue its jobs again."""
        self.give_back(())
        with self._changing():
            self._run("DELETE FROM nodes WHERE id = ?", self.node)

    def watch(self, batch: str) -> None:
        """Record that a client waits for the batch at this node."""
        with self._changing():
            if self._rows(f"SELECT 1 FROM batches WHERE id = ? {self.LOCKED}", batch):
                self._watch(batch)

    def _watch(self, batch: str) -> None:
        self._run("INSERT INTO watches (batch, node) VALUES (?, ?) ON CONFLICT DO NOTHING", batch, self.node)

    def abandon(self, batch: str) -> int:
        """Remove this node's watch; without another one, cancel the batch. Returns the number of cancelled jobs."""
        with self._changing() as events:
            self._rows(f"SELECT 1 FROM batches WHERE id = ? {self.LOCKED}", batch)  # another node may add a watch
            self._run("DELETE FROM watches WHERE batch = ? AND node = ?", batch, self.node)
            if self._value("SELECT count(*) FROM watches WHERE batch = ?", batch):
                return 0
            ids = [row[0] for row in self._rows(f"SELECT id FROM jobs WHERE batch = ? AND {UNFINISHED}", batch)]
            return len(self._cancel(ids, events))
