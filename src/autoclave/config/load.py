"""From a recipe and overrides to one typed object, knowing where each value came from.

Only this module reads YAML; everything below gets a typed object. Every mistake ends here, before any work, as one
line: path, value, rule, and the nearest valid name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from autoclave.config.base import Config
from autoclave.core.errors import ConfigError
from autoclave.core.files import existing_file
from autoclave.core.json import describe

C = TypeVar("C", bound=Config)
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved(Generic[C]):
    """A typed configuration, and for each dotted path that was set, who set it."""

    config: C
    origins: Mapping[str, str] = field(default_factory=dict[str, str])

    def lines(self) -> Iterator[tuple[str, Any, str]]:
        """`(path, value, origin)` of every setting; the origin of one nobody set is `default`."""
        for path, value in _leaves(self.config.model_dump(mode="json")):
            yield path, value, self._origin(path)

    def _origin(self, path: str) -> str:
        while path:
            if path in self.origins:
                return self.origins[path]
            path = path.rpartition(".")[0]
        return "default"


@dataclass(frozen=True, slots=True)
class Override:
    """One change on top of a recipe. Setting the `name` of a choice resets its block to that choice's defaults."""

    path: str
    value: Any
    origin: str


def parse_override(text: str) -> Override:
    """The override in `a.b=value`; the value is YAML.

    Raises:
        ConfigError: no `=`, an empty part in the path, or a value that is not YAML.
    """
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"{text!r}: expected a setting as path=value, for example optimizer.learning_rate=3e-4")
    try:
        return Override(path, yaml.load(value, Loader=_Loader), "command line")
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} = {value!r}: not valid YAML ({_first_line(error)})") from None


