"""Settings of choices that installed packages add to the built-in ones.

A package brings a settings class by an entry point, without torch. What it configures is a second entry point of the
same name in another group, loaded when it is used (`core.plugins.find_plugin`).
"""

import logging
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Union, get_args

from pydantic import Field

from autoclave.config.base import Config
from autoclave.core.plugins import package_of, source_of

Bases = tuple[type[Config], ...]
_log = logging.getLogger(__name__)


def with_plugins(group: str, built_in: Bases, *bases: type[Config]) -> Any:
    """Return the type of a block that is one of the `built_in` settings or of those in `group`, chosen by its `name`.

    A class in `group` derives from one of `bases`. One that cannot be used is left out with a warning, since it must
    not keep others from working. Built-in names cannot be taken.
    """
    return Annotated[Union[(*built_in, *_installed(group, built_in, bases))], Field(discriminator="name")]


def _installed(group: str, built_in: Bases, bases: Bases) -> Iterator[type[Config]]:
    taken = {_name(schema) for schema in built_in}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            schema = _usable(entry, bases, taken)
        except Exception as error:  # noqa: BLE001  the code of another package may raise anything
            reason = " ".join(str(error).split())
            _log.warning("%s is left out: %s. Fix: repair or uninstall %s", source_of(entry), reason, package_of(entry))
            continue
        taken.add(entry.name)
        yield schema


def _usable(entry: EntryPoint, bases: Bases, taken: set[Any]) -> type[Config]:
    if entry.module in sys.modules and not hasattr(sys.modules[entry.module], entry.attr):
        raise ImportError(
            f"{entry.module} is still being imported; its package must first import autoclave.config.choices"
        )
    try:
        schema = entry.load()
    except ImportError as error:
        if error.name != "autoclave.config":
            raise
        known = " or ".join(base.__name__ for base in bases)
        raise TypeError(f"{error}; settings of {entry.group} must derive from {known}") from error
    if not (isinstance(schema, type) and issubclass(schema, bases)):
        raise TypeError(f"it is not a class that derives from {' or '.join(base.__name__ for base in bases)}")
    if _name(schema) != entry.name or get_args(schema.model_fields["name"].annotation) != (entry.name,):
        raise ValueError(f'its field `name` must be Literal["{entry.name}"] = "{entry.name}"')
    if entry.name in taken:
        raise ValueError(f"the name {entry.name} is taken")
    return schema


def _name(schema: type[Config]) -> Any:
    return schema.model_fields["name"].default if "name" in schema.model_fields else None
