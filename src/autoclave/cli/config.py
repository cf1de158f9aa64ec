"""`autoclave config show`."""

from __future__ import annotations

import json

import click

from autoclave.cli.settings import resolve, takes_settings, takes_short_options
from autoclave.config import TrainConfig


@click.group()
def config() -> None:
    """Look at settings.

    Example: autoclave config show recipes/demo.yaml
    """


@config.command()
@takes_settings
@takes_short_options
@click.option("--json", "as_json", is_flag=True, help="Print path, value and origin as JSON.")
def show(settings: tuple[str, ...], as_json: bool, **short: object) -> None:
    """Print every setting of a recipe, resolved, with where its value comes from.

    Example: autoclave config show recipes/demo.yaml --algorithm grpo
    """
    rows = list(resolve(TrainConfig, settings, short).lines())
    if as_json:
        click.echo(json.dumps({path: {"value": value, "origin": origin} for path, value, origin in rows}, indent=2))
        return
    width = max(len(f"{path} = {json.dumps(value)}") for path, value, _ in rows)
    for path, value, origin in rows:
        click.echo(f"{f'{path} = {json.dumps(value)}':<{min(width, 64)}}  # {origin}")
