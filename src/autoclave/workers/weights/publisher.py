"""The driver's side of a publish: who has which version, and who is waited for.

A publish writes the trainer's weights once, and then has each sampler take them over by its route. No weight passes
through the driver. Versions only grow. A version counts as published as soon as it is written: samplers that fail to
take it over are named, and get it when they are attached anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from autoclave.core import FaultError
from autoclave.workers.group import WorkerGroup
from autoclave.workers.trainer.publishing import SendsWeights
from autoclave.workers.weights.broadcast import Meeting
from autoclave.workers.weights.control import NUM_SEATS
from autoclave.workers.weights.offer import AS_TRAINED, Form, Offer
from autoclave.workers.weights.receiving import ReceivesWeights
from autoclave.workers.weights.routes import Route, Seat, choose_routes, on_device

SINGLE_SLOT = {Route.BUCKETS, Route.BROADCAST}
"""Routes that copy what they read, so that the trainer may write over it."""


@dataclass(frozen=True, slots=True)
class _Attached:
    sampler: WorkerGroup[ReceivesWeights]
    seat: Seat
    route: Route


class Publisher:
    """Publishes the weights of `trainer`, a group whose worker is a `SendsWeights`, to samplers of one rank each."""

    def __init__(
        self, trainer: WorkerGroup[SendsWeights], form: Form = AS_TRAINED, *, deadline_s: float, may_alias: bool = False
    ) -> None:
        """Nothing is done before `begin`.

        Args:
            trainer: whose weights.
            form: in which form they are published.
            deadline_s: how long any one answer is waited for, in seconds.
            may_alias: whether samplers are idle whenever the trainer learns or loads a checkpoint; only then may they
                compute with its own tensors.
        """
        self._trainer, self._form, self._deadline_s, self._may_alias = trainer, form, deadline_s, may_alias
        self._attached: dict[str, _Attached] = {}
        self._numbers: dict[str, int] = {}  # of seats; a sampler that is made anew takes the seat of the former
        self._is_own = False
        self._offer: Offer | None = None
        self._frozen: Future[Any] | None = None
        self._meetings = 0
        self._has_met: frozenset[str] = frozenset()
        self._version: int | None = None
        self._turn = threading.RLock()

    @property
    def version(self) -> int | None:
        """What was published last; None before `begin`."""
        return self._version

    @property
    def routes(self) -> dict[str, Route]:
        """The route to each sampler."""
        return {name: attached.route for name, attached in self._attached.items()}

    def begin(self, version: int, samplers: Mapping[str, WorkerGroup[ReceivesWeights]]) -> None:
        """Publish the trainer's weights as `version`, any number, to exactly these samplers, by routes chosen now.

        At the start of a run, and again whenever the trainer was made anew.

        Raises:
            FaultError: somebody does not answer within the deadline; the message names who.
            HostError: there is no memory for the weights, or it cannot be reached by the route that was chosen.
        """
        with self._turn:
            self._attached, self._offer, self._version, self._has_met = {}, None, None, frozenset()
            asked = {name: sampler.weights_seat() for name, sampler in samplers.items()}
            seats: dict[str, Seat] = self._answers(asked, version)
            trainer, self._is_own = self._answer(self._trainer.survey_weights(self._form), version)
            routes = self._routes(trainer, seats, samplers)
            if set(routes.values()) - {Route.ALIAS}:
                num_slots = 1 if set(routes.values()) <= SINGLE_SLOT else 2
                opened = self._trainer.open_weights(self._form, num_slots, on_device(list(routes.values())))
                self._offer = self._answer(opened, version)
            self._frozen = self._trainer.frozen_weights() if self._form.adapter_only and self._offer else None
            for name, sampler in samplers.items():
                self._attached[name] = _Attached(sampler, seats[name], routes[name])
            self._publish(version, is_first=True)

    def attach(self, name: str, sampler: WorkerGroup[ReceivesWeights]) -> None:
        """Give a sampler that has come, or was made anew, the current version. It must not sample before this returns.

        Raises:
            FaultError: it does not answer within the deadline, or can be reached only if all `begin` anew.
        """
        with self._turn:
            version = self._current()
            seat = self._answers({name: sampler.weights_seat()}, version)[name]
            self._attached.pop(name, None)
            self._has_met -= {name}
            route = self._route_beside(name, sampler, seat)
            self._attached[name] = _Attached(sampler, seat, route)
            self._open({name})
            self._deliver(version, {name})

    def detach(self, name: str) -> None:
        """Publish to this sampler no longer; what it used may be written over once its process has ended."""
        with self._turn:
            self._attached.pop(name, None)

    def publish(self, version: int) -> None:
        """Publish the trainer's weights as they are now; samplers have them when this returns.

        Raises:
            ValueError: `version` is not above the last one.
            FaultError: a sampler does not answer, or still uses the memory of the version before the last, after the
                deadline; the message names it.
            WorkerDied: the trainer or a sampler died; a note says which samplers have which version.
        """
        with self._turn:
            if version <= self._current():
                raise ValueError(
                    f"publish of version {version}: version {self._version} is out already, and versions only grow; "
                    "a run that goes back must `begin` anew"
                )
            self._publish(version)

    # --- One publish

    def _publish(self, version: int, *, is_first: bool = False) -> None:
        try:
            if self._offer is not None:
                patience_s = 0.8 * self._deadline_s  # who is waited for is known there, so it must give up first
                self._answer(self._trainer.write_weights(version, patience_s), version)
        except Exception as error:
            former = "no version" if self._version is None else f"version {self._version}"
            error.add_note(f"Version {version} was not written whole; samplers have {former} as before")
            raise
        self._version = version
        if is_first:
            self._open(set(self._attached))
        self._deliver(version, set(self._attached))

    def _open(self, names: set[str]) -> None:
        """Let samplers get ready."""
        calls: dict[str, Future[Any]] = {}
        for name in names:
            attached = self._attached[name]
            number = self._numbers.setdefault(name, len(self._numbers))
            if number >= NUM_SEATS:
                raise FaultError(f"sampler {name!r} is the {number + 1}th name; there is room for {NUM_SEATS}")
            calls[name] = attached.sampler.open_inlet(self._offer, attached.route, name, number, self._frozen)
        self._answers(calls, self._current())

    def _deliver(self, version: int, names: set[str]) -> None:
        """Have these samplers take `version` over, which is written."""
        if meets := {name for name in names if self._attached[name].route is Route.BROADCAST}:
            self._meet(version, meets)
        calls: dict[str, Future[Any]] = {}
        for route, sent in self._sent(version, names).items():
            for name in names:
                if self._attached[name].route is route:
                    calls[name] = self._attached[name].sampler.take_weights(version, sent)
        if meets:
            calls["trainer"] = self._trainer.broadcast_weights()
        self._answers(calls, version)

    def _sent(self, version: int, names: set[str]) -> dict[Route, Any]:
        """What samplers are handed, by route; where it is held is left to whoever made it."""
        made = {Route.ALIAS: self._trainer.own_weights, Route.BUCKETS: lambda: self._trainer.packed_weights(version)}
        sent: dict[Route, Any] = {}
        for route in {self._attached[name].route for name in names}:
            sent[route] = made[route]() if route in made else None
            if sent[route] is not None:
                self._await({"trainer": sent[route]}, version)  # or samplers would wait for it, and not sample
        return sent

    def _meet(self, version: int, names: set[str]) -> None:
        """Let the members of a broadcast meet, unless they have."""
        if self._has_met == names or self._offer is None:
            return
        address, port = self._answer(self._trainer.open_meetings(), version)
        self._meetings += 1
        name = f"{self._offer.address.token}/{self._meetings}"  # a trainer may have had other publishers
        meeting = Meeting(address, port, name, len(names) + 1, self._deadline_s)
        calls = {"trainer": self._trainer.meet(meeting)}
        for member, name in enumerate(sorted(names), start=1):
            calls[name] = self._attached[name].sampler.meet(meeting, member)
        self._has_met = frozenset()
        self._answers(calls, version)
        self._has_met = frozenset(names)

    # --- Routes

    def _routes(
        self, trainer: Seat, seats: Mapping[str, Seat], samplers: Mapping[str, WorkerGroup[ReceivesWeights]]
    ) -> dict[str, Route]:
        sharing = frozenset(name for name, sampler in samplers.items() if sampler.pool is self._trainer.pool)
        self._seat = trainer
        return choose_routes(trainer, seats, sharing_pool=sharing, may_alias=self._may_alias and self._is_own)

    def _route_beside(self, name: str, sampler: WorkerGroup[ReceivesWeights], seat: Seat) -> Route:
        """The route to one that comes later, which must read the memory that there is."""
        samplers = {other: attached.sampler for other, attached in self._attached.items()} | {name: sampler}
        seats = {other: attached.seat for other, attached in self._attached.items()} | {name: seat}
        routes = self._routes(self._seat, seats, samplers)
        is_mapped = self._offer is not None and not set(self.routes.values()) <= SINGLE_SLOT
        needs_slots = routes[name] in (Route.MEMORY, Route.DEVICE) and self._attached and not is_mapped
        if needs_slots or any(routes[other] is not route for other, route in self.routes.items()):
            raise FaultError(
                f"sampler {name!r} needs another route ({routes[name]}) than the memory serves that is published by "
                f"({', '.join(sorted(set(self.routes.values())))}); all must `begin` anew"
            )
        return routes[name]

    # --- Waiting

    def _current(self) -> int:
        if self._version is None:
            raise RuntimeError("nothing is published yet: `begin` comes first")
        return self._version

    def _answer(self, call: Future[Any], version: int) -> Any:
        return self._answers({"trainer": call}, version)["trainer"]

    def _answers(self, calls: Mapping[str, Future[Any]], version: int) -> dict[str, Any]:
        """What each call returns, once all have."""
        self._await(calls, version)
        return {name: call.result() for name, call in calls.items()}

    def _await(self, calls: Mapping[str, Future[Any]], version: int) -> None:
        """Wait for all of `calls`, whoever fails; then raise the first failure, and note who else failed."""
        _, late = wait(calls.values(), timeout=self._deadline_s)
        names = [name for name, call in calls.items() if call in late]
        errors = {name: call.exception() for name, call in calls.items() if call not in late}
        failed = {name: error for name, error in errors.items() if error is not None}
        for error in failed.values():
            error.add_note(
                f"Publish of version {version}: {_said(sorted(failed))} failed, {_said(names)} did not answer"
            )
            raise error
        if names:
            raise FaultError(
                f"publish of version {version}: no answer from {_said(names)} after {self._deadline_s:g} s; one that "
                "hangs must be ended and attached anew, one that is slow needs a longer deadline"
            )


def _said(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"
