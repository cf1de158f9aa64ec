"""Recipe and settings of commands: `RECIPE`, `a.b=value` anywhere, and short options for the common ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autoclave.core import ConfigError

if TYPE_CHECKING:
    from autoclave.config import Config, Resolved

C = TypeVar("C", bound="Config")
F = TypeVar("F", bound=Callable[..., Any])

SHORT = {
    "algorithm": "algorithm.name",
    "schedule": "schedule.name",
    "engine": "sampler.engine.name",
    "steps": "steps",
    "seed": "seed",
}
"""Settings by short option."""


def takes_settings(command: F) -> F:
    return click.argument("settings", nargs=-1, metavar="[RECIPE] [KEY=VALUE]...")(command)


def takes_short_options(command: F) -> F:
    for option, kind, text in (
        ("--seed", int, "Random seed."),
        ("--steps", int, "Steps of reinforcement learning."),
        ("--engine", str, "Sampling engine."),
        ("--schedule", str, "Order of sampling, training and weight sync."),
        ("--algorithm", str, "Learning algorithm, with its default settings."),
    ):
        command = click.option(option, type=kind, help=text)(command)
    return command


def resolve(schema: type[C], settings: Sequence[str], short: Mapping[str, Any] | None = None) -> Resolved[C]:
    """Return the configuration of a command line. Short options apply before `KEY=VALUE` settings.

    Raises ConfigError: two recipes, a setting that cannot be used, or a recipe that does not suit the model.
    """
    from autoclave.config import Override, load, parse_override

    recipes = [text for text in settings if "=" not in text]
    if len(recipes) > 1:
        from autoclave.core.json import shown

        raise ConfigError(f"{shown(recipes[1])}: is a second recipe. Fix: give one; settings have the form KEY=VALUE")
    overrides = [
        Override(SHORT[name], value, f"--{name}") for name, value in (short or {}).items() if value is not None
    ]
    overrides += [parse_override(text) for text in settings if "=" in text]
    if not recipes:
        return load(schema, None, overrides)
    from autoclave.config.model_fit import require_recipe_of_model
    from autoclave.config.recipe import find_recipe

    found = load(schema, recipe := find_recipe(recipes[0]), overrides)
    require_recipe_of_model(found, recipe)
    return found
