"""From a recipe and overrides to one typed object, knowing where each value came from.

Every mistake ends here, before any work, as one line: path, value, rule, and the nearest valid name. Everything below
gets a typed object.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError

from autoclave.config.base import Config, Tree
from autoclave.core.errors import ConfigError
from autoclave.core.json import leaves, shown, upwards

C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class Resolved(Generic[C]):
    """A typed configuration, and for each dotted path that was set, who set it."""

    config: C
    origins: Mapping[str, str] = field(default_factory=dict[str, str])

    def lines(self) -> Iterator[tuple[str, Any, str]]:
        """`(path, value, origin)` of every setting; the origin of a setting that was not set is `default`."""
        for path, value in leaves(self.config.model_dump(mode="json")):
            yield path, value, self.origin(path)

    def origin(self, path: str) -> str:
        return next((self.origins[above] for above in upwards(path) if above in self.origins), "default")


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
    from autoclave.config.recipe import parse_yaml

    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"{shown(text)}: a setting is path=value, for example optimizer.learning_rate=3e-4")
    try:
        return Override(path, parse_yaml(value), "command line")
    except ValueError as error:
        raise ConfigError(f"{path} = {shown(value)}: not valid YAML ({error})") from None


def load(schema: type[C], recipe: Path | None = None, overrides: Iterable[Override] = ()) -> Resolved[C]:
    """The configuration of `recipe` over the defaults, with `overrides` applied in order.

    Raises:
        InputError: the recipe is missing.
        ConfigError: a key is unknown, a value has the wrong type or is out of range, or settings contradict.
    """
    given: Tree = {}
    if recipe is not None:
        from autoclave.config.recipe import read_recipe

        given = read_recipe(recipe)
    overrides = [_with_empty_text(schema, override) for override in overrides]
    _complete(given)
    origins = {path: str(recipe) for path, value in leaves(given) if value != {}}
    defaults = schema()
    tree = _over_defaults(given, defaults)
    for override in overrides:
        _apply(tree, origins, override)
    tree = _over_defaults(tree, defaults)  # a block that was set as a whole
    stated = _stated(given, overrides)
    for path, value in schema.dependent_defaults(tree, stated).items():
        if stated.isdisjoint(upwards(path)):
            _apply(tree, origins, Override(path, value, "default by the size of the model"))
    tree = _over_defaults(tree, defaults)
    try:
        # Strict JSON mode: text is not a number, but a list may be a tuple and text a path.
        config = schema.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        from autoclave.config.complaints import complaint

        raise ConfigError(complaint(schema, tree, origins, error)) from None
    return Resolved(config, origins)


def dump(config: Config) -> str:
    """The whole configuration as YAML that `load` reads back to an equal object."""
    from autoclave.config.recipe import write_yaml

    return write_yaml(config.model_dump(mode="json"))


def _over_defaults(given: Tree, default: Config) -> Tree:
    """`given` with what it leaves out taken from `default`; a block that names another choice keeps only its own."""
    tree: Tree = {}
    for name in type(default).model_fields:
        value = getattr(default, name)
        mine = given.get(name, {}) if isinstance(value, Config) else None
        if not isinstance(value, Config):
            tree[name] = given[name] if name in given else default.model_dump(mode="json", include={name})[name]
        elif isinstance(mine, dict) and _is_same_choice(cast("Tree", mine), value):
            tree[name] = _over_defaults(cast("Tree", mine), value)
        else:
            tree[name] = mine
    return tree | {name: value for name, value in given.items() if name not in tree}


def _is_same_choice(block: Tree, default: Config) -> bool:
    name = getattr(default, "name", None)
    return block.get("name", name) == name


def _stated(given: Tree, overrides: Iterable[Override]) -> set[str]:
    """Return the paths of all settings that have a value without any default."""
    tree = copy.deepcopy(given)
    for override in overrides:
        _apply(tree, {}, override)
    return {path for path, value in leaves(tree) if value != {}}


def _apply(tree: Tree, origins: dict[str, str], override: Override) -> None:
    *parents, last = override.path.split(".")
    block = tree
    for depth, name in enumerate(parents):
        if block.get(name) is None:
            block[name] = {}  # also where null stands for a block that is left out
        inner: Any = block[name]
        if not isinstance(inner, dict):
            above = ".".join(parents[: depth + 1])
            raise ConfigError(f"{override.path}: {above} = {shown(inner)} is not a block of settings")
        block = cast("Tree", inner)
    if parents and last == "name":
        block.clear()  # a choice is named: its defaults, whatever stood there
        _forget(origins, f"{'.'.join(parents)}.")
    if override.path == "problems.path":  # one file of problems takes the place of generated ones and of two files
        other = set(block) if block.get("name") != "files" else {"train", "heldout"}
        beside = {key for key in block if origins.get(f"problems.{key}") == override.origin} - {"name"}
        for name in other - beside:
            block.pop(name, None)
            _forget(origins, f"problems.{name}")
    block[last] = override.value
    _complete(tree)
    _forget(origins, f"{override.path}.")
    origins[override.path] = override.origin


def _complete(tree: Tree) -> None:
    """Let `algorithm.advantage: NAME` stand for the block of that name, and `problems.path` choose `files`."""
    algorithm, problems = cast("tuple[Any, Any]", (tree.get("algorithm"), tree.get("problems")))
    if isinstance(algorithm, dict) and isinstance(name := cast("Tree", algorithm).get("advantage"), str):
        algorithm["advantage"] = {"name": name}
    if isinstance(problems, dict) and "path" in problems:
        cast("Tree", problems).setdefault("name", "files")


def _with_empty_text(schema: type[Config], override: Override) -> Override:
    """`override` with the empty string for null, as in `model.path=`, where the setting is a string.

    `algorithm.advantage=NAME` sets the name of that block.
    """
    if override.path == "algorithm.advantage" and isinstance(override.value, str):
        return replace(override, path="algorithm.advantage.name")
    if override.value is None:
        from autoclave.config.complaints import annotations_at

        if str in annotations_at(schema, override.path.split(".")):
            return replace(override, value="")
    return override


def _forget(origins: dict[str, str], prefix: str) -> None:
    for path in [path for path in origins if path.startswith(prefix)]:
        del origins[path]
