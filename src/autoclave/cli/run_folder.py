"""Commands that read the folder of a run: `autoclave report`, `view`, `timeline` and `export`."""

import json
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.core import HostError, InputError

if TYPE_CHECKING:
    from autoclave.runs.timeline import RoleTimes

_COLUMNS = ("busy/sampler", "busy/judge", "busy/trainer", "hidden/reward", "hidden/trainer")


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


@click.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write a Chrome trace of the steps to this file.")
@click.option("--steps", "chosen", metavar="STEPS", help="Steps, such as 3-5 or 1,10,20-; all by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the shares as JSON.")
def timeline(run_folder: Path, out: Path | None, chosen: str | None, as_json: bool) -> None:
    """Print how busy sampler, judge and trainer were, and export a trace.

    Open the trace with chrome://tracing or https://ui.perfetto.dev. `hidden` is the share of the time
    of rewards and of the trainer during which the sampler was busy too.

    Example: autoclave timeline runs/demo --steps 3-5 --out trace.json
    """
    from autoclave.runs.timeline import read_steps, role_times, spans_during, timeline_steps, together, write_trace

    steps = _chosen(timeline_steps(run_folder), chosen, run_folder)
    times = {
        each.step: role_times(spans_during(run_folder, each), each.window)
        for each in read_steps(run_folder, [step for step in steps if step])  # step 0 is before training
    }
    whole = together(list(times.values()))
    found = {"steps": {step: _figures(of_step) for step, of_step in times.items()}, "together": _figures(whole)}
    if out:
        found |= {"path": str(out), "spans": write_trace(read_steps(run_folder, steps), out)}
    for line in [json.dumps(found)] if as_json else _table(found):
        click.echo(line)


def _chosen(present: list[int], chosen: str | None, run_folder: Path) -> list[int]:
    """Return the steps that `chosen` names among those with a timeline."""
    if not run_folder.is_dir():
        raise InputError(f"run folder {run_folder}: no such folder. Fix: give the folder that `autoclave train` wrote")
    if not present:
        raise InputError(f"{run_folder}: has no timeline. Fix: give a run of `autoclave train`")
    if chosen is None:
        return present
    wanted: set[int] = set()
    for part in chosen.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise InputError(f"--steps {chosen}: {part!r} must be a step or a range. Fix: write 3, 3-5, 3- or 1,4-6")
        low, high = int(first), int(last) if last else present[-1] if dash else int(first)
        if not any(low <= step <= high for step in present):
            raise InputError(
                f"--steps {chosen}: no step of {part} has a timeline; steps {present[0]} to {present[-1]} do"
            )
        wanted |= {step for step in present if low <= step <= high}
    return sorted(wanted)


def _figures(times: "RoleTimes") -> dict[str, Any]:
    from autoclave.runs.timeline import share_metrics

    shares = dict.fromkeys(_COLUMNS) | share_metrics(times)
    return {"seconds": times.window_s, **shares, "bottleneck": times.bottleneck if times.window_s else None}


def _table(found: dict[str, Any]) -> Iterator[str]:
    yield f"{'step':>8} {'seconds':>9} {' '.join(f'{name:>14}' for name in _COLUMNS)}  bottleneck"
    for name, figures in (*found["steps"].items(), ("together", found["together"])):
        shares = ("" if figures[column] is None else f"{100 * figures[column]:.1f}%" for column in _COLUMNS)
        columns = " ".join(f"{share:>14}" for share in shares)
        yield f"{name:>8} {figures['seconds']:>9.2f} {columns}  {figures['bottleneck'] or ''}".rstrip()
    if "path" in found:
        yield f"{found['path']}: {found['spans']} spans"
