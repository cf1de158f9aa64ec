"""Recipe and settings of commands: `RECIPE`, `a.b=value` anywhere, and short options for the common ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import click

from autoclave.config import Config, Override, Resolved, TrainConfig, load, parse_override
from autoclave.config.model_fit import require_recipe_of_model
from autoclave.config.recipe import find_recipe
from autoclave.core import ConfigError
from autoclave.core.json import shown

C = TypeVar("C", bound=Config)
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

    Raises:
        ConfigError: two recipes, a setting that cannot be used, or a recipe that does not suit the model.
    """
    recipes = [text for text in settings if "=" not in text]
    if len(recipes) > 1:
        raise ConfigError(f"{shown(recipes[1])}: is a second recipe. Fix: give one; settings have the form KEY=VALUE")
    overrides = [
        Override(SHORT[name], value, f"--{name}") for name, value in (short or {}).items() if value is not None
    ]
    overrides += [parse_override(text) for text in settings if "=" in text]
    recipe = find_recipe(recipes[0]) if recipes else None
    found = load(schema, recipe, overrides)
    if isinstance(found.config, TrainConfig):
        require_recipe_of_model(cast("Resolved[TrainConfig]", found), recipe)
    return found
