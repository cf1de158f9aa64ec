"""`autoclave view`."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import click

from autoclave.core import HostError


@click.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), help="Run folder to compare with.")
@click.option("--against-step", type=int, help="Step to compare with, of --against or of RUN itself.")
@click.option("--step", "steps", type=int, multiple=True, help="Show this step; may be given several times.")
@click.option(
    "--problem", "problems", multiple=True, help="Show rollouts of this problem only; may be given several times."
)
@click.option("--limit", type=click.IntRange(min=1), help="Most rollouts on the page; 200 by default.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the page; view.html in RUN by default.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print path and counts as JSON.")
def view(
    run_folder: Path,
    against: Path | None,
    against_step: int | None,
    steps: tuple[int, ...],
    problems: tuple[str, ...],
    limit: int | None,
    out: Path | None,
    opens: bool,
    as_json: bool,
) -> None:
    """Write a page of rollouts: tokens, verdicts, advantages, and the differences between two steps or runs.

    By default of the first and the last step; with --problem of all steps; with --against of the last step that both
    runs have.

    Example: autoclave view runs/demo --step 50 --against-step 1
    """
    from autoclave.report.view import Request, write_view

    request = Request(run_folder, against, against_step, steps, problems, **({"limit": limit} if limit else {}))
    written = write_view(request, out)
    if as_json:
        counts = {"shown": written.num_shown, "found": written.num_found}
        click.echo(json.dumps({"path": str(written.path), **counts}))
    else:
        click.echo(f"{written.path}: {written.num_shown} of {written.num_found} rollouts")
    if opens and not webbrowser.open(written.path.resolve().as_uri()):
        raise HostError(f"--open: no browser found. Fix: open {written.path} yourself")
