"""`autoclave plan`."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from autoclave.cli.settings import resolve, takes_settings, takes_short_options
from autoclave.config import TrainConfig
from autoclave.core import HostError, InputError


@click.command()
@takes_settings
@takes_short_options
@click.option(
    "--prompt-tokens", type=click.IntRange(min=1), help="Longest prompt; by default all that a response leaves."
)
@click.option(
    "--response-tokens", type=click.IntRange(min=1), help="Longest response; by default what the settings allow."
)
@click.option("--calibrate", is_flag=True, help="Run a few iterations, and recommend a schedule and a split.")
@click.option(
    "--from",
    "runs",
    metavar="RUN",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Use the timeline of this run in place of new ones; may be given several times.",
)
@click.option(
    "--iterations", type=click.IntRange(min=2), default=4, show_default=True, help="Iterations of a calibration."
)
@click.option(
    "--devices", type=click.IntRange(min=1), help="Number of processes to split; those of the pools by default."
)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder for plan.json; runs/<name> by default.")
@click.option("--check", is_flag=True, help="List what train would refuse on this machine; loads torch.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    settings: tuple[str, ...],
    prompt_tokens: int | None,
    response_tokens: int | None,
    calibrate: bool,
    runs: tuple[Path, ...],
    iterations: int,
    devices: int | None,
    out: Path | None,
    check: bool,
    as_json: bool,
    **short: object,
) -> None:
    """Estimate what a run needs: prompts, samples, tokens, optimizer steps, and memory on each device.

    Nothing is loaded; of a model on the hub only its config.json is read. With --calibrate or --from, estimates the
    time of an iteration under each schedule, on each split of the processes.

    Example: autoclave plan recipes/demo.yaml --prompt-tokens 48 group_size=16
    """
    if runs and not any("=" not in text for text in settings):
        settings = (str(_config_of(runs[0])), *settings)
    config = resolve(TrainConfig, settings, short).config
    if calibrate or runs:
        _plan_schedule(config, runs, out, iterations=iterations, devices=devices, as_json=as_json)
        return
    from autoclave.planning.accounting.plan import plan_for
    from autoclave.planning.accounting.text import describe_plan

    found = plan_for(config, prompt_tokens=prompt_tokens, response_tokens=response_tokens)
    refusals = _refusals(config, out or Path("runs") / config.name) if check else []
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found) | ({"refusals": refusals} if check else {}), indent=2))
    else:
        click.echo("\n".join([describe_plan(found, config), *(f"train refuses it here: {line}" for line in refusals)]))


def _refusals(config: TrainConfig, out: Path) -> list[str]:
    """Report what `train` would refuse on this machine before it loads anything."""
    from autoclave.compose.preflight import preflight

    try:
        preflight(config, out)
    except (InputError, HostError) as error:
        first, *several = str(error).splitlines()
        return [line.removeprefix("- ") for line in several] or [first]
    return []


def _config_of(run: Path) -> Path:
    path = run / "config.yaml"
    if not path.is_file():
        raise InputError(f"--from: {run} is not the folder of a run (no config.yaml)")
    return path


def _plan_schedule(
    config: TrainConfig, runs: Sequence[Path], out: Path | None, *, iterations: int, devices: int | None, as_json: bool
) -> None:
    from autoclave.compose.plan_from_runs import describe_schedule_plan, plan_from
    from autoclave.core.json import to_plain
    from autoclave.planning.schedule_plan import write_plan

    def say(line: str) -> None:
        click.echo(line, err=True)

    if runs:
        timed = nullcontext(list(runs))
    else:
        from autoclave.compose.plan_from_runs import calibration_runs

        timed = calibration_runs(config, iterations=iterations, say=say)
    settings = config.model_dump(mode="json")
    with timed as folders:
        found = plan_from(settings, folders, devices=devices)
    path = write_plan(found, out or (runs[0] if runs else Path("runs") / config.name))
    click.echo(
        json.dumps(to_plain(found), indent=2)
        if as_json
        else "\n".join([*describe_schedule_plan(found, settings), f"written to {path}"])
    )
