"""`autoclave judge`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autoclave import compose
from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import JudgeRunConfig
from autoclave.core import IncompleteError
from autoclave.judge import judge_file


@click.command()
@click.argument("problems", type=click.Path(path_type=Path))
@click.argument("programs", type=click.Path(path_type=Path))
@takes_settings
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File for the verdicts (JSONL).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def judge(problems: Path, programs: Path, settings: tuple[str, ...], out: Path, as_json: bool) -> None:
    r"""Judge the programs of a JSONL file on the tests of a problem file.

    \b
    Settings: judge.*, sandbox.*, extraction, tests, stop_at_failure.
    Example: autoclave judge problems.jsonl programs.jsonl --out verdicts.jsonl judge.workers=2
    """
    config = resolve(JudgeRunConfig, settings).config
    with compose.build_judge(config.judge, config.sandbox) as engine:
        counts = judge_file(
            engine,
            problems,
            programs,
            out,
            extraction=config.extraction,
            tests=config.tests,
            stop_at_failure=config.stop_at_failure,
            pending_limit=config.judge.pending_limit,
        )
    total = sum(counts.values())
    if as_json:
        click.echo(json.dumps(counts))
    else:
        click.echo(f"{total} programs judged; verdicts in {out}")
        for status, count in sorted(counts.items(), key=lambda entry: -entry[1]):
            click.echo(f"  {status:<16}{count:>8}")
    if counts.get("no_verdict"):
        raise IncompleteError(f"{counts['no_verdict']} of {total} programs have no verdict; see `fault` in {out}")
