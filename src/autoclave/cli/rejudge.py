"""`autoclave rejudge`: recorded rollouts judged again."""

import json
from contextlib import ExitStack
from functools import partial
from logging import getLogger
from pathlib import Path

import click

from autoclave.compose.host import build_judge
from autoclave.config import JudgeRunConfig, TrainConfig, load, parse_override
from autoclave.core import IncompleteError, InputError
from autoclave.core.json import finite, to_plain
from autoclave.integrations.recorded import ScoredRollout, read_scored
from autoclave.integrations.rejudging import Rejudged, problem_finder, rejudge_rows, run_settings, sampled_groups
from autoclave.integrations.scoring import RewardRule, Scorer
from autoclave.judge.files import ProblemIndex
from autoclave.problems.readers.raw_files import raw_files

_FILE = click.Path(path_type=Path)
_INNER = ("rollouts", "completions")
"""Folders of rollouts in a run folder, and in TRL's `output_dir`."""


@click.command()
@click.argument("rollouts", type=_FILE)
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--problems", type=_FILE, help="Problem file with the tests; by default those of the run or of the rows.")
@click.option("--checker", help="Checker in place of those of the problems, such as tokens or float(1e-6, 1e-9).")
@click.option("--reward", type=click.Choice(["binary", "fraction"]), help="Compare 1 and 0, or shares of tests.")
@click.option("--score", default="", metavar="COLUMN", help="Column of the recorded score.")
@click.option("--accepted-from", type=float, default=1.0, show_default=True, help="Recorded scores that mean accepted.")
@click.option("--sample", type=click.IntRange(min=1), help="About so many rollouts, in whole groups drawn at random.")
@click.option(
    "--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Most changes shown per cause."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, examples with their responses.")
def rejudge(
    rollouts: Path,
    settings: tuple[str, ...],
    problems: Path | None,
    checker: str | None,
    reward: RewardRule | None,
    score: str,
    accepted_from: float,
    sample: int | None,
    examples: int,
    as_json: bool,
) -> None:
    """Judge recorded rollouts again, and show which scores change, and why.

    ROLLOUTS is a run folder, a file of it, a file or folder that verl (trainer.rollout_data_dir) or TRL
    (log_completions) wrote, or JSONL of prompt, response, score and problem. It may still grow. Rollouts of a run are
    judged with its settings and problems. The exit code is 1 if a score changes or a rollout has no verdict.

    \b
    Settings: judge.*, sandbox.*, extraction, answer, tests.
    Example: autoclave rejudge runs/demo --sample 1000
    """
    folder = next((inner for name in _INNER if (inner := rollouts / name).is_dir()), rollouts)
    files = raw_files(folder)
    recipe = files.root.parent / "config.yaml"
    run = load(TrainConfig, recipe).config if files.root.name == "rollouts" and recipe.is_file() else None
    given, rule = run_settings(run, settings) if run else (settings, "binary")
    rule = reward or rule
    config = load(JudgeRunConfig, None, map(parse_override, given)).config
    log = getLogger("autoclave.integrations.scoring")
    with ExitStack() as opened:
        opened.callback(log.setLevel, log.level)
        log.setLevel("CRITICAL")  # what it would log is in the result
        index = opened.enter_context(ProblemIndex(problems)) if problems else None
        find = problem_finder(index, run, checker)
        read = partial(read_scored, files, score=score, takes_share=rule == "fraction")
        chosen = sampled_groups(read(), sample) if sample else None
        judge = opened.enter_context(build_judge(config.judge, config.sandbox))
        found = rejudge_rows(
            (row for row in read() if not chosen or not isinstance(row, ScoredRollout) or row.group in chosen),
            find,
            Scorer(given, judge=judge, reward=rule),
            accepted_from=accepted_from if rule == "binary" else None,
            examples=examples,
            pending_limit=config.judge.pending_limit,
        )
    click.echo(json.dumps(finite(to_plain(found)), indent=2) if as_json else _table(found))
    if failed := found.rollouts - found.unchanged:
        raise IncompleteError(f"{failed} of {found.rollouts} rollouts changed or have no verdict")
    if not found.rollouts:
        raise InputError(f"{rollouts}: has no rollout to judge again: {'; '.join(_left_out(found)) or 'it is empty'}")


def _table(found: Rejudged) -> str:
    changed = sum(found.causes.values())
    counts = f"{found.unchanged} unchanged, {changed} changed, {found.no_verdict} without a verdict"
    rows = [f"{found.rollouts} rollouts judged again: {counts}"]
    for cause, count in found.causes.most_common():
        rows.append(f"  {cause:<16}{count:>8}")
        rows += [
            "    {where}: {id}: {recorded:g} -> {now:g} {status}; {detail}".format(**one)
            for one in found.examples
            if one["cause"] == cause
        ]
    rows.append(
        f"advantages: mean absolute change {found.advantage_change:.3g}; "
        f"signs change in {found.sign_changes} of {found.groups} groups"
    )
    return "\n".join([*rows, *_left_out(found)])


def _left_out(found: Rejudged) -> list[str]:
    return [f"left out: {len(rows)}: {reason} (first: {rows[0]})" for reason, rows in found.left_out.items()]
