"""Python functions as actions: called once, journalled, undone by another function.

Theory of operation. The operation `call` has a manager of its own, which a state folder connects when a session with
functions is opened; so the command line lists such actions too, and only the process that defines a function calls it.
A function is called after its action was journalled. If it raises anything but a refusal, or the process dies before
its result is journalled, the action is in doubt until a user settles it: it is never called a second time. An undo is
treated alike.
"""

import contextlib
import hashlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, create_model

from autoclave.config import Config
from autoclave.core import InputError, UsageError
from autoclave.core.json import canonical_json, nearest, validated
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NotRedone, NotUndone, Plan, UndoneWith
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.proposals import function_definitions

F = TypeVar("F", bound=Callable[..., Any])
_JSON = TypeAdapter[Any](JsonValue)


@dataclass(frozen=True, slots=True)
class _Reversible:
    function: Callable[..., Any]
    parameters: type[Config]
    undo: Callable[[Any, Any], object] | None
    refusals: tuple[type[Exception], ...]
    touches: Callable[..., Iterable[str]] | None


_KNOWN = dict[str, _Reversible]()


def reversible(
    undo: Callable[[dict[str, Any], Any], object] | None = None,
    *,
    refusals: tuple[type[Exception], ...] = (InputError,),
    touches: Callable[..., Iterable[str]] | None = None,
) -> Callable[[F], F]:
    """Make a function an action that sessions can call by its name: `session(root, functions=[function])`.

    Its arguments and its result must be JSON data. Called directly, it is the plain function, and nothing is recorded.

    Args:
        undo: compensates for a call; gets its arguments, as a dict, and its result. Without it, the guarantee is
            `none`, else `compensating`.
        refusals: exceptions of function and `undo` that mean that nothing was done. After any other, the action is in
            doubt.
        touches: gets the arguments, and returns names of what a call changes, such as `customers/7`. Calls with the
            same names, or names below them, depend on each other; by default all calls do.
    """

    def register(function: F) -> F:
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"function {function.__name__}: must not be async")
        _KNOWN[function.__name__] = _Reversible(function, _parameters_of(function), undo, refusals, touches)
        return function

    return register


def name_of(function: Callable[..., Any]) -> str:
    """Return the name under which a function was registered. Raises UsageError where it was not."""
    name = getattr(function, "__name__", repr(function))
    if name not in _KNOWN or _KNOWN[name].function is not function:
        raise UsageError(f"function {name}: has no decorator `reversible`, or another function has its name")
    return name


def definition_of(name: str) -> dict[str, Any]:
    """Return a function as one that a model can call."""
    return function_definitions({name: _known(name).parameters})[0]


def _parameters_of(function: Callable[..., Any]) -> type[Config]:
    hints = typing.get_type_hints(function)
    fields: dict[str, Any] = {}
    for name, each in inspect.signature(function).parameters.items():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise UsageError(f"function {function.__name__}: parameter {name} must be passed by its name")
        fields[name] = (hints.get(name, JsonValue), ... if each.default is each.empty else each.default)
    return create_model(function.__name__, __base__=Config, __doc__=inspect.getdoc(function), **fields)


def _known(name: str) -> _Reversible:
    if name not in _KNOWN:
        fix = nearest(name, sorted(_KNOWN)) if _KNOWN else "none are"
        raise InputError(f"function {name!r}: is not defined in this process ({fix}); use the program that defines it")
    return _KNOWN[name]


class Call(Config):
    """Call a Python function."""

    do: Literal["call"]
    function: str
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class FunctionManager(Manager):
    """Calls of functions with the decorator `reversible`. Keeps nothing outside the journal."""

    operations: Mapping[str, type[Config]] = {"call": Call}

    def __init__(self, settings: Mapping[str, Any] | None = None, state: Path | None = None) -> None:
        self._failures = dict[str, str]()

    def plan(self, action: str, operation: Config) -> Plan:
        call = typing.cast("Call", operation)
        known = _known(call.function)
        validated(known.parameters, call.arguments, f"function {call.function}")
        try:
            touched = tuple(known.touches(**call.arguments)) if known.touches else ("",)
        except Exception as error:
            told = f"its `touches` raised {type(error).__name__}: {error}"
            raise InputError(f"function {call.function}: {told}; nothing was done") from error
        guarantee = Guarantee.COMPENSATING if known.undo else Guarantee.NONE
        return Plan(
            hashlib.sha256(canonical_json(call.model_dump(mode="json"))).hexdigest(),
            (f"call {call.function}; {'undo: another function' if known.undo else 'cannot be undone'}",),
            Request((Access("run", f"functions/{call.function}"),), guarantee),
            Footprint(writes=frozenset(f"functions/{each}".rstrip("/") for each in touched)),
            guarantee,
        )

    def execute(self, action: str, started: Json) -> Json:
        name, arguments = _call_of(started)
        known = _known(name)
        result = self._called(action, known, InputError, lambda: known.function(**arguments))
        return {**started, "result": result}

    def _called(
        self, action: str, known: _Reversible, refusal: type[InputError], function: Callable[[], object]
    ) -> JsonValue:
        """Call a function; return its result as JSON data. Raises `refusal` or InDoubt."""
        try:
            return _JSON.dump_python(_JSON.validate_python(function(), strict=True), mode="json")
        except known.refusals as error:
            raise refusal(f"{error}") from error
        except Exception as error:
            self._failures[action] = f"the function was called, and raised {type(error).__name__}: {error}"
            raise InDoubt(self._failures[action]) from error

    def find_out(self, action: str, started: Json) -> Json | None:
        raise self._unknown(action)

    def _unknown(self, action: str) -> InDoubt:
        return InDoubt(self._failures.get(action, "the function was called, and its result is unknown"))

    def accept(self, action: str, started: Json) -> Json:
        return {"result": None, **started}

    def put_back(self, action: str, started: Json) -> bool:
        """See `Manager`. Called after a refusal of the function, or after a call that is not permitted any more."""
        if "result" not in started:
            return True
        with contextlib.suppress(InDoubt, InputError):
            return self._undone(action, started)
        return False

    def obstacle(self, action: str, receipt: Json) -> str:
        if receipt["guarantee"] == Guarantee.NONE:
            return "the function has no undo"
        if (name := _call_of(receipt)[0]) in _KNOWN:
            return ""
        return f"only the program that defines {name!r} can undo and redo its calls, with session.undo('{action}')"

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        return {}

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        _known(_call_of(receipt)[0])
        return {name: receipt[name] for name in ("operation", "result")}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        if is_late:
            raise InDoubt("the undo of the function was called, and its outcome is unknown")
        if not self._undone(action, undoing):
            raise NotUndone("the function has no undo")
        return undoing

    def _undone(self, action: str, receipt: Json) -> bool:
        name, arguments = _call_of(receipt)
        known = _known(name)
        undo = known.undo
        if undo is not None:
            self._called(action, known, NotUndone, lambda: (undo(arguments, receipt["result"]), None)[1])
        return undo is not None

    def plan_redo(self, action: str, undone: Json) -> Json:
        _known(_call_of(undone)[0])
        return {"operation": undone["operation"]}

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        if is_late:
            raise self._unknown(action)
        try:
            return self.execute(action, receipt)
        except InputError as error:
            raise NotRedone(str(error)) from None


def _call_of(told: Json) -> tuple[str, dict[str, Any]]:
    """Return the function and the arguments in JSON data of an action."""
    return str(told["operation"]["function"]), dict(told["operation"]["arguments"])
