"""Catalogues from files: those that come with this program, one's own, and descriptions of services in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from autoclave.config.recipe import parse_yaml
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
        plain: object = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: no YAML ({error})") from None
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
