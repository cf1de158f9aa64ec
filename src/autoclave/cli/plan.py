"""`autoclave plan`."""

from __future__ import annotations

import dataclasses
import json

import click

from autoclave.cli.settings import resolve, takes_settings, takes_short_options
from autoclave.config import TrainConfig


@click.command()
@takes_settings
@takes_short_options
@click.option(
    "--prompt-tokens", type=click.IntRange(min=1), help="Longest prompt; by default all that a response leaves."
)
@click.option(
    "--response-tokens", type=click.IntRange(min=1), help="Longest response; by default what the settings allow."
)
@click.option("--json", "as_json", is_flag=True, help="Print counts and bytes as JSON.")
def plan(
    settings: tuple[str, ...], prompt_tokens: int | None, response_tokens: int | None, as_json: bool, **short: object
) -> None:
    """Say what a run asks for: prompts, samples, tokens, optimizer steps, and memory on each device.

    Nothing is loaded; of a model on the hub only its config.json is read.

    Example: autoclave plan recipes/demo.yaml --prompt-tokens 48 group_size=16
    """
    from autoclave.training.accounting import describe_plan, plan_for

    config = resolve(TrainConfig, settings, short).config
    found = plan_for(config, prompt_tokens=prompt_tokens, response_tokens=response_tokens)
    click.echo(json.dumps(dataclasses.asdict(found), indent=2) if as_json else describe_plan(found))
