"""From pydantic's errors to one line about what the user wrote: path, value, rule, and the nearest valid name."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from autoclave.config.base import Config
from autoclave.config.frameworks import ours_by_theirs
from autoclave.core.json import first_error, leaves, nearest, rule_of, shown, upwards

Path = tuple[str, ...]


def complaint(schema: type[Config], tree: Mapping[str, Any], origins: Mapping[str, str], error: ValidationError) -> str:
    """The first error, about the settings `tree`, whose `origins` say who set what."""
    first = first_error(error)
    kind, path = first["type"], _as_written(tree, first["loc"])
    path = _with_parts_below(tree, path) if kind == "extra_forbidden" else path
    dotted = ".".join(part if part.isprintable() else shown(part) for part in path)
    if kind == "extra_forbidden":
        text = f"{dotted}: no such setting; {_fix_of_name(schema, tree, path)}"
    elif kind == "missing":
        text = f"{dotted}: required setting is missing"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        given, known = _block(tree, path).get("name"), [_choice(member) for member in _members(schema, path)]
        fix = f"no such choice; {_fix_of_choice(given, known)}"
        other = {"algorithm": "algorithm.advantage", "algorithm.advantage": "algorithm"}.get(dotted)
        if other and str(given) in map(_choice, _members(schema, other.split("."))):
            fix = f"is a choice of {other}.name. Fix: {other}.name={given}"
        text = f"{dotted}.name = {shown(given)}: {fix}"
        if given is None:
            text = (
                f"{dotted}: has no name yet. Fix: set {dotted}.name before its other settings; {fix.partition('; ')[2]}"
            )
    elif kind == "value_error":  # a rule across settings: it names them itself
        rule = str(first.get("ctx", {})["error"])
        text = f"{dotted}: {rule}" if dotted else rule
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        names = [_choice(member) for member in _members(schema, path) if "name" in member.model_fields]
        text = f"{dotted} = {shown(first['input'])}: must be a block of settings"
        text += f" with a name, one of {', '.join(names)}" if names else ""
    else:
        text = f"{dotted} = {shown(first['input'])}: {rule_of(first['msg'])}"
    source = next((origins[above] for above in upwards(".".join((*path, "name"))) if above in origins), "command line")
    return text if source == "command line" else f"{text} (from {source})"


def _as_written(tree: Any, location: Sequence[str | int]) -> Path:
    """The location without the names of union members, which pydantic puts in and the recipe does not have."""
    path: list[str] = []
    for position, part in enumerate(location):
        is_there = part in tree if isinstance(tree, dict) else isinstance(tree, list) and isinstance(part, int)
        if is_there and not (isinstance(tree, list) and cast("int", part) >= len(cast("list[Any]", tree))):
            tree = cast("Any", tree)[part]
        elif position < len(location) - 1 or (isinstance(tree, dict) and cast("Any", tree).get("name") == part):
            continue
        path.append(str(part))
    return tuple(path)


def _fix_of_choice(given: Any, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(given), known, n=1)
    return f"did you mean {near[0]}? Known are {', '.join(known)}" if near else f"known are {', '.join(known)}"


def _fix_of_name(schema: type[Config], tree: Mapping[str, Any], path: Path) -> str:
    """Return which choices have this setting, or the closest name beside it or anywhere."""
    *parents, name = path
    members = _members(schema, parents)
    chosen = _block(tree, parents).get("name")
    if len(members) > 1:
        users = [_choice(member) for member in members if name in member.model_fields]
        if users:
            return f"{chosen} does not use it ({', '.join(users)} {'does' if len(users) == 1 else 'do'})"
        members = [member for member in members if _choice(member) == chosen] or members
    known = [field for member in members for field in member.model_fields]
    if "." in name:
        return "in a recipe, write the parts as blocks inside each other"
    paths, elsewhere = [*_all_paths(schema)], ours_by_theirs()
    settings_and_blocks = {*paths, *(path.rpartition(".")[0] for path in paths)}
    everywhere = {path.rpartition(".")[2]: path for path in paths}
    for ours in (elsewhere.get(".".join(path)) if parents else None, everywhere.get(name), elsewhere.get(name)):
        if ours in settings_and_blocks:
            return f"did you mean {ours}?"
    if near := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {'.'.join([*parents, near[0]])}?"
    if near := difflib.get_close_matches(name, everywhere, n=1, cutoff=0.8):
        return f"did you mean {everywhere[near[0]]}?"
    return nearest(name, known)


def _with_parts_below(tree: Mapping[str, Any], path: Path) -> Path:
    """Return the path of the first setting in an unknown block that has a name of another framework."""
    known, block = ours_by_theirs(), _block(tree, path)
    below = (f"{'.'.join(path)}.{name}" for name, _ in leaves(block))
    return next((tuple(name.split(".")) for name in below if name in known), path)


def _choice(member: type[BaseModel]) -> str:
    return str(member.model_fields["name"].default)


def _block(tree: Any, path: Sequence[str]) -> Mapping[str, Any]:
    for part in path:
        tree = cast("Any", tree).get(part, {}) if isinstance(tree, dict) else {}
    return cast("Mapping[str, Any]", tree) if isinstance(tree, dict) else {}


def _members(schema: type[BaseModel], path: Sequence[str]) -> list[type[BaseModel]]:
    """The settings classes that may stand at `path`."""
    members: list[type[BaseModel]] = [schema]
    for part in path:
        # The keys of a dict of blocks are names that the user chose.
        members = [model for annotation in _annotations(members, part) for model in _models(annotation)] or members
        members = list(dict.fromkeys(members))  # several choices may hold the same block
    return members


def annotations_at(schema: type[BaseModel], path: Sequence[str]) -> list[Any]:
    """Return the types of the setting at `path`, one for each choice that has it."""
    return _annotations(_members(schema, path[:-1]), path[-1])


def _annotations(members: Sequence[type[BaseModel]], name: str) -> list[Any]:
    return [member.model_fields[name].annotation for member in members if name in member.model_fields]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType, dict, tuple):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return []


def _all_paths(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in schema.model_fields.items():
        models = _models(info.annotation)
        for model in models:
            yield from _all_paths(model, f"{prefix}{name}.")
        if not models:
            yield f"{prefix}{name}"
