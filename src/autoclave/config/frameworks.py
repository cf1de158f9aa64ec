"""The correspondences between settings here and in other frameworks: the data of `frameworks.yaml`, typed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, cast

from autoclave.config.recipe import parse_yaml
from autoclave.core.json import from_plain


@dataclass(frozen=True, slots=True)
class Correspondence:
    """A setting of another framework, and the setting here that it becomes."""

    ours: str
    unit: str = ""
    default: Any = None
    map: dict[str, Any] = field(default_factory=dict[str, Any])
    also: tuple[str, ...] = ()
    too: str = ""
    """A second setting here that it sets."""
    note: str = ""

    @property
    def slots(self) -> tuple[str, ...]:
        """Under which names an import looks the value up: the settings here, each with the unit."""
        return tuple(f"{path} {self.unit}".strip() for path in (self.ours, self.too) if path)

    def mapped(self, value: Any) -> Any:
        """Return the value here. Raises KeyError: it has no counterpart."""
        return self.map[value if isinstance(value, str) else json.dumps(value)] if self.map else value


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences without a setting that names them."""

    of: tuple[str, ...]
    """Advantages of the algorithms that it concerns; an empty string stands for all."""
    text: str


@dataclass(frozen=True, slots=True)
class Framework:
    """Correspondences of another framework."""

    title: str
    settings: dict[str, Correspondence]
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[Difference, ...] = ()
    marks: tuple[str, ...] = ()
    """Names that tell it from the framework that it extends."""
    absolute_weights: bool = False
    """The bound on a clipped weight is the weight itself, not its distance from 1."""

    @property
    def names(self) -> dict[str, str]:
        """Every spelling of a setting, and the name that it has in the table."""
        return {spelling: name for name, row in self.settings.items() for spelling in (name, *row.also)}


@dataclass(frozen=True, slots=True)
class Kind:
    """An algorithm here: its advantage, loss of a token and mean of losses, and where its KL term is."""

    name: str
    advantage: str
    loss: str
    mean: str
    kl: str = ""
    estimator: str = ""
    """That of the KL term, where no setting says it."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


@cache
def _table() -> dict[str, Any]:
    return parse_yaml(Path(__file__).with_name("frameworks.yaml").read_text(encoding="utf-8"))


@cache
def kinds() -> tuple[Kind, ...]:
    """Return the algorithms here, the first choice first."""
    return tuple(from_plain(Kind, row, "frameworks.yaml: algorithms") for row in _table()["algorithms"])


def meanings() -> Mapping[str, str]:
    return _table()["meanings"]


def reason_without(name: str) -> str | None:
    """Return why a setting of another framework has no counterpart here; None for an unknown one."""
    for reason, patterns in _table()["without"].items():
        if any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns):
            return reason
    return None


@cache
def frameworks() -> Mapping[str, Framework]:
    """Return what is known of each framework, by the name that `--from` takes."""
    data, found = _table(), dict[str, Framework]()
    for name in [name for name in data if "title" in data[name]]:
        block, base = data[name], data.get(data[name].get("extends", ""), {})
        merged = {key: _over(base.get(key), value) for key, value in (base | block).items() if key != "extends"}
        found[name] = from_plain(Framework, merged, f"frameworks.yaml: {name}")
    return found


def _over(base: Any, value: Any) -> Any:
    """`value` over that of the framework which is extended; null takes an entry out."""
    if isinstance(base, dict) and isinstance(value, dict):
        both = cast("dict[str, Any]", base) | cast("dict[str, Any]", value)
        return {key: inner for key, inner in both.items() if inner is not None}
    return value


@cache
def ours_by_theirs() -> Mapping[str, str]:
    """Return the setting here by every name, whole or its last part, that another framework gives it.

    The first row of the table decides where a name stands for several settings.
    """
    found: dict[str, str] = {}
    for framework in frameworks().values():
        for spelling, name in framework.names.items():
            for theirs in (spelling, spelling.rpartition(".")[2]):
                found.setdefault(theirs, framework.settings[name].ours)
    return found
