"""Requests to services as actions: planned with a look, sent once, settled if nobody saw the end, taken back, verified.

Theory of operation. A plan looks at what a request is about; its digest covers that. When it is run, a mark is durable
before the first byte goes out, and the answer before it is used; then what was done is looked at. An undo is made from
request, answer and the state before, is sent on the condition that the subject is as the action left it (where the
service knows conditions), and is believed only when the service shows what it showed before. What is in doubt is
settled by looking, see `sending.py`.
"""

from __future__ import annotations

import json
import math
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.json import nearest
from autoclave.runtime.footprints import meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, NotUndone, Plan, UndoneWith
from autoclave.runtime.journal import Journal
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.rest.answers import complaint, kept_headers
from autoclave.runtime.rest.catalogue import Undo
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.differences import differences
from autoclave.runtime.rest.expressions import evaluated
from autoclave.runtime.rest.forms import fingerprint
from autoclave.runtime.rest.loading import load_catalogue
from autoclave.runtime.rest.notes import Notes, age_s
from autoclave.runtime.rest.operations import OPERATIONS, Ask
from autoclave.runtime.rest.outcomes import Outcome, outcome
from autoclave.runtime.rest.pairs import Pairs
from autoclave.runtime.rest.parts import Part, State, part_from
from autoclave.runtime.rest.sending import Sender
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.telling import accesses_of, footprint_of, told_of
from autoclave.runtime.rest.undoing import Inverse, Inverses, ProposeInverse, worst
from autoclave.runtime.rest.wire import KeyOf, NotSent, Wire

_DO, _BACK = "do", "back"


