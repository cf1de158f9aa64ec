"""`autoclave launch`."""

from pathlib import Path
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import TrainConfig


@click.command()
@takes_settings
@click.option("--slurm", "kind", flag_value="slurm", help="Write a batch script for Slurm.")
@click.option("--rayjob", "kind", flag_value="rayjob", help="Write a RayJob for KubeRay.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the files; launch/<name> by default.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes; by default the fewest that hold the pools.")
@click.option("--gpus-per-node", type=click.IntRange(min=0), default=8, show_default=True, help="GPUs of a node.")
@click.option("--cpus-per-node", type=click.IntRange(min=1), default=64, show_default=True, help="Cores of a node.")
@click.option("--time", help="Slurm: time limit of the job; 24:00:00 by default.")
@click.option("--grace", type=click.IntRange(min=1), help="Slurm: seconds to end an iteration in; 1800 by default.")
@click.option(
    "--setup", metavar="LINE", multiple=True, help="Slurm: shell line to run first; may be given several times."
)
@click.option("--image", help="KubeRay: container image with autoclave and its extras.")
@click.option("--claim", help="KubeRay: persistent volume claim, mounted at /workspace; autoclave by default.")
def launch(
    settings: tuple[str, ...],
    kind: str | None,
    out: Path | None,
    nodes: int | None,
    gpus_per_node: int,
    cpus_per_node: int,
    **options: Any,
) -> None:
    """Write the files that start a run on a cluster, from its recipe.

    Example: autoclave launch recipes/ppo-small.yaml --slurm --gpus-per-node 0
    """
    if kind is None:
        raise click.UsageError("give --slurm or --rayjob")
    config = resolve(TrainConfig, settings).config
    from autoclave.compose.launch import write_launch_files

    given = {name: value for name, value in options.items() if value}
    lines = write_launch_files(
        config, kind, out or Path("launch") / config.name, nodes, gpus_per_node, cpus_per_node, given
    )
    click.echo("\n".join(lines))
