"""`autoclave evaluate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import TrainConfig


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@takes_settings
@click.option("--problems", type=click.Path(path_type=Path), help="Problem file; the recipe's held-out set by default.")
@click.option("--samples", type=click.IntRange(min=1), help="Responses per problem; the recipe's by default.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the result of every problem (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def evaluate(
    model: Path, settings: tuple[str, ...], problems: Path | None, samples: int | None, out: Path | None, as_json: bool
) -> None:
    """Measure pass@1, greedy and pass@k of the policy in folder MODEL.

    Example: autoclave evaluate runs/demo/model recipes/demo.yaml --samples 4
    """
    config = resolve(TrainConfig, settings).config
    from autoclave.compose.evaluation import evaluate as measure

    metrics = measure(config, model, problems=problems, samples=samples, out=out)
    click.echo(json.dumps(metrics, indent=2) if as_json else _table(metrics))


def _table(metrics: Mapping[str, Any]) -> str:
    samples = metrics["samples"]
    rows = [
        f"{metrics['problems']} problems, {samples} responses each at temperature {metrics['temperature']:g}",
        f"pass@1   {metrics['pass@1']:.3f}   95 % interval [{metrics['pass@1/low']:.3f}, {metrics['pass@1/high']:.3f}]",
        f"greedy   {metrics['greedy']:.3f}   95 % interval [{metrics['greedy/low']:.3f}, {metrics['greedy/high']:.3f}]",
        f"{f'pass@{samples}':<8} {metrics[f'pass@{samples}']:.3f}",
        f"truncated at {metrics['max_new_tokens']} tokens {metrics['truncated_share']:.1%}, "
        f"without a verdict {metrics['no_verdict_share']:.1%}",
        "",
        f"{'family':<16}{'problems':>9}{'pass@1':>9}{'greedy':>9}",
    ]
    for family, figures in metrics["families"].items():
        greedy = figures.get("greedy", float("nan"))
        rows.append(f"{family:<16}{figures['problems']:>9}{figures['pass@1']:>9.3f}{greedy:>9.3f}")
    return "\n".join(rows)
