"""What the policy is told of file actions: before a command is run, of what is planned, and of what was done."""

from __future__ import annotations

import os
from collections.abc import Iterator

from autoclave.config import Config
from autoclave.runtime.files.operations import Command, List, Python, Read, Search
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.files.tree_digest import Survey
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.packages import normalised_name
from autoclave.runtime.policy.request import Access, Request

_ROOT = "files"


def key_of(path: str) -> str:
    """The key of a path in footprints."""
    return f"{_ROOT}/{path}" if path else _ROOT


def asked_by(operation: Config) -> Request:
    """What an operation asks for before it is planned: a command is run to see what it would do."""
    if isinstance(operation, Read):
        return Request((Access("read", key_of(operation.path)),))
    if isinstance(operation, List | Search):
        return Request((Access("read", f"{key_of(operation.path)}/**"),))
    if not isinstance(operation, Command):
        return Request(())
    packages = operation.packages if isinstance(operation, Python) else ()
    return Request(
        (
            *(Access("run", f"programs/{name}") for name in _programs(operation)),
            Access("read", f"{key_of(operation.within)}/**"),
            *(Access("import", f"packages/{normalised_name(name)}") for name in packages),
            *(Access("use", f"services/{name}") for name in operation.secrets),
        ),
        guarantee_of(operation),
    )


def guarantee_of(operation: Config) -> Guarantee:
    """Guarantee of an operation: the folder is restored exactly, what a command requested of a service is not."""
    return Guarantee.NONE if isinstance(operation, Command) and operation.secrets else Guarantee.EXACT


def accesses_of(step: Step, old: Survey, new: Survey, scope: Scope) -> Iterator[Access]:
    """What a step does to what was there (`old`), and brings (`new`). What is moved can be read at its new place."""
    resource = _resource(step.path, scope)
    inside = tuple(f"{resource}/{name}" for name in dict.fromkeys((*old.inside, *new.inside)))
    match step.do:
        case "put":
            yield Access("create", resource, inside, max(1, new.num_files), new.num_bytes)
        case "take":
            yield Access("delete", resource, inside, old.num_files, 0, old.num_bytes)
        case "exchange":
            yield Access("modify", resource, inside, max(1, new.num_files), new.num_bytes, old.num_bytes)
        case "move":
            inner = old.inside or new.inside
            yield Access("read", resource, tuple(f"{resource}/{name}" for name in inner))
            for place in (resource, _resource(step.to, scope)):
                yield Access("rename", place, tuple(f"{place}/{name}" for name in inner), max(1, len(inner) + 1))
        case "set_facts":
            yield Access("set_mode", resource, (), 1)


def _resource(path: str, scope: Scope) -> str:
    """The name that the policy knows a path by: where it really is, whatever links are on the way."""
    above, _, name = path.rpartition("/")
    place = os.path.join(os.path.realpath(scope.root / above), name)
    within = os.path.relpath(place, scope.root)
    return f"outside{place}" if within.startswith("..") else f"{_ROOT}/{within}"


def _programs(operation: Command) -> list[str]:
    """The names of what it runs, its undo included."""
    if isinstance(operation, Python):
        return ["python"]
    commands = [operation.command, *([operation.undo] if operation.undo else [])]
    return list(dict.fromkeys(command[0].rpartition("/")[2] for command in commands))
