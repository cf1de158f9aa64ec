"""`autoclave train` and `autoclave sft`."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings, takes_short_options
from autoclave.config import TrainConfig
from autoclave.core import ConfigError


@click.command()
@takes_settings
@takes_short_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the run; runs/<name> by default.")
@click.option("--resume", is_flag=True, help="Continue from the newest checkpoint in the folder.")
@click.option("--fresh", is_flag=True, help="Repeat the SFT warm start even if it is in the cache.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check the recipe and train it in miniature, in a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, or the table of a dry run, as JSON.")
def train(
    settings: tuple[str, ...], out: Path | None, resume: bool, fresh: bool, is_dry: bool, as_json: bool, **short: Any
) -> None:
    """Train a policy by reinforcement learning.

    Example: autoclave train recipes/demo.yaml --steps 20 optimizer.learning_rate=3e-4
    """
    config = resolve(TrainConfig, settings, short).config
    if is_dry:
        if resume:
            raise ConfigError("--dry-run --resume: a dry run has nothing to resume. Fix: leave out one of them")
        _dry_run(config, out, as_json=as_json)
        return
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
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/demo"), help="Folder of the run.")
@click.pass_context
def demo(context: click.Context, settings: tuple[str, ...], out: Path) -> None:
    """Train the embedded policy from random weights, in minutes on 2 cores: SFT warm start, then RL.

    It is `autoclave train demo --fresh`.

    Example: autoclave demo steps=20
    """
    context.invoke(train, settings=("demo", *settings), out=out, fresh=True)


def _dry_run(config: TrainConfig, out: Path | None, *, as_json: bool) -> None:
    """Print the table of a dry run. Its files are kept only in the folder `out`."""
    from autoclave.compose.dry_run import describe, dry_run, to_json

    with TemporaryDirectory(prefix="autoclave-dry-run-") as folder:
        small, rows = dry_run(config, out or Path(folder), say=lambda line: click.echo(line, err=as_json))
    click.echo(json.dumps(to_json(rows, config, small), indent=2) if as_json else describe(rows, config, small))


@click.command()
@takes_settings
@click.option("--seed", type=int, help="Random seed.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the model.")
@click.option("--resume", is_flag=True, help="Continue from the newest checkpoint in the folder.")
def sft(settings: tuple[str, ...], out: Path, resume: bool, seed: int | None) -> None:
    """Fine-tune a policy on demonstrations and write it in Hugging Face form.

    Example: autoclave sft recipes/demo.yaml sft.steps=200 --out runs/warm
    """
    config = resolve(TrainConfig, settings, {"seed": seed}).config
    from autoclave.compose.warm_start import fine_tune

    fine_tune(config, out, resume=resume, say=click.echo)
