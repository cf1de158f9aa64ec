"""Requests to services as actions: planned with a read-back, sent once, settled if in doubt, undone, verified.

Theory of operation. A plan reads the resource of a request; its digest covers that. When it is run, a mark is durable
before the first byte goes out, and the answer before it is used; then what was done is read back. An undo is made from
request, answer and the state before, is sent on the condition that the subject is as the action left it (where the
service knows conditions), and is believed only when the service shows what it showed before. What is in doubt is
settled by read-backs, see `sending.py`.
"""

import json
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
from autoclave.core.line_diff import Work, unified
from autoclave.runtime.footprints import Footprint, meet
from autoclave.runtime.guarantee import Guarantee, worst
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
from autoclave.runtime.journal import Journal
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.rest.catalogue import Undo
from autoclave.runtime.rest.compensations import Compensation, Compensations, ProofStatus
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.forms import digest_of
from autoclave.runtime.rest.loading import load_catalogue
from autoclave.runtime.rest.notes import Notes
from autoclave.runtime.rest.parts import Ask, Part, State, part_from
from autoclave.runtime.rest.sending import Sender
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.undoing import Compensator, ProposeCompensation
from autoclave.runtime.rest.wire import KeyOf, NotSent, Wire, complaint

_DO, _BACK = "do", "back"
_MOST_LINES = 400
_KEPT = frozenset({"etag", "location", "content-type", "retry-after", "last-modified", "link"})


