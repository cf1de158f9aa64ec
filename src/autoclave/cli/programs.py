"""Commands that run programs sealed: `autoclave judge`, `run` and `trace`."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.core import IncompleteError, InputError

if TYPE_CHECKING:
    from autoclave.core import Outcome, Tests, Trace

_LANGUAGES = {".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp"}


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
    from autoclave.compose.host import build_judge
    from autoclave.config import JudgeRunConfig
    from autoclave.judge import judge_file, trace_file
    from autoclave.judge.trace_files import refuse_to_overwrite

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
    from autoclave.config import JudgeRunConfig
    from autoclave.core import Ended, Program
    from autoclave.judge import run_program

    config = resolve(JudgeRunConfig, settings).config
    if config.judge.backend != "local":
        raise InputError(
            f"judge.backend = {config.judge.backend}: this command runs on this machine. Fix: judge.backend=local"
        )
    outcome = run_program(
        config.sandbox,
        Program(_source(file), _LANGUAGES.get(file.suffix, "python")),
        _stdin(),
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


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@takes_settings
@click.option("--call", "entry_point", metavar="NAME", help="Call this function instead: `f`, or a method `Class.f`.")
@click.option("--arguments", metavar="JSON", help="With --call: the arguments, a JSON list.")
@click.option("--profile", default="plain", help="Interpreter profile, such as lcb, or one of judge.profiles.")
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
    from autoclave.compose.host import build_judge
    from autoclave.config import JudgeRunConfig
    from autoclave.core import Problem, Program, StdinCase, StdinTests, TraceStatus
    from autoclave.core.json import to_plain
    from autoclave.judge import JudgeJob

    config = resolve(JudgeRunConfig, settings).config
    if arguments is not None and not entry_point:
        raise InputError("--arguments needs --call. Fix: give --call NAME too")
    program = Program(_source(file))
    if entry_point:
        tests: Tests = _call(entry_point, arguments or "[]")
    else:
        tests = StdinTests("stdin", [StdinCase(_text(_stdin(), "standard input"), "")])
    problem = Problem("", tests, id=file.name, profile=profile)
    judge_config = config.judge.model_copy(update={"workers": 1})
    with build_judge(judge_config, config.sandbox) as judge:
        found = judge.trace(JudgeJob(problem, program), 0).result()
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
    else:
        _show_trace(found, is_call=bool(entry_point))
    sys.exit(0 if found.status is TraceStatus.FINISHED else 1)


def _call(entry_point: str, arguments: str) -> Tests:
    from autoclave.core import CallCase, CallTests
    from autoclave.core.json import shown

    if not all(part.isidentifier() for part in entry_point.split(".")):
        raise InputError(f"--call {shown(entry_point)}: must be a name such as f or Solution.f")
    try:
        given: Any = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--arguments {shown(arguments)}: not valid JSON ({error})") from None
    if not isinstance(given, list):
        raise InputError(f"--arguments {shown(arguments)}: must be a list such as [1, 2]")
    return CallTests("call", entry_point, [CallCase(cast("list[Any]", given), None)])


def _source(file: Path) -> str:
    from autoclave.core.files import existing_file

    return _text(existing_file(file, "program").read_bytes(), f"program {file}")


def _stdin() -> bytes:
    given: TextIO | None = sys.stdin  # None where the caller closed it
    return given.buffer.read() if given and not given.isatty() else b""


def _text(content: bytes, what: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{what}: not UTF-8 ({error.reason} at byte {error.start})") from None


def _show_trace(found: Trace, *, is_call: bool) -> None:
    for name, value in found.variables.items():
        click.echo(f"{name} = {value}")
    if is_call and found.result is not None:
        click.echo(f"return {found.result}")
    if found.left_out:
        click.echo(f"left out: {found.left_out} variables, too large or too many", err=True)
    if found.message:
        click.echo(f"{found.status}: {found.message}", err=True)
