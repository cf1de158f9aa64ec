"""`autoclave run`."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TextIO

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import JudgeRunConfig
from autoclave.core import Ended, InputError, Outcome, Program
from autoclave.core.files import existing_file
from autoclave.judge import run_program

_LANGUAGES = {".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@takes_settings
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON instead of the program's output.")
def run(file: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Run one program sealed, with the standard input of this command.

    A file that ends in .cpp, .cc or .cxx is C++, any other Python. Its output passes through. The exit code is 0 if
    the program exited with 0, else 1.

    \b
    Settings: judge.*, sandbox.*.
    Example: echo "3 4" | autoclave run sum.py
    """
    config = resolve(JudgeRunConfig, settings).config
    if config.judge.backend != "local":
        raise InputError(
            f"judge.backend = {config.judge.backend}: this command runs on this machine. Fix: judge.backend=local"
        )
    try:
        source = existing_file(file, "program").read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"program {file}: not UTF-8 ({error.reason} at byte {error.start})") from None
    given: TextIO | None = sys.stdin  # None where the caller closed it
    stdin = given.buffer.read() if given and not given.isatty() else b""
    outcome = run_program(
        config.sandbox,
        Program(source, _LANGUAGES.get(file.suffix, "python")),
        stdin,
        time_limit_s=config.judge.default_time_limit_s,
        judge_config=config.judge,
    )
    if as_json:
        click.echo(json.dumps(_plain(outcome), indent=2))
    else:
        sys.stdout.buffer.write(outcome.stdout)
        sys.stdout.buffer.flush()
        sys.stderr.buffer.write(outcome.stderr)
        sys.stderr.buffer.flush()
        if outcome.ended is not Ended.EXITED:
            click.echo(f"ended: {outcome.ended} {outcome.detail}".rstrip(), err=True)
    sys.exit(0 if outcome.ended is Ended.EXITED and outcome.exit_code == 0 else 1)


def _plain(outcome: Outcome) -> dict[str, object]:
    fields = dataclasses.asdict(outcome)
    return fields | {name: fields[name].decode("utf-8", errors="replace") for name in ("stdout", "stderr")}
