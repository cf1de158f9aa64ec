"""How tables, and what else has a name in a database, are called: `SCHEMA/NAME`, each part meaning one name only. Pure.

In grants, footprints, images and what is kept, a slash parts names, and `*` and `?` are patterns. So these signs are
written with percent signs where they are in a name itself, and nothing else is: `main/a%2Fb` is the table `a/b`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_ODD = re.compile(r"[%/*?\x00-\x1f\x7f]")


def place_of(schema: str, name: str) -> str:
    """How something in a schema is called."""
    return f"{spelt(schema)}/{spelt(name)}"


def names_of(place: str) -> tuple[str, str]:
    """The schema and the name of what is called so."""
    schema, _, name = place.partition("/")
    return unquote(schema), unquote(name)


def name_of(place: str) -> str:
    """The name of what is called so, without its schema."""
    return names_of(place)[1]


def table_of(key: str) -> str:
    """The place of the table that a key (`SCHEMA/NAME` or `SCHEMA/NAME/ROW`) is about."""
    return "/".join(key.split("/")[:2])


def spelt(name: str) -> str:
    """A name as one part of a path."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return _ODD.sub(lambda found: f"%{ord(found[0]):02X}", name)
