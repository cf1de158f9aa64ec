"""`autoclave train` and `autoclave sft`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings, takes_short_options
from autoclave.config import TrainConfig


@click.command()
@takes_settings
@takes_short_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the run; runs/<name> by default.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in the folder.")
@click.option("--fresh", is_flag=True, help="Do the warm start anew even if it is in the cache.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def train(settings: tuple[str, ...], out: Path | None, resume: bool, fresh: bool, as_json: bool, **short: Any) -> None:
    """Train a policy by reinforcement learning.

    Example: autoclave train recipes/demo.yaml --steps 20 optimizer.learning_rate=3e-4
    """
    config = resolve(TrainConfig, settings, short).config
    from autoclave.compose.training import train as run
    from autoclave.core.json import finite

    summary = run(
        config,
        out or Path("runs") / config.name,
        resume=resume,
        fresh=fresh,
        say=lambda line: click.echo(line, err=as_json),
    )
    if as_json:
        click.echo(json.dumps(finite(summary), indent=2))


@click.command()
@takes_settings
@click.option("--seed", type=int, help="Random seed.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the model.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in the folder.")
def sft(settings: tuple[str, ...], out: Path, resume: bool, seed: int | None) -> None:
    """Fine-tune a policy on demonstrations and write it in Hugging Face form.

    Example: autoclave sft recipes/demo.yaml sft.steps=200 --out runs/warm
    """
    config = resolve(TrainConfig, settings, {"seed": seed}).config
    from autoclave.compose.warm_start import fine_tune

    fine_tune(config, out, resume=resume, say=click.echo)
