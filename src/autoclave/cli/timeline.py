"""`autoclave timeline`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.core import InputError

if TYPE_CHECKING:
    from autoclave.runs.timeline import RoleTimes

_COLUMNS = ("busy/sampler", "busy/judge", "busy/trainer", "hidden/reward", "hidden/trainer")


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
    from autoclave.runs.timeline import (
        read_steps,
        role_times,
        spans_during,
        timeline_steps,
        together,
        write_trace,
    )

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


def _figures(times: RoleTimes) -> dict[str, Any]:
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
