"""Results of calls, and changes as a session lists them. Pure data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import AutoclaveError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Standing
from autoclave.runtime.states import ActionState


def encodable(text: str) -> str:
    """Return text with surrogates, as names that are not UTF-8 have, escaped as in JSON."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call.

    Attributes:
        text: for the model: JSON, or the reason why nothing was done, without what would permit it. It can be encoded:
            bytes of names that are not text are escaped.
        action: the id of the action, also where it failed or is in doubt; empty if nothing was recorded.
        guarantee: how good its undo is; None where there is nothing to undo.
        changes: descriptions of its changes, in order.
        output: the output and exit code of a command, what was read, or what the tool returns.
        error: the reason as an exception, for the program; None if it was done. Its `hint`, if it has one, says what
            would permit the action: never show that to a model.
    """

    text: str
    action: str = ""
    guarantee: Guarantee | None = None
    changes: Sequence[str] = ()
    output: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: AutoclaveError | OSError | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", encodable(self.text))

    @property
    def is_error(self) -> bool:
        return self.error is not None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Change:
    """An action that was not only a read. `at`: when it got its state, in seconds since 1970."""

    action: str
    state: ActionState
    guarantee: Guarantee
    operation: Mapping[str, Any]
    session: str
    at: float
    reason: str = ""
    """Why it failed, or is in doubt."""

    @staticmethod
    def of(standing: Standing) -> "Change":
        proposed, reason = standing.proposed, str(standing.body.get("reason", ""))
        guarantee = Guarantee(proposed["guarantee"])
        who = str(proposed["session"])
        return Change(standing.action, standing.state, guarantee, proposed["operation"], who, standing.at, reason)

    def told(self) -> dict[str, str]:
        """Return it as JSON data for a model."""
        told = {"action": self.action, "state": str(self.state), "guarantee": str(self.guarantee)}
        return {**told, "operation": words(self.operation), **({"reason": self.reason} if self.reason else {})}

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.action}  {self.state:<13}  {self.guarantee:<12}  {words(self.operation)}{reason}"


def words(given: Mapping[str, Any]) -> str:
    """Return an operation as a line: what it does, to what."""
    match given["do"]:
        case "sql":
            return f"sql on {given['database']}: {'; '.join(given['statements'])[:100]}"
        case "commands":
            return f"commands on {given['database']}: {'; '.join(map(' '.join, given['commands']))[:100]}"
        case "request":
            what = given.get("operation") or f"{given.get('method')} {given.get('path')}"
            return f"request to {given['service']}: {what}"
        case "run":
            return f"run {' '.join(given['command'])[:100]!r}"
        case "python":
            lines = given["source"].strip().splitlines()
            return f"python {lines[0][:80] if lines else ''!r}"
        case "search":
            return f"search {given['text'][:80]!r} in {given.get('path', '')!r}"
        case "observed":
            return f"{given['tool']} {given['about'][:100]!r}" + (
                "" if given["is_finished"] else ", or others meanwhile"
            )
        case "call":
            given_as = (f"{name}={value!r}" for name, value in given["arguments"].items())
            return f"call {given['function']}({', '.join(given_as)})"[:120]
        case do:
            other = given.get("to") or given.get("target")
            return f"{do} {given.get('path', '')!r}" + (f" -> {other!r}" if other else "")
