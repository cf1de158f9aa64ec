"""`autoclave config show` and `autoclave config import`."""

import json
from pathlib import Path

import click

from autoclave.cli.settings import resolve, takes_settings, takes_short_options
from autoclave.config import TrainConfig
from autoclave.core.plugins import find_plugin

FRAMEWORKS = ("verl", "trl", "trl-rloo", "openrlhf", "prime-rl")


@click.group()
def config() -> None:
    """Show settings, and import those of other frameworks.

    Example: autoclave config show recipes/demo.yaml
    """


@config.command()
@takes_settings
@takes_short_options
@click.option("--json", "as_json", is_flag=True, help="Print path, value and origin as JSON.")
def show(settings: tuple[str, ...], as_json: bool, **short: object) -> None:
    """Print every setting of a recipe with its value and origin.

    Example: autoclave config show recipes/demo.yaml --algorithm grpo
    """
    resolved = resolve(TrainConfig, settings, short)
    _require_plugins(resolved.config)
    rows = list(resolved.lines())
    if as_json:
        click.echo(json.dumps({path: {"value": value, "origin": origin} for path, value, origin in rows}, indent=2))
        return
    width = max(len(f"{path} = {json.dumps(value)}") for path, value, _ in rows)
    for path, value, origin in rows:
        click.echo(f"{f'{path} = {json.dumps(value)}':<{min(width, 64)}}  # {origin}")


def _require_plugins(config: TrainConfig) -> None:
    """Load the implementations that other packages have of the choices of `config`.

    Raises HostError: one is missing, or cannot be loaded. ConfigError: an algorithm or an estimator cannot be built
    with its settings.
    """
    algorithm = config.algorithm
    if _is_plugin(algorithm) or _is_plugin(getattr(algorithm, "advantage", None)):
        from autoclave.algorithms import build_algorithm

        build_algorithm(algorithm)
    for setting, group, chosen in (
        ("task.name", "autoclave.tasks", config.task),
        ("sampler.engine.name", "autoclave.engines", config.sampler.engine),
    ):
        if _is_plugin(chosen):
            find_plugin(group, chosen.name, setting)


def _is_plugin(settings: object) -> bool:
    return settings is not None and not type(settings).__module__.startswith("autoclave.")


@config.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "framework", type=click.Choice(FRAMEWORKS), help="The framework; by default it is recognised.")
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the TRL run.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the recipe here, and print what differs.")
@click.option("--json", "as_json", is_flag=True, help="Print settings and what differs as JSON.")
def import_settings(file: Path, framework: str | None, processes: int, out: Path | None, as_json: bool) -> None:
    """Turn settings of verl, TRL, OpenRLHF or prime-rl into a recipe.

    FILE is YAML, JSON or TOML, or a script with the command line of the run. Comments of the recipe list the
    settings that mean something else here or have no counterpart.

    Example: autoclave config import grpo_config.yaml --from trl --out recipe.yaml
    """
    from autoclave.config.foreign_files import read_foreign
    from autoclave.config.importing import convert, detect
    from autoclave.core.files import write_atomically

    found = read_foreign(file)
    result = convert(found, framework or detect(found), processes)
    if out:
        write_atomically(out, result.recipe(str(file)))
    if as_json:
        click.echo(json.dumps(result.as_json(), indent=2))
    else:
        click.echo("\n".join(result.report()) if out else result.recipe(str(file)), nl=bool(out))