def load(schema: type[C], recipe: Path | None = None, overrides: Iterable[Override] = ()) -> Resolved[C]:
    """The configuration of `recipe` over the defaults, with `overrides` applied in order.

    Raises:
        InputError: the recipe is missing.
        ConfigError: a key is unknown, a value has the wrong type or is out of range, or settings contradict.
    """
    given = {} if recipe is None else _read_recipe(recipe)
    origins = {path: str(recipe) for path, _ in _leaves(given)}
    tree = _over_defaults(given, schema())
    for override in overrides:
        _apply(tree, origins, override)
    try:
        # Strict JSON mode: text is not a number, but a list may be a tuple and text a path.
        config = schema.model_validate_json(json.dumps(tree, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(_complaint(schema, tree, origins, error)) from None
    return Resolved(config, origins)


def dump(config: Config) -> str:
    """The whole configuration as YAML that `load` reads back to an equal object."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)


def _over_defaults(given: Tree, default: Config) -> Tree:
    """`given` with what it leaves out taken from `default`; a block that names another choice keeps only its own."""
    tree: Tree = {}
    for name in type(default).model_fields:
        value = getattr(default, name)
        mine = given.get(name, {}) if isinstance(value, Config) else None
        if not isinstance(value, Config):
            tree[name] = given[name] if name in given else default.model_dump(mode="json", include={name})[name]
        elif isinstance(mine, dict) and mine.get("name", getattr(value, "name", None)) == getattr(value, "name", None):
            tree[name] = _over_defaults(mine, value)
        else:
            tree[name] = mine
    return tree | {name: value for name, value in given.items() if name not in tree}


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, except that 3e-4 is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"),
    list("-+0123456789."),
)


def _read_recipe(path: Path) -> Tree:
    try:
        tree = yaml.load(existing_file(path, "recipe").read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML ({_first_line(error)})") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a recipe is a mapping of settings, found {type(tree).__name__}")
    return tree


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def _apply(tree: Tree, origins: dict[str, str], override: Override) -> None:
    *parents, last = override.path.split(".")
    block = tree
    for depth, name in enumerate(parents):
        block = block.setdefault(name, {})
        if not isinstance(block, dict):
            raise ConfigError(
                f"{override.path}: {'.'.join(parents[: depth + 1])} = {block!r} is not a block of settings"
            )
    if parents and last == "name" and block.get("name") != override.value:
        block.clear()  # another choice: the settings of the old one mean nothing to it
        _forget(origins, f"{'.'.join(parents)}.")
    block[last] = override.value
    _forget(origins, f"{override.path}.")
    origins[override.path] = override.origin


def _forget(origins: dict[str, str], prefix: str) -> None:
    for path in [path for path in origins if path.startswith(prefix)]:
        del origins[path]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


# --- Errors: from pydantic's location to what the user wrote -------------------------------------------------------


def _complaint(schema: type[Config], tree: Tree, origins: Mapping[str, str], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    kind, location = first["type"], _path(tree, first["loc"])
    path = ".".join(location)
    source = next((origins[p] for p in _prefixes(path) if p in origins), "")
    suffix = f" (from {source})" if source and source != "command line" else ""
    if kind == "extra_forbidden":
        return f"{path}: no such setting; {_nearest(schema, tree, location)}{suffix}"
    if kind == "missing":
        return f"{path}: required setting is missing{suffix}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        known = first["ctx"].get("expected_tags", "").replace("'", "") or ", ".join(_tags(schema, location))
        given = first["ctx"].get("tag")
        near = difflib.get_close_matches(str(given), known.split(", "), n=1)
        hint = f"did you mean {near[0]}? Known" if near else "known"
        return f"{path}.name = {given!r}: no such choice; {hint} are {known}{suffix}"
    if kind == "value_error":  # a rule across fields: it names its fields itself
        text = describe(error).partition("}: ")[2] or str(first["ctx"]["error"])
        return (f"{path}: " if path else "") + str(first["ctx"]["error"] or text) + suffix
    value = first.get("input")
    message = first["msg"]
    return f"{path} = {json.dumps(value, default=str)}: {message[:1].lower()}{message[1:]}{suffix}"


def _path(tree: Any, location: Sequence[str | int]) -> tuple[str, ...]:
    """The location without the names of union members that pydantic puts into it."""
    path: list[str] = []
    for position, part in enumerate(location):
        is_last = position == len(location) - 1
        if (isinstance(tree, Mapping) and part in tree) or (isinstance(tree, list) and isinstance(part, int) and part < len(tree)):
            tree = tree[part]
        elif not is_last or (isinstance(tree, Mapping) and tree.get("name") == part):
            continue
        path.append(str(part))
    return tuple(path)


def _prefixes(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def _nearest(schema: type[Config], tree: Tree, location: tuple[str, ...]) -> str:
    """A hint for an unknown key: who else has it, or the closest name beside it or anywhere."""
    *parents, name = location
    members = _members(schema, parents)
    chosen = _block(tree, parents).get("name")
    users = (
        [m for m in members if name in m.model_fields and m.model_fields["name"].default != chosen] if chosen else []
    )
    if users:
        names = ", ".join(str(m.model_fields["name"].default) for m in users)
        return f"{chosen} does not use it ({names} does)"
    here = [m for m in members if chosen is None or "name" not in m.model_fields or _is(m, chosen)]
    known = [field for member in here or members for field in member.model_fields]
    if near := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {'.'.join([*parents, near[0]])}?"
    everywhere = {path.rpartition(".")[2]: path for path in _all_paths(schema)}
    if near := difflib.get_close_matches(name, everywhere, n=1, cutoff=0.8):
        return f"did you mean {everywhere[near[0]]}?"
    return f"known here are {', '.join(sorted(set(known)))}"


def _is(member: type[BaseModel], name: str) -> bool:
    return member.model_fields["name"].default == name


def _block(tree: Any, path: Sequence[str]) -> Mapping[str, Any]:
    for part in path:
        tree = tree.get(part, {}) if isinstance(tree, Mapping) else {}
    return tree if isinstance(tree, Mapping) else {}


def _tags(schema: type[Config], location: Sequence[str]) -> list[str]:
    return [str(member.model_fields["name"].default) for member in _members(schema, location)]


def _members(schema: type[BaseModel], path: Sequence[str]) -> list[type[BaseModel]]:
    """The settings classes that may stand at `path`."""
    members: list[type[BaseModel]] = [schema]
    for part in path:
        annotations = [m.model_fields[part].annotation for m in members if part in m.model_fields]
        found = [model for annotation in annotations for model in _models(annotation)]
        members = found or members
    return members


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    if get_origin(annotation) in (Union, type(int | str), dict):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return []


def _all_paths(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in schema.model_fields.items():
        models = _models(info.annotation)
        for model in models:
            yield from _all_paths(model, f"{prefix}{name}.")
        if not models:
            yield f"{prefix}{name}"
