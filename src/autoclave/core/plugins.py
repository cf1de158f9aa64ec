"""Choices that installed packages add to the built-in ones, by entry points. The only place that reads these."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from autoclave.core.errors import HostError
from autoclave.core.json import shown


def plugin_names(group: str) -> list[str]:
    """Return the names that installed packages have in the entry-point group, sorted."""
    return sorted(entry_points(group=group).names)


def find_plugin(group: str, name: str, setting: str, built_in: Iterable[str] = ()) -> Any:
    """Return the object that the entry point `name` of `group` refers to.

    Args:
        group: the entry-point group.
        name: the value of `setting`.
        setting: what chose it, for messages.
        built_in: the other values that the setting can have.

    Raises:
        HostError: no installed package has it, several have, or its code fails when it is imported.
    """
    place, found = f"{setting} = {shown(name)}", list(entry_points(group=group, name=name))
    if not found:
        known = ", ".join(sorted([*built_in, *plugin_names(group)])) or "none"
        raise HostError(
            f"{place}: no installed package has it; there are {known}. "
            f"Fix: install the package that has the entry point {name} in {group}"
        )
    if len(found) > 1:
        found = [each for each in found if each.dist and each.dist.name == "autoclave"] or found
    if len(found) > 1:
        raise HostError(f"{place}: {' and '.join(map(package_of, found))} have it. Fix: uninstall one")
    try:
        return found[0].load()
    except Exception as error:
        raise HostError(
            f"{place}: {source_of(found[0])} cannot be loaded ({type(error).__name__}: {error}). "
            f"Fix: repair or uninstall {package_of(found[0])}"
        ) from error


def source_of(entry: EntryPoint) -> str:
    return f"entry point {entry.group}: {entry.name} = {entry.value}"


def package_of(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist else "its package"