class RestManager(Manager):
    """Actions on the services of `connections`, by their names. `state` is a folder that nothing else touches.

    Args:
        key_of: gives the secret of a name; see `Vault.secret`.
        refresh: has a new value put under the name of a secret that a service does not accept any more.
        propose_compensation: asks a model where no compensating request is known.
        verify: certificates that services are verified by; None for those of the system.
    """

    operations: Mapping[str, type[Config]] = {"request": Ask}

    def __init__(
        self,
        connections: Mapping[str, ServiceConnection],
        state: Path,
        journal: Journal,
        key_of: KeyOf,
        *,
        refresh: Callable[[str], object] | None = None,
        propose_compensation: ProposeCompensation | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._services: dict[str, Service] = {}
        for name, connection in connections.items():
            catalogue = load_catalogue(connection.catalogue) if connection.catalogue else None
            kept = _KEPT | (catalogue.kept_headers() if catalogue else frozenset())
            wire = Wire(connection, key_of, refresh=refresh, verify=verify, kept_headers=kept)
            self._services[name] = Service(name, connection, catalogue, wire)
        self._notes = Notes(state)
        self._sender, self.compensations = Sender(self._notes), Compensations(journal)
        self._compensator = Compensator(self.compensations, self._sender, propose_compensation)
        self._planned: dict[str, tuple[str, Part]] = {}

    def told(self) -> str:
        return "\n".join(line for service in self._services.values() for line in service.described())

    def asks(self, operation: Config) -> Request:
        """See `Manager`: planning reads the service, with its key, so that must be permitted before."""
        service, ask = self._asked(operation)
        part = service.requested(ask, reads_back=False)
        return Request((Access(service.spec_of(part).policy_verb, service.resource(part.call)),))

    def plan(self, action: str, operation: Config) -> Plan:
        """See `Manager`. What only reads is asked at once: its answer is the output."""
        service, ask = self._asked(operation)
        part = service.requested(ask, reads_back=True)
        if service.spec_of(part).is_reading:
            return self._reading(service, ask, part)
        compensation, why_not = self._compensator.planned(service, part)
        guarantee = compensation.guarantee if compensation and not why_not else Guarantee.NONE
        seen = [part.before and (part.before.digest, part.before.etag), part.num_inside]
        undo = [compensation.undo.model_dump(mode="json") if compensation else None, why_not]
        digest = digest_of([ask.model_dump(mode="json"), service.connection.base_url, seen, undo, guarantee])
        self._planned = {action: (digest, part)}
        is_queued = worst([service.connection.queue_up_to, guarantee]) is guarantee
        return Plan(
            digest=digest,
            changes=(self._words(service, part, compensation, why_not),),
            request=service.request(part, guarantee),
            footprint=service.footprint(part),
            guarantee=guarantee,
            delay_s=service.connection.queue_s if is_queued else 0.0,
        )

    def _reading(self, service: Service, ask: Ask, part: Part) -> Plan:
        answer = service.seen(part.call)
        if not 200 <= answer.status < 300 or service.is_refusal(answer):
            raise InputError(f"{service.place(part)}: {complaint(answer)}")
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body, ensure_ascii=False)
        return Plan(
            digest=digest_of([ask.model_dump(mode="json"), service.connection.base_url]),
            changes=(),
            request=service.request(part),
            footprint=service.footprint(part),
            guarantee=Guarantee.EXACT,
            output={"stdout": text, "status": answer.status},
            is_read=True,
        )

    def _words(self, service: Service, part: Part, compensation: Compensation | None, why_not: str) -> str:
        """Return what a part would do. What a model would have to propose is not counted on."""
        if compensation is not None:
            could = f"cannot be taken back: {compensation.undo.operation} could, but {why_not}"
            undo = could if why_not else f"undo: {compensation.told}"
        elif self._compensator.can_propose:
            undo = "undo: a model has to propose it, unproven; do not count on it"
        else:
            undo = "cannot be taken back"
        return f"{part.operation or 'free request'}: {service.told(part.call)}; {undo}"

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        service, ask = self._asked(operation)
        digest, part = self._planned.pop(action, ("", None))
        if part is None or digest != plan.digest:
            part = service.requested(ask, reads_back=True)
        return {
            "service": service.name,
            "ask": self._notes.held(action, ask.model_dump(mode="json")),
            "part": self._held(action, part),
            "guarantee": plan.guarantee,
            **_keys(plan.footprint),
        }

    def execute(self, action: str, started: Json) -> Json:
        service, part = self._begun(action, started)
        return self._receipt(action, started, service, self._sender.carried_out(service, action, _DO, part))

    def find_out(self, action: str, started: Json) -> Json | None:
        service, part = self._begun(action, started)
        done = self._sender.settled(service, action, _DO, part)
        return self._receipt(action, started, service, done) if done else None

    def answers(self, action: str, begun: Json) -> bool:
        service = self._services.get(str(begun["service"]))
        return service is not None and service.wire.is_reachable()

    def observed(self, action: str, receipt: Json) -> Request:
        service, part = self._begun(action, receipt)
        return service.request(part, Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        """See `Manager`. What it left is what there is now; of what nobody can name, some cannot be taken back."""
        service, part = self._begun(action, started)
        done = self._sender.accepted(service, part, self._notes.answer(action, _DO))
        return self._receipt(action, started, service, done)

    def put_back(self, action: str, started: Json) -> bool:
        try:
            service, part = self._begun(action, started)
            done = part if "at" in started else self._sender.settled(service, action, _DO, part, may_send=False)
            if done:
                back = self._compensator.taking_back(service, done, done.after)
                self._compensator.done(service, action, _BACK, back)
        except (InputError, InDoubt, NotSent, HostError):
            return False
        return True

    def discard(self, action: str) -> None:
        self._planned.pop(action, None)
        self._notes.forget(action)

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        service, ask = self._asked(operation)
        part = self._begun(action, receipt)[1] if receipt else service.requested(ask, reads_back=True)
        before = _lines(part.before.body if part.before else None)
        after = _lines(part.after.body if part.after else part.call.body)
        place = part.subject.target if part.subject else part.call.target
        lines = list(unified(before, after, place, f"{place} ({part.call.method})", Work()))
        more = [f"... and {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else []
        return lines[:_MOST_LINES] + more

    def obstacle(self, action: str, receipt: Json) -> str:
        """See `Manager`: no compensating request is known."""
        service, part = self._begun(action, receipt)
        compensation, why_none = self._compensator.best(service, part)
        may_propose = self._compensator.can_propose and (part.subject or not part.operation)
        return f"{part.call.told}: {why_none}" if compensation is None and not may_propose else ""

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:  # the last first: what an earlier one left was changed by a later one of them
            service, part = self._begun(action, receipt)
            if part.subject and part.after:
                key = service.key_of(part.subject)
                if not meet({key}, seen) and not self._sender.current(service, part, part.after).is_same(part.after):
                    found[action] = [key]
            seen |= set(receipt["writes"])
        return found

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        service, part = self._begun(action, receipt)
        now = part.after
        if part.subject and part.after:
            now, key = self._sender.current(service, part, part.after), service.key_of(part.subject)
            if not now.is_same(part.after) and not now.is_same(part.before or State()):
                match choices.get(key, default):
                    case Choice.REFUSE:
                        raise InputError(f"{key}: somebody else has changed it since")
                    case Choice.SAVE_ASIDE:
                        raise InputError(f"{part.call.told}: services have no save_aside; choose skip or force")
                    case Choice.SKIP:
                        raise NothingLeft(f"{part.call.told}: somebody else has changed it since")
                    case Choice.FORCE:
                        pass
        back = self._compensator.taking_back(service, part, now, may_propose=True)
        undoing = {"service": service.name, "ask": receipt["ask"], "run": secrets.token_hex(4)}
        return {**undoing, "part": self._held(action, back), "done": receipt["part"]}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        service, part = self._begun(action, undoing)
        ended = self._compensator.done(service, action, str(undoing["run"]), part)
        # Of what nothing is seen, nothing is learnt.
        if ended.compensation and ended.answer is not None and ended.after is not None:
            proposed = Undo.model_validate(ended.proposed) if ended.proposed else None
            self.compensations.record(ended.compensation, ProofStatus.PROVEN, undo=proposed)
        return {**undoing, "part": self._held(action, ended)}

    def plan_redo(self, action: str, undone: Json) -> Json:
        service, part = self._begun(action, undone)
        redoing = {"service": service.name, "ask": undone["ask"], "run": secrets.token_hex(4), "done": undone["done"]}
        if part.subject and part.after and not service.read_back(part.read_back, part.subject).is_same(part.after):
            raise InputError(f"{service.key_of(part.subject)}: was changed since it was undone")
        is_again = False
        try:
            step = self._compensator.restoring(service, part, part.after)
        except InputError:  # nothing takes the compensating request back: it is requested again
            ask = Ask.model_validate(self._notes.recalled(action, undone["ask"]))
            step, is_again = service.requested(ask, reads_back=True), True
        return {**redoing, "part": self._held(action, step), "is_again": is_again}

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        service, part = self._begun(action, redoing)
        try:
            ended = self._compensator.done(service, action, str(redoing["run"]), part)
        except NotUndone as error:
            raise NotRedone(str(error)) from None
        if not redoing["is_again"]:
            done = part_from(self._notes.recalled(action, redoing["done"]))
            ended = replace(done, after=ended.after if done.subject else None)
        return self._receipt(action, receipt, service, ended)

    def declared_compensations(self) -> dict[str, tuple[str, Compensation]]:
        """Return operation and compensating request of all in catalogues, by the names of `compensations`."""
        found = [each for service in self._services.values() for each in self._compensator.declared(service)]
        return {compensation.name: (operation, compensation) for operation, compensation in found}

    def _asked(self, operation: Config) -> tuple[Service, Ask]:
        ask = cast("Ask", operation)
        return self._service(ask.service), ask

    def _service(self, name: str) -> Service:
        if name not in self._services:
            fix = nearest(name, list(self._services)) if self._services else "there are none"
            raise InputError(f"service {name!r}: is not connected; {fix}")
        return self._services[name]

    def _begun(self, action: str, plain: Json) -> tuple[Service, Part]:
        """The service and the part in JSON data of ours."""
        return self._service(plain["service"]), part_from(self._notes.recalled(action, plain["part"]))

    def _receipt(self, action: str, started: Json, service: Service, part: Part) -> dict[str, Any]:
        receipt = {**started, "at": time.time(), "part": self._held(action, part), **_keys(service.footprint(part))}
        return {**receipt, "kept_bytes": self._notes.num_bytes(action)}

    def _held(self, action: str, part: Part) -> Any:
        return self._notes.held(action, part.to_json())


def _keys(footprint: Footprint) -> dict[str, list[str]]:
    return {"reads": sorted(footprint.reads), "writes": sorted(footprint.writes)}


def _lines(body: Any) -> list[str]:
    if body is None:
        return []
    text = body if isinstance(body, str) else json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False)
    return text.splitlines()