class RestManager:
    """Actions on the services of `connections`, by their names. `state` is a folder that nobody else touches.

    Args:
        key_of: gives the secret of a name; see `Vault.secret`.
        refresh: has a new value put under the name of a secret that a service does not accept any more.
        propose_inverse: asks a model where no inverse is known.
        verify: certificates that services are verified by; None for those of the system.
    """

    operations: Mapping[str, type[Config]] = OPERATIONS

    def __init__(
        self,
        connections: Mapping[str, ServiceConnection],
        state: Path,
        journal: Journal,
        key_of: KeyOf,
        *,
        refresh: Callable[[str], object] | None = None,
        propose_inverse: ProposeInverse | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._services: dict[str, Service] = {}
        for name, connection in connections.items():
            catalogue = load_catalogue(connection.catalogue) if connection.catalogue else None
            kept = kept_headers(catalogue)
            wire = Wire(connection, key_of, refresh=refresh, verify=verify, kept_headers=kept)
            self._services[name] = Service(name, connection, catalogue, wire)
        self._notes = Notes(state)
        self._sender, self.pairs = Sender(self._notes), Pairs(journal)
        self._inverses = Inverses(self.pairs, self._sender, propose_inverse)
        self._planned: dict[str, tuple[str, list[Part]]] = {}

    # --- Planning ---------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """See `Manager`: services, their operations, and how these are taken back."""
        return "\n".join(line for service in self._services.values() for line in told_of(service))

    def asks(self, operation: Config) -> Request:
        """See `Manager`: planning looks at the service, with its key, so that must be permitted before."""
        service, ask = self._asked(operation)
        return Request(tuple(accesses_of(service, service.parts(ask, looks=False), is_counted=False)))

    def plan(self, action: str, operation: Config) -> Plan:
        """See `Manager`. What only reads is asked at once: its answer is the output."""
        service, ask = self._asked(operation)
        parts = service.parts(ask, looks=True)
        if self._is_reading(service, parts):
            return self._reading(service, ask, parts[0])
        inverses = [self._inverses.planned(service, part) for part in parts]
        guarantee = worst([each.undo.grade if each and not why else Guarantee.NONE for each, why in inverses])
        told = [self._words(service, part, *each) for part, each in zip(parts, inverses, strict=True)]
        seen = [[part.before and (part.before.fingerprint, part.before.etag), part.num_inside] for part in parts]
        undos = [[each.undo.model_dump(mode="json") if each else None, why] for each, why in inverses]
        digest = fingerprint([ask.model_dump(mode="json"), service.connection.base_url, seen, undos, guarantee])
        self._planned = {action: (digest, parts)}
        return Plan(
            digest=digest,
            changes=tuple(told),
            request=Request(tuple(accesses_of(service, parts)), guarantee),
            footprint=footprint_of(service, parts),
            guarantee=guarantee,
            hold_s=service.connection.hold_s if worst([service.connection.holds, guarantee]) is guarantee else 0.0,
        )

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        return self.plan(action, operation)

    def _asked(self, operation: Config) -> tuple[Service, Ask]:
        ask = cast("Ask", operation)
        if ask.service not in self._services:
            fix = nearest(ask.service, list(self._services)) if self._services else "there are none"
            raise InputError(f"service {ask.service!r}: is not connected; {fix}")
        return self._services[ask.service], ask

    def _is_reading(self, service: Service, parts: Sequence[Part]) -> bool:
        return len(parts) == 1 and service.spec_of(parts[0]).is_reading

    def _reading(self, service: Service, ask: Ask, part: Part) -> Plan:
        answer = service.seen(part.call)
        if not 200 <= answer.status < 300 or service.is_refusal(answer):
            raise InputError(f"service {service.name}: {part.call.told}: {complaint(answer)}")
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body, ensure_ascii=False)
        return Plan(
            digest=fingerprint([ask.model_dump(mode="json"), service.connection.base_url]),
            changes=(),
            request=Request(tuple(accesses_of(service, [part]))),
            footprint=footprint_of(service, [part]),
            guarantee=Guarantee.EXACT,
            output={"stdout": text, "status": answer.status},
        )

    def _words(self, service: Service, part: Part, inverse: Inverse | None, why_not: str) -> str:
        """What a part would do. What a model would have to propose is not counted on."""
        if inverse is not None and why_not:
            undo = f"cannot be taken back: {inverse.undo.operation} could, but {why_not}"
        elif inverse is not None:
            undo = f"undo: {inverse.told}"
        elif self._inverses.can_propose and not service.connection.is_strict and service.catalogue:
            undo = "undo: a model has to propose it, unproven; do not count on it"
        else:
            undo = "cannot be taken back"
        return f"{part.operation or 'free request'}: {service.told(part.call)}; {undo}"

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        service, ask = self._asked(operation)
        digest, parts = self._planned.pop(action, ("", []))
        if digest != plan.digest:
            parts = service.parts(ask, looks=True)
        reads_only = self._is_reading(service, parts)
        started: Json = {
            "service": service.name,
            "ask": self._notes.held(action, ask.model_dump(mode="json")),
            "parts": [] if reads_only else self._held(action, parts),
            "guarantee": plan.guarantee,
            "accesses": [(each.verb, each.resource) for each in plan.request.accesses],
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
            "adds": sorted(plan.footprint.adds),
        }
        return started

    def execute(self, action: str, started: Json) -> Json:
        service, ask, parts = self._begun(action, started)
        if not parts:
            return self._receipt(action, started, service, [])
        whole = service.whole(ask, parts)
        if whole is None:
            return self._receipt(action, started, service, [self._sender.carried_out(service, action, _DO, parts[0])])
        done = self._sender.carried_out_together(service, action, _DO, ask, whole, parts)
        if len(done) < len(parts):
            raise InputError(f"service {service.name}: {len(done)} of {len(parts)} requests were done, and taken back")
        return self._receipt(action, started, service, done)

    def find_out(self, action: str, started: Json) -> Json | None:
        """See `Manager`, and `sending.py` for how."""
        service, _, parts = self._begun(action, started)
        done = self._applied(action, started, may_send=True)
        return self._receipt(action, started, service, done) if len(done) == len(parts) else None

    def _applied(self, action: str, started: Json, *, may_send: bool) -> list[Part]:
        """The parts that were done, whoever saw it. `may_send`: whether to find out by sending them again.

        Raises:
            InDoubt: nobody can tell.
        """
        service, ask, parts = self._begun(action, started)
        if not parts:
            return []
        if service.whole(ask, parts) is None:
            done = self._sender.settled(service, action, _DO, parts[0], may_send=may_send)
            return [done] if done else []
        answer = self._notes.answer(action, _DO)
        if answer and (said := outcome(service, answer, service.spec_of_batch(ask))) is not Outcome.UNKNOWN:
            return self._sender.split(service, ask, answer, parts) if said is Outcome.APPLIED else []
        found = [self._sender.settled(service, action, _DO, part, is_alone=False, may_send=False) for part in parts]
        return [part for part in found if part]

    def observed(self, action: str, receipt: Json) -> Request:
        """See `Manager`: what was sent and done."""
        service, _, parts = self._begun(action, receipt)
        if not parts:
            return Request(tuple(Access(verb, resource) for verb, resource in receipt["accesses"]))
        return Request(tuple(accesses_of(service, parts)), Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        """See `Manager`. What it left is what there is now; of what nobody can name, some cannot be taken back."""
        service, _, parts = self._begun(action, started)
        noted = self._notes.answer(action, _DO) if len(parts) == 1 else None
        return self._receipt(action, started, service, [self._sender.accepted(service, part, noted) for part in parts])

    def put_back(self, action: str, started: Json) -> bool:
        try:
            service, _, parts = self._begun(action, started)
            done = parts if "at" in started else self._applied(action, started, may_send=False)
            inverses = [self._inverse(service, part, part.after) for part in reversed(done)]
            self._inverses.done(service, action, _BACK, inverses)
        except (InputError, InDoubt, NotSent, HostError):
            return False
        return True

    def keep(self, action: str, receipt: Json) -> None:
        """See `Manager`: it is where it stays."""

    def kept_bytes(self, receipt: Json) -> int:
        return int(receipt["kept_bytes"])

    def close(self) -> None:
        """Let go of what was opened for services."""

    def commit(self, action: str, receipt: Json) -> None:
        """See `Manager`: nothing was left open."""

    def lapsed(self, action: str, receipt: Json) -> str:
        """See `Manager`: what a service has done stands."""
        return ""

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """See `Manager`: as it was the first time."""
        return self.observed(action, receipt)

    def discard(self, action: str) -> None:
        self._planned.pop(action, None)
        self._notes.forget(action)

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: what the service shows before and after, or would be sent."""
        service, ask = self._asked(operation)
        if receipt is not None and "parts" in receipt:
            return [line for part in self._begun(action, receipt)[2] for line in differences(part)]
        return [line for part in service.parts(ask, looks=True) for line in differences(part)]

    # --- Undo and redo ----------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        """See `Manager`: no inverse is known, or its time is over."""
        service, _, parts = self._begun(action, receipt)
        for part in parts:
            inverse = self._inverses.best(service, part)
            if inverse is None and not (
                self._inverses.can_propose and part.subject and not service.connection.is_strict
            ):
                return f"{part.call.told}: {self._inverses.why_none(service, part)}"
            window_s = inverse.undo.window_s if inverse else None
            if window_s is not None and (age := age_s(float(receipt["at"]))) > window_s:
                over = "that time is over" if age < math.inf else "the clock was set back since, so nobody can tell"
                return f"{part.call.told}: could be taken back for {window_s:.0f} s, and {over}"
        return ""

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:  # the last first: what an earlier one left was changed by a later one of them
            service, _, parts = self._begun(action, receipt)
            changed: list[str] = []
            for part in parts:
                if part.subject is None or part.after is None:
                    continue
                key = service.key_of(part.subject)
                if not meet({key}, seen) and not self._sender.current(service, part, part.after).is_same(part.after):
                    changed.append(key)
            seen |= set(receipt["writes"])
            if changed:
                found[action] = sorted(set(changed))
        return found

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        service, _, parts = self._begun(action, receipt)
        inverses: list[Part] = []
        for part in reversed(parts):
            now, choice = self._now(service, part, choices, default)
            if choice is Choice.SKIP:
                continue
            if choice is Choice.SAVE_ASIDE and now is not None and now.is_there:
                inverses.append(self._aside(service, part, now))
            inverses.append(self._inverse(service, part, now, may_propose=True))
        undoing = {"service": service.name, "ask": receipt["ask"], "run": secrets.token_hex(4)}
        return {**undoing, "parts": self._held(action, inverses), "done": receipt["parts"]}

    def _now(
        self, service: Service, part: Part, choices: Mapping[str, Choice], default: Choice
    ) -> tuple[State | None, Choice | None]:
        """What there is of the subject of a part, and what was chosen to become of it; None if nobody changed it.

        Raises:
            InputError: somebody has changed it, and nothing was chosen.
        """
        if part.subject is None or part.after is None:
            return part.after, None
        now, key = self._sender.current(service, part, part.after), service.key_of(part.subject)
        if now.is_same(part.after) or now.is_same(part.before or State()):
            return now, None
        choice = choices.get(key, default)
        if choice is Choice.REFUSE:
            raise InputError(f"{key}: somebody else has changed it since")
        return now, choice

    def _inverse(self, service: Service, part: Part, now: State | None, *, may_propose: bool = False) -> Part:
        inverse = self._inverses.best(service, part)
        if inverse is None and may_propose:
            inverse = self._inverses.proposed(service, part)
        if inverse is None:
            raise InputError(f"{part.call.told}: {self._inverses.why_none(service, part)}")
        return self._inverses.made(service, part, inverse, now)

    def _aside(self, service: Service, part: Part, theirs: State) -> Part:
        """What gives somebody else's version another name."""
        aside = service.spec_of(part).aside
        if aside is None:
            raise InputError(f"{part.call.told}: nothing is known that saves theirs aside; choose skip or force")
        arguments = evaluated(aside.arguments, {**part.scene, "theirs": theirs.seen})
        return replace(service.part(aside.operation, arguments), wanted=None)

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        service, _, parts = self._begun(action, undoing)
        ended = self._inverses.done(service, action, str(undoing["run"]), parts)
        for part in ended:
            self._learn(service, part)
        return {**undoing, "parts": self._held(action, ended)}

    def _learn(self, service: Service, part: Part) -> None:
        """What was seen to take something back is proven; of what nothing is seen, nothing is learnt."""
        if part.pair and part.answer is not None and part.after is not None:
            self.pairs.prove(part.pair, Undo.model_validate(part.inverse) if part.inverse else None)

    def plan_redo(self, action: str, undone: Json) -> Json:
        service, ask, parts = self._begun(action, undone)
        for part in parts:
            if part.subject and part.after and not service.look(part.look, part.subject).is_same(part.after):
                raise InputError(f"{service.key_of(part.subject)}: was changed since it was undone")
        try:
            steps = [self._inverses.restoring(service, part, part.after) for part in reversed(parts)]
            is_again = False
        except InputError:  # nothing takes the inverse back: it is asked for anew
            steps, is_again = service.parts(ask, looks=True), True
        redoing = {"service": service.name, "ask": undone["ask"], "run": secrets.token_hex(4), "is_again": is_again}
        return {**redoing, "parts": self._held(action, steps), "done": undone["done"]}

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        service, _, parts = self._begun(action, redoing)
        done = [part_from(each) for each in self._notes.recalled(action, redoing["done"])]
        try:
            ended = self._inverses.done(service, action, str(redoing["run"]), parts)
        except NotUndone as error:
            raise InDoubt(str(error)) from None
        if redoing["is_again"]:
            return self._receipt(action, receipt, service, ended)
        seen = {service.key_of(part.subject): part.after for part in ended if part.subject}
        again = [replace(part, after=seen.get(service.key_of(part.subject)) if part.subject else None) for part in done]
        return self._receipt(action, receipt, service, again)

    # --- Pairs ------------------------------------------------------------------------------------------------------

    def inverses(self) -> dict[str, tuple[str, str, Inverse]]:
        """The pairs of all catalogues by their names, which `pairs` wants: service, operation, and what is known."""
        found = [
            (service.name, each) for service in self._services.values() for each in self._inverses.declared(service)
        ]
        return {inverse.pair: (name, operation, inverse) for name, (operation, inverse) in found}

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _begun(self, action: str, plain: Json) -> tuple[Service, Ask, list[Part]]:
        """The service, the operation and the parts in JSON data of ours."""
        ask = Ask.model_validate(self._notes.recalled(action, plain["ask"]))
        service, _ = self._asked(ask)
        return service, ask, [part_from(each) for each in self._notes.recalled(action, plain["parts"])]

    def _receipt(self, action: str, started: Json, service: Service, parts: Sequence[Part]) -> dict[str, Any]:
        footprint = footprint_of(service, parts) if parts else None
        receipt: dict[str, Any] = {**started, "at": time.time()}
        receipt["parts"] = self._held(action, parts)
        if footprint:
            receipt |= {"reads": sorted(footprint.reads), "writes": sorted(footprint.writes)}
            receipt["adds"] = sorted(footprint.adds)
        return {**receipt, "kept_bytes": self._notes.num_bytes(action)}

    def _held(self, action: str, parts: Sequence[Part]) -> list[Any]:
        """JSON data of parts for the journal."""
        return [self._notes.held(action, part.to_json()) for part in parts]
