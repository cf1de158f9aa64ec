"""The journal for other tools, as lines of JSON or OpenTelemetry spans. A view; the journal is the record. Pure.

Spans follow OTLP in its JSON form (opentelemetry.proto.trace.v1): one for each action, from its proposal to its last
record, with an event for each record.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autoclave.runtime.records import Record
from autoclave.runtime.states import ActionState

_STATES = {state.value for state in ActionState}
_FAILED = {ActionState.FAILED, ActionState.IN_DOUBT, ActionState.UNDO_FAILED, ActionState.UNDO_IN_DOUBT}
_OK, _ERROR = 1, 2


def as_json_lines(records: Iterable[Record]) -> str:
    plain = (asdict(each) | {"previous": each.previous.hex(), "digest": each.digest.hex()} for each in records)
    return "".join(f"{json.dumps(each)}\n" for each in plain)


def as_otlp(records: Sequence[Record]) -> str:
    """Return the actions as spans, one trace for each session."""
    by_action: dict[str, list[Record]] = {}
    for record in records:
        by_action.setdefault(record.subject, []).append(record)
    spans = [_span(action, own) for action, own in by_action.items() if any(each.kind in _STATES for each in own)]
    resource = {"attributes": _attributes({"service.name": "autoclave"})}
    scope = {"scope": {"name": "autoclave.runtime"}, "spans": spans}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}, indent=1)


def _span(action: str, records: Sequence[Record]) -> dict[str, Any]:
    states = [record for record in records if record.kind in _STATES]
    proposed, last = states[0].body, states[-1]
    session = str(proposed.get("session", ""))
    told = {
        "autoclave.action": action,
        "autoclave.session": session,
        "autoclave.state": last.kind,
        "autoclave.plan": str(proposed.get("plan", "")),
        "autoclave.guarantee": str(proposed.get("guarantee", "")),
        "autoclave.by": str(proposed.get("by", "")),
    }
    return {
        "traceId": hashlib.sha256(f"session {session}".encode()).hexdigest()[:32],
        "spanId": hashlib.sha256(f"action {action}".encode()).hexdigest()[:16],
        "name": str(proposed.get("operation", {}).get("do", "action")),
        "kind": 1,
        "startTimeUnixNano": _nanoseconds(records[0].at),
        "endTimeUnixNano": _nanoseconds(records[-1].at),
        "attributes": _attributes(told),
        "events": [{"timeUnixNano": _nanoseconds(each.at), "name": each.kind} for each in records],
        "status": {"code": _ERROR if last.kind in _FAILED else _OK},
    }


def _attributes(told: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]


def _nanoseconds(at: float) -> str:
    return str(int(at * 1e9))
