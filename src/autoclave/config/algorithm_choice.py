"""Which algorithms can be chosen: ours, and those of installed packages.

A package brings the settings of an algorithm by the entry point `autoclave.algorithm_settings`, without torch; what
they mean is a second entry point of the same name in `autoclave.algorithms` (see `autoclave.algorithms.choices`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from autoclave.config.algorithm import (
    AlgorithmSettings,
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    GrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
)

ENTRY_POINTS = "autoclave.algorithm_settings"

BUILT_IN = (
    PpoConfig,
    GrpoConfig,
    GrpoPlusConfig,
    DapoConfig,
    DrGrpoConfig,
    RlooConfig,
    ReinforcePlusPlusConfig,
    GspoConfig,
    CispoConfig,
)


def installed_settings() -> Iterator[type[AlgorithmSettings]]:
    """The settings of algorithms of installed packages, in order of their names.

    One that cannot be used is left out with a warning: it must not keep others from working. Built-in names stay ours.
    """
    taken = {_name(schema) for schema in BUILT_IN}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            schema = _usable(entry, taken)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            source = f"entry point {ENTRY_POINTS}: {entry.name} = {entry.value}"
            warnings.warn(f"{source} is left out: {error}; fix or uninstall the package", stacklevel=2)
            continue
        taken.add(entry.name)
        yield schema


def _usable(entry: EntryPoint, taken: set[Any]) -> type[AlgorithmSettings]:
    if entry.module in sys.modules and not hasattr(sys.modules[entry.module], entry.attr):
        raise ImportError(f"{entry.module} is being imported; its package must import autoclave.config before it")
    schema = entry.load()
    if not (isinstance(schema, type) and issubclass(schema, AlgorithmSettings)):
        raise TypeError("it is not a class that derives from AlgorithmSettings")
    if _name(schema) != entry.name:
        raise ValueError(f'its field `name` must be Literal["{entry.name}"] = "{entry.name}"')
    if entry.name in taken:
        raise ValueError("an algorithm of this name is there already")
    return schema


def _name(schema: type[AlgorithmSettings]) -> Any:
    return schema.model_fields["name"].default


if TYPE_CHECKING:
    AlgorithmConfig = AlgorithmSettings
else:  # which classes there are is known only here
    AlgorithmConfig = Annotated[Union[(*BUILT_IN, *installed_settings())], Field(discriminator="name")]
