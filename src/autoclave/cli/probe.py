"""`autoclave probe`."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import TrainConfig
from autoclave.core import IncompleteError, InputError
from autoclave.core.json import shown


@click.command()
@takes_settings
@click.option(
    "--model", "models", metavar="[NAME=]FOLDER", multiple=True, required=True, help="A model; may be given again."
)
@click.option("--problems", type=click.Path(path_type=Path), help="Problem file; the recipe's held-out set by default.")
@click.option("--count", type=click.IntRange(min=1), help="Problems, the first ones; all by default.")
@click.option("--examples", type=click.IntRange(min=2), help="Most examples of a problem; all by default.")
@click.option(
    "--test-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of the examples of a problem that probes are tested on.",
)
@click.option("--epochs", type=click.IntRange(min=1), default=10, show_default=True, help="Epochs of the regression.")
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-3,
    show_default=True,
    help="Learning rate of the regression (Adam).",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True, help="Examples of a batch.")
@click.option("--standardise", is_flag=True, help="Standardise hidden units to mean 0 and deviation 1.")
@click.option(
    "--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Temperature; 0 is greedy."
)
@click.option("--seed", type=int, help="Random seed; the recipe's by default.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/probe"),
    show_default=True,
    help="Folder for probe.json and probe.html.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def probe(
    settings: tuple[str, ...],
    models: tuple[str, ...],
    problems: Path | None,
    count: int | None,
    examples: int | None,
    test_share: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    standardise: bool,
    temperature: float,
    seed: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Measure by linear probes how well each layer of a model predicts what its programs compute.

    The model writes a program for each example of a problem, which runs sealed on it; probes predict the final value of
    each numerical variable from the hidden states at its name. The exit code is 1 if a model wrote no usable program.

    Example: autoclave probe recipes/demo.yaml --model before=runs/demo/start --model after=runs/demo/model
    """
    config = resolve(TrainConfig, settings, {"seed": seed}).config
    named = _named(models)
    from autoclave.compose.probe import ProbeOptions
    from autoclave.compose.probe import probe as measure
    from autoclave.evaluation.probing.regression import Fitting
    from autoclave.evaluation.probing.report import describe
    from autoclave.report.probe import write_probe

    fitting = Fitting(epochs, learning_rate, batch_size, standardise)
    options = ProbeOptions(fitting, test_share, temperature, count, examples)
    found = measure(config, named, options, problems=problems, say=lambda line: click.echo(line, err=True))
    paths = write_probe(found, out)
    click.echo(
        json.dumps(found.to_json(), indent=2)
        if as_json
        else f"{describe(found)}\n\nwritten to {' and '.join(map(str, paths))}"
    )
    if found.unmeasured:
        raise IncompleteError(
            f"{', '.join(found.unmeasured)}: no variable to train or test probes on. Fix: use more problems or examples"
        )


def _named(models: Sequence[str]) -> dict[str, Path]:
    """Return the folders by name; the default name is that of the folder."""
    found: dict[str, Path] = {}
    for text in models:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).is_dir():
            name, folder = Path(text).resolve().name, text
        if not name or not folder:
            raise InputError(f"--model {shown(text)}: must be FOLDER or NAME=FOLDER")
        if name in found:
            raise InputError(f"--model {shown(text)}: is a second model {shown(name)}. Fix: --model NAME={folder}")
        found[name] = Path(folder)
    return found
