"""`autoclave trace`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO, cast

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.compose.host import build_judge
from autoclave.config import JudgeRunConfig
from autoclave.core import (
    CallCase,
    CallTests,
    InputError,
    Problem,
    Program,
    StdinCase,
    StdinTests,
    Tests,
    Trace,
    TraceStatus,
)
from autoclave.core.files import existing_file
from autoclave.core.json import shown, to_plain
from autoclave.judge import JudgeJob
from autoclave.judge.profiles import PROFILES


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@takes_settings
@click.option("--call", "entry_point", metavar="NAME", help="Call this function instead: `f`, or a method `Class.f`.")
@click.option("--arguments", metavar="JSON", help="With --call: the arguments, a JSON list.")
@click.option("--profile", type=click.Choice(list(PROFILES)), default="plain", help="Interpreter profile.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole trace as JSON.")
def trace(
    file: Path, settings: tuple[str, ...], entry_point: str | None, arguments: str | None, profile: str, as_json: bool
) -> None:
    """Run one Python program sealed and print the final values of its variables.

    The program reads the standard input of this command; its output is not shown. Names in `main()` begin with `main.`;
    a call prints its `return` value last. The exit code is 0 if the program ended normally, else 1.

    \b
    Settings: judge.*, sandbox.*.
    Example: echo "3 4" | autoclave trace sum.py
    """
    config = resolve(JudgeRunConfig, settings).config
    if arguments is not None and not entry_point:
        raise InputError("--arguments needs --call. Fix: give --call NAME too")
    program = Program(_text(existing_file(file, "program").read_bytes(), f"program {file}"))
    tests = _call(entry_point, arguments or "[]") if entry_point else _run()
    problem = Problem("", tests, id=file.name, profile=profile)
    judge_config = config.judge.model_copy(update={"workers": 1})
    with build_judge(judge_config, config.sandbox) as judge:
        found = judge.trace(JudgeJob(problem, program), 0).result()
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
    else:
        _show(found, is_call=bool(entry_point))
    sys.exit(0 if found.status is TraceStatus.FINISHED else 1)


def _run() -> Tests:
    given: TextIO | None = sys.stdin  # None where the caller closed it
    stdin = given.buffer.read() if given and not given.isatty() else b""
    return StdinTests("stdin", [StdinCase(_text(stdin, "standard input"), "")])


def _call(entry_point: str, arguments: str) -> Tests:
    if not all(part.isidentifier() for part in entry_point.split(".")):
        raise InputError(f"--call {shown(entry_point)}: must be a name such as f or Solution.f")
    try:
        given: Any = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--arguments {shown(arguments)}: not valid JSON ({error})") from None
    if not isinstance(given, list):
        raise InputError(f"--arguments {shown(arguments)}: must be a list such as [1, 2]")
    return CallTests("call", entry_point, [CallCase(cast("list[Any]", given), None)])


def _text(content: bytes, what: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{what}: not UTF-8 ({error.reason} at byte {error.start})") from None


def _show(found: Trace, *, is_call: bool) -> None:
    for name, value in found.variables.items():
        click.echo(f"{name} = {value}")
    if is_call and found.result is not None:
        click.echo(f"return {found.result}")
    if found.left_out:
        click.echo(f"left out: {found.left_out} variables, too large or too many", err=True)
    if found.message:
        click.echo(f"{found.status}: {found.message}", err=True)
