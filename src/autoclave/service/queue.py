"""Whose turn it is: a bounded queue that is fair between clients. Pure: no lock, no clock, no thread.

The highest priority goes first. Within a priority clients take turns, and the jobs of one client are in their order.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass


class QueueFull(Exception):
    """There is no room for so many; `excess` of them would have to leave first."""

    def __init__(self, excess: int, *, is_own_share: bool) -> None:
        super().__init__(f"{excess} too many")
        self.excess = excess
        self.is_own_share = is_own_share


@dataclass(frozen=True, slots=True)
class Ticket:
    """One job that waits. `deadline` is in the seconds of whoever asks; None is never. Priority 9 goes first."""

    id: str
    client: str
    priority: int = 4
    deadline: float | None = None


class FairQueue:
    """Tickets in turn. `limit` bounds all of them, `client_limit` those of one client."""

    def __init__(self, limit: int, client_limit: int) -> None:
        self._limit = limit
        self._client_limit = client_limit
        self._lines: dict[int, OrderedDict[str, OrderedDict[str, Ticket]]] = {}
        self._waiting: dict[str, Ticket] = {}
        self._num_of_client: dict[str, int] = {}
        self._deadlines: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, id: str) -> bool:
        return id in self._waiting

    def num_of(self, client: str) -> int:
        """How many tickets of a client wait."""
        return self._num_of_client.get(client, 0)

    @property
    def clients(self) -> int:
        """How many clients wait."""
        return len(self._num_of_client)

    def require_room(self, client: str, count: int, reserved: int = 0, reserved_own: int = 0) -> None:
        """Check that `count` tickets of `client` fit beside those that wait and those that are reserved.

        Raises:
            QueueFull: they do not.
        """
        own = self.num_of(client) + reserved_own + count - self._client_limit
        if own > 0:
            raise QueueFull(own, is_own_share=True)
        total = len(self) + reserved + count - self._limit
        if total > 0:
            raise QueueFull(total, is_own_share=False)

    def put(self, ticket: Ticket) -> None:
        """Add a ticket for which there is room, or which was accepted before.

        Raises:
            ValueError: it waits already.
        """
        if ticket.id in self._waiting:
            raise ValueError(f"{ticket.id} waits already")
        self._waiting[ticket.id] = ticket
        self._num_of_client[ticket.client] = self.num_of(ticket.client) + 1
        clients = self._lines.setdefault(ticket.priority, OrderedDict())
        clients.setdefault(ticket.client, OrderedDict())[ticket.id] = ticket
        if ticket.deadline is not None:
            heapq.heappush(self._deadlines, (ticket.deadline, ticket.id))

    def take(self) -> Ticket | None:
        """The ticket whose turn it is, which waits no longer; None if none waits."""
        if not self._lines:
            return None
        clients = self._lines[max(self._lines)]
        client, line = next(iter(clients.items()))
        ticket = next(iter(line.values()))
        clients.move_to_end(client)  # the others come first now
        self._drop(ticket)
        return ticket

    def remove(self, id: str) -> bool:
        """Take a ticket out of its line; False if it does not wait."""
        ticket = self._waiting.get(id)
        if ticket is not None:
            self._drop(ticket)
        return ticket is not None

    def expire(self, now: float) -> list[Ticket]:
        """The tickets whose deadline has come, which wait no longer."""
        expired: list[Ticket] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, id = heapq.heappop(self._deadlines)
            ticket = self._waiting.get(id)
            if ticket is not None and ticket.deadline == deadline:
                self._drop(ticket)
                expired.append(ticket)
        return expired

    @property
    def next_deadline(self) -> float | None:
        """When `expire` may have something to do."""
        return self._deadlines[0][0] if self._deadlines else None

    def _drop(self, ticket: Ticket) -> None:
        del self._waiting[ticket.id]
        self._num_of_client[ticket.client] -= 1
        if not self._num_of_client[ticket.client]:
            del self._num_of_client[ticket.client]
        clients = self._lines[ticket.priority]
        line = clients[ticket.client]
        del line[ticket.id]
        if not line:
            del clients[ticket.client]
        if not clients:
            del self._lines[ticket.priority]
        if len(self._deadlines) > 2 * len(self._waiting) + 64:  # most are of tickets that left
            self._deadlines = [
                (waiting.deadline, waiting.id) for waiting in self._waiting.values() if waiting.deadline is not None
            ]
            heapq.heapify(self._deadlines)
