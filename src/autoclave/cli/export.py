"""`autoclave export`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--step", default="last", show_default=True, help="Step of the checkpoint, or last, or best.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the model.")
def export(run: Path, step: str, out: Path) -> None:
    """Write the policy of a checkpoint of the run in folder RUN in Hugging Face form.

    Example: autoclave export runs/demo --step best --out runs/best
    """
    from autoclave.compose.export import export as write_model

    write_model(run, out, which=step, say=click.echo)
