"""`autoclave episode`."""

import json
from pathlib import Path

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.core import IncompleteError

_FILE = click.Path(path_type=Path)


@click.group()
def episode() -> None:
    """Play single episodes, and grade recorded ones again.

    \b
    Example: autoclave episode run problems.jsonl#add --policy http://127.0.0.1:8000/v1 task.turns=3
    """


@episode.command()
@click.argument("item")
@takes_settings
@click.option("--policy", metavar="URL|FOLDER", help="Server compatible with OpenAI, or the folder of a model.")
@click.option("--replay", type=_FILE, help="In place of --policy: grade the episode in this file again.")
@click.option("--out", type=_FILE, help="File for the episode (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the rollout as JSON.")
def run(
    item: str, settings: tuple[str, ...], policy: str | None, replay: Path | None, out: Path | None, as_json: bool
) -> None:
    """Play one episode, and print its turns, its end state and the verdict.

    ITEM is FILE#ID, a problem of a problem file, or the ID of a problem that the recipe names. The exit code is 0 with
    any verdict, and 1 without one.

    \b
    Settings: those of training, and endpoint.*.
    Example: autoclave episode run problems.jsonl#add --policy http://127.0.0.1:8000/v1 task.turns=3
    """
    if bool(policy) == bool(replay):
        raise click.UsageError("give either --policy or --replay")
    from autoclave.compose.episode import FORMAT, grade_episode, run_episode
    from autoclave.config import EndpointConfig, Override, TrainConfig, load, parse_override
    from autoclave.core.files import write_atomically
    from autoclave.core.json import finite
    from autoclave.report.html import TRANSCRIPT, render_text
    from autoclave.runs.folder import rollout_line
    from autoclave.runs.rollouts import RecordedRollout
    from autoclave.training.saved_groups import plain_rollout

    own = [text for text in settings if not text.startswith("endpoint.")]
    if not any("=" not in text or text.startswith("model.") for text in own):
        own.append("model.tiny.context=1048576")  # the policy is another than the embedded one, whose limit is lower
    config = resolve(TrainConfig, own).config
    given = [parse_override(text.removeprefix("endpoint.")) for text in settings if text.startswith("endpoint.")]
    endpoint = load(EndpointConfig, None, [Override("retries", 2, "default"), *given]).config
    if replay:
        rollout, account = grade_episode(config, item, replay), {}
    else:
        rollout, account = run_episode(config, item, policy or "", endpoint, lambda text: click.echo(text, err=True))
    if out:
        write_atomically(out, json.dumps({"format": FORMAT, **plain_rollout(rollout)}) + "\n")
    shown = RecordedRollout(finite(rollout_line(0, rollout, {}, None)))
    record = {**shown.record, "account": account}
    click.echo(json.dumps(record) if as_json else render_text(TRANSCRIPT, rollout=shown, account=account))
    if shown.reward is None:
        raise IncompleteError(f"the episode has no verdict: {shown.message}")
