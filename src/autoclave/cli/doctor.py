"""`autoclave doctor`."""

import dataclasses
import itertools
import json
import sys

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.compose.host import HostCheck, validate_host
from autoclave.config import JudgeRunConfig


@click.command()
@takes_settings
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def doctor(settings: tuple[str, ...], as_json: bool) -> None:
    """Check what this machine offers for isolation, and print the fix for what is missing.

    An item marked `missing` keeps its backend from starting; without an item marked `optional` it is weaker. The exit
    code is 3 if the configured level is not available.

    \b
    Settings: sandbox.*, judge.cpp.*.
    Example: autoclave doctor
    """
    config = resolve(JudgeRunConfig, settings).config
    checks, level, refusal = validate_host(config.sandbox, config.judge)
    if as_json:
        rows = [dataclasses.asdict(check) for check in checks]
        click.echo(json.dumps({"level": level, "refusal": refusal, "checks": rows}, indent=2))
    else:
        for section, found in itertools.groupby(checks, key=lambda check: check.section):
            click.echo(section)
            for check in found:
                _print(check)
        click.echo(f"level: {level}" if level else f"level: none. {refusal}")
    sys.exit(0 if level else 3)


def _print(check: HostCheck) -> None:
    """Print a check: its mark, name and reason, what was found, and the fix of a missing item."""
    mark = "ok" if check.is_present else "missing" if check.is_required else "optional"
    click.echo(f"  {mark:<8} {check.name:<34} {check.why}")
    if check.detail:
        click.echo(f"{'':<11}found: {check.detail}")
    if not check.is_present:
        click.echo(f"{'':<11}fix: {check.fix}")
