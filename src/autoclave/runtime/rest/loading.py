"""Catalogues from files: those that come with this program, one's own, and descriptions of services in OpenAPI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, cast

import yaml

from autoclave.core import InputError
from autoclave.core.files import existing_file
from autoclave.core.json import nearest, shown
from autoclave.runtime.rest.catalogue import Catalogue, catalogue_from
from autoclave.runtime.rest.connection import is_file_name
from autoclave.runtime.rest.openapi import catalogue_of_openapi

_MOST_VALUES = 100_000
"""With aliases written out; files that are larger without any may be ten times as large with them."""
_ENDLESS = 1 << 62
SHIPPED = Path(__file__).parent / "catalogues"


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a file, or one that comes with this program by its name.

    A file may also be the description of a service by OpenAPI 3, in YAML or JSON; see `openapi`.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = existing_file(Path(name), "catalogue") if is_file_name(name) else _shipped(name)
    if not path.is_file():
        raise InputError(f"catalogue {path}: is no plain file")
    try:
        plain = cast("object", yaml.load(path.read_text(encoding="utf-8"), _Loader))
        _require_bounded(plain)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: no YAML ({' '.join(str(error).split())[:200]})") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply") from None
    if isinstance(plain, Mapping) and "openapi" in plain:
        return catalogue_of_openapi(cast("Mapping[str, Any]", plain), path.stem, str(path))
    return catalogue_from(plain, str(path))


def _shipped(name: str) -> Path:
    path = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        known = sorted(each.stem for each in SHIPPED.glob("*.yaml"))
        raise InputError(f"catalogue {shown(name)}: there is none; {nearest(name, known)}, or give a file")
    return path


class _Loader(yaml.SafeLoader):
    """Takes no name twice in one object: of two, the first would be lost without a word. Dates are texts."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if twice := [name for name, number in Counter(names).items() if number > 1]:
            raise yaml.constructor.ConstructorError(
                problem=f"{twice[0]!r} is given twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)


def _require_bounded(plain: object) -> None:
    """Look that what aliases stand for is not very much more than what is written.

    Raises:
        ValueError: it is, or something is within itself.
    """
    sizes: dict[int, int] = {}
    num_written = 0

    def size(value: Any) -> int:
        nonlocal num_written
        if not isinstance(value, (dict, list)):
            if not isinstance(value, (str, int, float, NoneType)):
                raise ValueError(f"{value!r:.40} is no value of JSON")
            return 1
        if id(value) not in sizes:
            sizes[id(value)] = _ENDLESS  # as long as it is looked into
            num_written += 1 + len(value)
            inner: Any = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(map(size, inner))
        return sizes[id(value)]

    if size(plain) > max(_MOST_VALUES, 10 * num_written):
        raise ValueError("its aliases stand for too many values, or for themselves")
