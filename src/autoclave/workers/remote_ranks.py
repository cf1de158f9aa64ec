"""The driver's side of a group whose workers have processes of their own. How to reach them is left to the executor.

A call is sent to all ranks at once, and what they answer is read until the last has answered. When one fails, the
others have `GRACE_S` to answer too: one that still works then most likely waits for the failed one in a collective, and
would do so for ever. It is ended, as are all when one dies; from then on the group is dead until it is restarted.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoclave.core import WorkerDied
from autoclave.workers.dispatch import CallPlan
from autoclave.workers.executor import Interface
from autoclave.workers.failures import Died, Event, Order, Raised
from autoclave.workers.wire import Held

GRACE_S = 5.0


class RemoteRanks(ABC):
    """Calls all ranks of a group, and returns or fails with them. See `executor.Ranks`."""

    interface: Interface

    def __init__(self, group: str, nodes: Sequence[str]) -> None:
        self._group = group
        self._death: tuple[int, str] | None = None  # rank, and how it ended
        self.nodes = nodes

    # --- What an executor adds

    @abstractmethod
    def _packed(self, value: Any) -> Any:
        """`value`, which may be held anywhere, in the form in which it is sent."""

    @abstractmethod
    def _send(self, rank: int, order: Order, args: Sequence[Any]) -> None:
        """Send an order with packed arguments. That a process is dead shows when events are read."""

    @abstractmethod
    def _next_event(self, ranks: set[int], timeout_s: float | None) -> tuple[int, Event] | None:
        """The next event of one of `ranks`; None if there is none for `timeout_s`."""

    @abstractmethod
    def _kill(self) -> None:
        """Have all processes ended, also while another thread waits for their events; harmless when they are gone."""

    @abstractmethod
    def _clear_up(self) -> None:
        """Wait until processes that were killed are gone, and free what is held for them here."""

    # --- What is the same for all

    @property
    def are_alive(self) -> bool:
        return self._death is None

    def build(self, make_worker: Callable[[], Any], store_address: str | None) -> None:
        """Make the workers, in a process group that meets at `store_address`, on the node of rank 0, if there is one.

        Raises Exception: as `call`. Nothing is left running then.
        """
        store = None
        try:
            if store_address:
                (opened,) = self._carry_out(Order("open_store"), {0: [store_address]}, [0])
                store = opened.fetch()
            everyone = {rank: [make_worker, store] for rank in range(len(self.nodes))}
            (interface,) = self._carry_out(Order("build"), everyone, [0])
            self.interface = interface.fetch()
        except BaseException:
            self.end()
            raise

    def call(self, method: str, plan: CallPlan) -> list[Held]:
        return self._carry_out(Order("call", method), dict(enumerate(plan.arguments)), plan.answering)

    def kill(self) -> None:
        self._death = self._death or (0, "was ended")
        self._kill()

    def end(self) -> None:
        self.kill()
        self._clear_up()

    def _carry_out(self, order: Order, args: Mapping[int, Sequence[Any]], answering: Sequence[int]) -> list[Held]:
        if self._death:
            raise self._error_of_death()
        packed = {id(value): self._packed(value) for value in {id(v): v for vs in args.values() for v in vs}.values()}
        for rank, values in args.items():
            is_wanted = rank in answering
            self._send(rank, replace(order, is_wanted=is_wanted), [packed[id(value)] for value in values])
        return self._answers(set(args), answering)

    def _answers(self, pending: set[int], answering: Sequence[int]) -> list[Held]:
        results: dict[int, Held] = {}
        failures: list[BaseException] = []
        deadline: float | None = None
        while pending:
            event = self._next_event(pending, None if deadline is None else max(0.0, deadline - time.monotonic()))
            if event is None:
                self._bury(min(pending), f"had not answered {GRACE_S:.0f} s after another rank failed, and was ended")
                failures[0].add_note(f"{self._error_of_death()}; the group must be restarted")
                break
            rank, answer = event
            pending.discard(rank)
            if isinstance(answer, Died):  # what others raise now is a consequence
                self._bury(rank, answer.how)
                raise self._error_of_death() from (failures[0] if failures else None)
            if isinstance(answer, Raised):
                failures.append(answer.failure.to_exception(self._group, rank, self.nodes[rank]))
                deadline = deadline or time.monotonic() + GRACE_S
            else:
                results[rank] = answer.value
        if failures:
            raise failures[0]
        return [results[rank] for rank in answering]

    def _bury(self, rank: int, how: str) -> None:
        self._death = self._death or (rank, how)  # a rank that was killed died of that
        self.end()

    def _error_of_death(self) -> WorkerDied:
        rank, how = self._death or (0, "")
        return WorkerDied.of(self._group, rank, self.nodes[rank], how)
