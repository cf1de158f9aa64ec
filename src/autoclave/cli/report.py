"""`autoclave report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run_folder", type=click.Path(path_type=Path))
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Run folder to compare with; may be given several times.",
)
@click.option("--out", type=click.Path(path_type=Path), help="File for the page; in RUN_FOLDER by default.")
def report(run_folder: Path, against: tuple[Path, ...], out: Path | None) -> None:
    """Write report.html of a run, finished or not, into its folder.

    With --against it is comparison.html: the held-out curves, the final figures and the differing settings of all
    these runs on one page.

    Example: autoclave report runs/demo
    """
    from autoclave.report.run_report import write_comparison, write_report

    click.echo(write_comparison([run_folder, *against], out) if against else write_report(run_folder, out))
