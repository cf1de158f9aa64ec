"""Catalogues from files: those that come with this program, one's own, and descriptions of services in OpenAPI."""

from __future__ import annotations

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


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a file, or one that comes with this program by its name.

    A file may also be the description of a service by OpenAPI 3, in YAML or JSON; see `openapi`.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = existing_file(Path(name), "catalogue") if is_file_name(name) else _shipped(name)
    try:
        plain = cast("object", yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
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
