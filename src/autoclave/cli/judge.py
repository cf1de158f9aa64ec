"""`autoclave judge`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.compose.host import build_judge
from autoclave.config import JudgeRunConfig
from autoclave.core import IncompleteError
from autoclave.judge import judge_file, trace_file
from autoclave.judge.trace_files import refuse_to_overwrite


@click.command()
@click.argument("problems", type=click.Path(path_type=Path))
@click.argument("programs", type=click.Path(path_type=Path))
@takes_settings
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File for the verdicts (JSONL).")
@click.option("--traces", type=click.Path(path_type=Path), help="File for traces of the wrong answers (JSONL).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def judge(
    problems: Path, programs: Path, settings: tuple[str, ...], out: Path, traces: Path | None, as_json: bool
) -> None:
    """Judge the programs of a JSONL file on the tests of a problem file.

    \b
    Settings: judge.*, sandbox.*, extraction, answer, tests, stop_at_failure.
    Example: autoclave judge problems.jsonl programs.jsonl --out verdicts.jsonl judge.workers=2
    """
    config = resolve(JudgeRunConfig, settings).config
    if traces:
        refuse_to_overwrite(traces, problems, programs, out)
    with build_judge(config.judge, config.sandbox) as engine:
        counts = judge_file(
            engine,
            problems,
            programs,
            out,
            extraction=config.extraction,
            answer=config.answer,
            tests=config.tests,
            stop_at_failure=config.stop_at_failure,
            pending_limit=config.judge.pending_limit,
        )
        traced: dict[str, int] = {}
        if traces:
            limit = config.judge.pending_limit
            traced = trace_file(
                engine, problems, programs, out, traces, extraction=config.extraction, pending_limit=limit
            )
    total = sum(counts.values())
    if as_json:
        click.echo(json.dumps(counts | ({"traces": traced} if traces else {})))
    else:
        _show(f"{total} programs judged; verdicts in {out}", counts)
        if traces:
            _show(f"{sum(traced.values())} wrong answers; traces in {traces}", traced)
    if counts.get("no_verdict"):
        raise IncompleteError(f"{counts['no_verdict']} of {total} programs have no verdict; see `fault` in {out}")
    if traced.get("no_trace"):
        raise IncompleteError(f"{traced['no_trace']} wrong answers have no trace; see `fault` in {traces}")


def _show(headline: str, counts: dict[str, int]) -> None:
    click.echo(headline)
    for status, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        click.echo(f"  {status:<16}{count:>8}")
