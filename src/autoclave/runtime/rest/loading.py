"""Catalogues from files: those that come with this program, one's own, and descriptions of services in OpenAPI."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from autoclave.core import InputError
from autoclave.core.files import existing_file
from autoclave.core.json import nearest, shown
from autoclave.runtime.rest.catalogue import Catalogue, catalogue_from
from autoclave.runtime.rest.connection import is_file_name
from autoclave.runtime.rest.openapi import catalogue_of_openapi

SHIPPED = Path(__file__).parent / "catalogues"
CONTRIBUTED = ("discord", "dropbox", "github", "gmail", "slack", "spotify")
"""Files in contrib/catalogues."""


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a file, or one that comes with this program by its name.

    A file may also be the description of a service by OpenAPI 3, in YAML or JSON; see `openapi`.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = existing_file(Path(name), "catalogue") if is_file_name(name) else _shipped(name)
    if not path.is_file():
        raise InputError(f"catalogue {path}: is not a plain file")
    try:
        given = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        plain = cast("object", json.loads(json.dumps(given, allow_nan=False)))  # aliases become copies
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError(f"{path}: no YAML ({' '.join(str(error).split())[:200]})") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply") from None
    if isinstance(plain, Mapping) and "openapi" in plain:
        return catalogue_of_openapi(cast("Mapping[str, Any]", plain), path.stem, str(path))
    return catalogue_from(plain, str(path))


def _shipped(name: str) -> Path:
    path = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        if name in CONTRIBUTED:
            raise InputError(
                f"catalogue {shown(name)}: does not come with this program, since it never ran against its service; "
                f"give its file, contrib/catalogues/{name}.yaml in the source of this program"
            )
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
