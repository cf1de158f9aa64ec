"""Tools of a session for a model: operations on what is connected, Python functions, and looking at actions and undo.

Annotations are those of the Model Context Protocol. They describe a call itself: what is overwritten or deleted counts
as destructive, although it can be undone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, JsonValue

from autoclave.act.functions import definition_of
from autoclave.config import Config
from autoclave.core import UsageError
from autoclave.core.json import nearest
from autoclave.runtime.connections import Connections
from autoclave.runtime.interface import BaseOperation, Json
from autoclave.runtime.proposals import function_definitions
from autoclave.runtime.session import Session

_READING = ("read", "list", "search", "list_changes", "diff", "explain_blast_radius")
_ADDING = ("append", "make_folder", "make_link", "savepoint")
_IDEMPOTENT = ("write", "set_mode", "delete")
_OUTSIDE = ("request", "run", "python")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its parameters as JSON Schema, and its annotations."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    is_read_only: bool
    is_destructive: bool
    is_idempotent: bool
    reaches_outside: bool


class ListChanges(BaseOperation):
    """List what this session did: id, state and guarantee of each action. The last ones that stand can be undone."""

    last: int = Field(default=50, ge=1, le=1000)
    """Most actions to return, the latest."""


class Diff(BaseOperation):
    """Show what an action changed."""

    action: str
    """Its id."""


class Undo(BaseOperation):
    """Undo actions of this session, all or none."""

    actions: tuple[str, ...] = Field(default=(), strict=False)
    """Ids of the actions; empty: the last ones that stand."""
    last: int | None = Field(default=None, ge=1)
    """The number of actions to undo, without `actions`; 1 by default."""
    dependents: bool = False
    """Also undo later actions that depend on them."""


class UndoTo(BaseOperation):
    """Undo all actions of this session since a savepoint, all or none."""

    savepoint: str
    """Its name."""


class Savepoint(BaseOperation):
    """Record a savepoint to which `undo_to` returns."""

    name: str = Field(min_length=1, max_length=200)
    """A name that no savepoint has yet."""


class ExplainBlastRadius(BaseOperation):
    """Show what a tool call would access and change, how well it could be undone, and its weight, without doing it.

    A command with `network` or `secrets` is not run for this, so its changes are unknown.
    """

    tool: str
    """The tool that would be called."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The arguments that it would be called with."""


OWN: dict[str, type[Config]] = {
    "list_changes": ListChanges,
    "diff": Diff,
    "undo": Undo,
    "undo_to": UndoTo,
    "savepoint": Savepoint,
    "explain_blast_radius": ExplainBlastRadius,
}


def own_tools() -> list[Tool]:
    """Return the tools for looking at actions and undo."""
    return [_tool(each) for each in function_definitions(OWN)]


def tools_of(session: Session, connections: Connections, functions: Sequence[str]) -> list[Tool]:
    """Return the tools of a session: operations on what is connected, functions, and those of `own_tools`."""
    engines = {name: each.engine for name, each in connections.databases.items()}
    places = {
        "sql": ("database", sorted(name for name, engine in engines.items() if engine != "redis")),
        "commands": ("database", sorted(name for name, engine in engines.items() if engine == "redis")),
        "request": ("service", sorted(connections.services)),
    }
    found: list[Tool] = []
    operations = {name: model for name, model in session.operations.items() if name != "call"}
    for each in function_definitions(operations):
        definition = each["function"]
        name = definition["name"]
        if name in places:
            parameter, known = places[name]
            if not known:
                continue
            definition["parameters"]["properties"][parameter]["enum"] = known
            definition["description"] += f"\n{session.actions.managers[name].told()}"
        found.append(_tool(each))
    found += [_tool(definition_of(name)) for name in functions]
    return [*found, *own_tools()]


def _tool(definition: Mapping[str, Any]) -> Tool:
    function = definition["function"]
    name, is_reading = function["name"], function["name"] in _READING
    return Tool(
        name,
        function["description"],
        function["parameters"],
        is_read_only=is_reading,
        is_destructive=not is_reading and name not in _ADDING,
        is_idempotent=is_reading or name in _IDEMPOTENT,
        reaches_outside=name in _OUTSIDE,
    )


def shown_tools(tools: Sequence[Tool], form: Literal["openai", "anthropic"]) -> list[dict[str, Any]]:
    """Return tools as definitions for the API of a model."""
    parameters = "input_schema" if form == "anthropic" else "parameters"
    found = [{"name": each.name, "description": each.description, parameters: dict(each.parameters)} for each in tools]
    return found if form == "anthropic" else [{"type": "function", "function": each} for each in found]


def operation_of(name: str, given: Json, functions: Sequence[str]) -> dict[str, Any]:
    """Return the operation that a call of a tool stands for."""
    if name in functions:
        return {"do": "call", "function": name, "arguments": dict(given)}
    if name == "call":
        raise UsageError(f"tool {name!r}: there is none of that name; {nearest(name, list(functions))}")
    return {"do": name, **given}
