"""`autoclave report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run_folder", type=click.Path(path_type=Path))
def report(run_folder: Path) -> None:
    """Write report.html of a run, finished or not, into its folder.

    Example: autoclave report runs/demo
    """
    from autoclave.training.report import write_report

    click.echo(write_report(run_folder))
