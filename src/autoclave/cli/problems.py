"""`autoclave problems`: inspect files of problems."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autoclave.config import BenchmarkConfig, Override, load, parse_override
from autoclave.core import CallTests, ConfigError, IncompleteError, InputError, Problem, StdinTests, read_problems
from autoclave.core.json import finite, nearest, to_plain
from autoclave.problems.inspection import differences, sample, statistics_of

if TYPE_CHECKING:
    from autoclave.compose.problem_check import ProblemCheck, RowCheck

_SHOWN_CASES = 3
_SHOWN_ROWS = 20
_HINTED = 20_000
"""Most ids that are searched for a similar one."""
_SHOWN_CHARACTERS = 400
FILE = click.Path(path_type=Path)


@click.group()
def problems() -> None:
    """Inspect files of problems, such as `autoclave curate` writes.

    Example: autoclave problems stats curated/problems.jsonl.zst
    """


@problems.command()
@click.argument("file", type=FILE)
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print the line of the problem.")
def show(file: Path, id: str, as_json: bool) -> None:
    """Show one problem: its statement, its first tests and its first solution.

    \b
    Example: autoclave problems show curated/problems.jsonl.zst two-sum
    """
    known: list[str] = []
    for problem in read_problems(file):
        if problem.id == id:
            click.echo(json.dumps(problem.to_json()) if as_json else _shown(problem))
            return
        known.append(problem.id)
    hint = f"; {nearest(id, known)}" if len(known) <= _HINTED else ""
    raise InputError(f"{file}: has no problem {id!r}{hint}")


@problems.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
def stats(file: Path, as_json: bool) -> None:
    """Count the problems of a file by kind of tests, source, difficulty, language and date.

    \b
    Example: autoclave problems stats curated/problems.jsonl.zst
    """
    numbers = statistics_of(read_problems(file))
    if as_json:
        click.echo(json.dumps(to_plain(numbers)))
        return
    click.echo(f"{numbers.num_problems} problems, {numbers.num_with_solutions} with solutions")
    for title, counts in (
        ("tests", numbers.kinds),
        ("source", numbers.sources),
        ("difficulty", numbers.difficulties),
        ("language", numbers.languages),
    ):
        click.echo(f"  {title:<12}" + ", ".join(f"{name or 'none'} {count}" for name, count in counts.items()))
    if numbers.num_tests:
        least, middle, most = numbers.num_tests
        click.echo(f"  {'cases':<12}{least} to {most}, median {middle:g}")
    if numbers.released:
        click.echo(f"  {'released':<12}{numbers.released[0]} to {numbers.released[1]}")


@problems.command()
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one object per difference.")
def diff(first: Path, second: Path, as_json: bool) -> None:
    """List problems that are in one of two files alone, or not the same in both.

    \b
    Example: autoclave problems diff before/problems.jsonl.zst after/problems.jsonl.zst
    """
    counts: Counter[str] = Counter()
    for one in differences(read_problems(first), read_problems(second)):
        counts[one.kind] += 1
        changed = f": {', '.join(one.fields)}" if one.fields else ""
        click.echo(json.dumps(to_plain(one)) if as_json else f"{one.id}  {one.kind}{changed}")
    if not as_json:
        click.echo(", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "no differences")


@problems.command(name="sample")
@click.argument("file", type=FILE)
@click.option("--count", "-n", type=click.IntRange(min=1), default=5, show_default=True, help="Number of problems.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines of the problems.")
def sample_(file: Path, count: int, seed: int, as_json: bool) -> None:
    """Show some problems of a file, drawn at random.

    \b
    Example: autoclave problems sample curated/problems.jsonl.zst -n 2
    """
    for problem in sample(read_problems(file), count, seed):
        click.echo(json.dumps(problem.to_json()) if as_json else f"{_shown(problem)}\n")


@problems.command()
@click.argument("file", type=FILE)
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--model", help="Folder of a model, address of a server (http...) or file of responses: measure pass@k.")
@click.option("--samples", type=click.IntRange(min=2), default=8, show_default=True, help="Responses to each problem.")
@click.option("--split", type=FILE, help="Folder for train.jsonl and heldout.jsonl, of the problems without an error.")
@click.option("--heldout-share", type=click.FloatRange(0, 1), default=0.1, show_default=True, help="Held-out share.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the split.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(
    file: Path,
    settings: tuple[str, ...],
    model: str | None,
    samples: int,
    split: Path | None,
    heldout_share: float,
    seed: int,
    as_json: bool,
) -> None:
    """Check that the problems of a file can be judged and trained on, and report what to fix: solutions pass, lazy
    programs fail, tests detect mutants of a solution, problems are unique, and the model solves some.

    Of a file in the layout of a public set, or of rows for verl or TRL (also Parquet), it says which rows can be
    judged, how, and which not, and runs nothing.

    The exit code is 1 if a problem has an error; warnings alone leave it at 0.

    \b
    Settings: those of autoclave evaluate --benchmark; without --model judge.* and sandbox.*.
    Example: autoclave problems check mine.jsonl --split mine
             autoclave problems check train.parquet
    """
    overrides = [parse_override(text) for text in settings]
    ignored = next((each.path for each in overrides if not each.path.startswith(("judge.", "sandbox."))), None)
    if ignored and not model:
        raise ConfigError(f"{ignored}: needs --model. Fix: give --model, or leave it out")
    of_model = {"samples": samples, "k": [1, samples], "temperature": 1.0, "lazy_programs": False}
    given = [Override(path, value, "--samples" if path == "samples" else "default") for path, value in of_model.items()]
    config = load(BenchmarkConfig, None, [*given, *overrides]).config
    from autoclave.compose.problem_check import check_problems, check_rows, is_other_layout

    if is_other_layout(file):
        if model or split:
            raise InputError(
                f"{file}: {'--model' if model else '--split'}: needs a problem file. Fix: autoclave curate"
            )
        rows = check_rows(file, config)
        click.echo(json.dumps(to_plain(rows), indent=2) if as_json else _checked_rows(file, rows))
        if rows.findings:
            raise IncompleteError(f"{len(rows.findings)} of {rows.rows} rows of {file} cannot be judged")
        return
    found = check_problems(
        file, config, model, split, share=heldout_share, seed=seed, say=lambda text: click.echo(text, err=True)
    )
    click.echo(json.dumps(finite(to_plain(found)), indent=2) if as_json else _checked(file, found))
    if errors := sum(not each.is_warning for each in found.findings):
        raise IncompleteError(f"{errors} of {found.problems} problems of {file} have an error")


def _checked_rows(file: Path, found: "RowCheck") -> str:
    shown = [f"{each.place}: {each.rule}: {each.value}. Fix: {each.fix}" for each in found.findings[:_SHOWN_ROWS]]
    if hidden := len(found.findings) - len(shown):
        shown.append(f"... and {hidden} more (--json lists all)")
    judged = [
        f"judged: {count} rows as {kind}, {least} to {most} tests each, median {middle:g}"
        for kind, (count, least, middle, most) in found.judged.items()
    ]
    unjudged = [f"not judged: {count} rows: {reason}" for reason, count in found.unjudged.items()]
    return "\n".join([*shown, f"{file}: {found.rows} rows", *judged, *unjudged])


def _checked(file: Path, found: "ProblemCheck") -> str:
    rows = [
        f"{each.place}: {each.id or '-'}: {'warning' if each.is_warning else 'error'}: {each.rule}: {each.value}. "
        f"Fix: {each.fix}"
        for each in found.findings
    ]
    stages = ", ".join(f"{name} {count}" for name, count in found.stages.items())
    rows.append(f"{file}: {found.sound} of {found.problems} problems have no error; left after each stage: {stages}")
    if found.model:
        figures = {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in found.model.items()}
        rows.append(", ".join(f"{name} {value}" for name, value in figures.items()))
    return "\n".join([*rows, *(f"{path}: {count} problems" for path, count in found.split.items())])


def _shown(problem: Problem) -> str:
    about = [problem.source, problem.difficulty, str(problem.released or ""), problem.language, ", ".join(problem.tags)]
    parts = [f"{problem.id}  ({', '.join(word for word in about if word)})", problem.statement.strip()]
    if problem.starter_code:
        parts.append(f"--- starter code\n{problem.starter_code.rstrip()}")
    parts.append(f"--- tests: {_shown_tests(problem)}")
    if problem.solutions:
        parts.append(f"--- solution 1 of {len(problem.solutions)}\n{problem.solutions[0].rstrip()}")
    return "\n\n".join(parts)


def _shown_tests(problem: Problem) -> str:
    tests = problem.tests
    if isinstance(tests, StdinTests):
        cases = [(case.input, case.output) for case in tests.cases]
    elif isinstance(tests, CallTests):
        cases = [(json.dumps(case.arguments), json.dumps(case.output)) for case in tests.cases]
    else:
        return json.dumps(to_plain(tests))[:_SHOWN_CHARACTERS]
    shown = "\n".join(f"{_cut(given)}\n-> {_cut(expected)}" for given, expected in cases[:_SHOWN_CASES])
    return f"{tests.kind}, {len(cases)}\n{shown}"


def _cut(text: str) -> str:
    text = text.rstrip("\n")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ... ({len(text)} characters)"
