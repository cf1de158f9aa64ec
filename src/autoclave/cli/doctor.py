"""`autoclave doctor`."""

from __future__ import annotations

import dataclasses
import json
import sys

import click

from autoclave import compose
from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import JudgeRunConfig


@click.command()
@takes_settings
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def doctor(settings: tuple[str, ...], as_json: bool) -> None:
    r"""Say what this machine offers for isolation, what is missing, and how to mend it.

    Exits with 3 when the configured level cannot be reached.

    \b
    Settings: sandbox.*.
    Example: autoclave doctor
    """
    config = resolve(JudgeRunConfig, settings).config
    checks, level, refusal = compose.examine_host(config.sandbox)
    if as_json:
        rows = [dataclasses.asdict(check) for check in checks]
        click.echo(json.dumps({"level": level, "refusal": refusal, "checks": rows}, indent=2))
    else:
        for check in checks:
            click.echo(f"{'ok     ' if check.is_present else 'missing'}  {check.name:<36} {check.why}")
            if not check.is_present:
                click.echo(f"{'':<9}mend: {check.mend}")
        click.echo(f"level: {level}" if level else f"level: none. {refusal}")
    sys.exit(0 if level else 3)
