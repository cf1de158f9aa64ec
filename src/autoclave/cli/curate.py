"""`autoclave curate`."""

import json
from pathlib import Path
from typing import Any

import click

from autoclave.cli.settings import resolve, takes_settings
from autoclave.config import CurateConfig


@click.command()
@takes_settings
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the set and its report.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def curate(settings: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Make a training set of public problem sets: filtered, verified in the sandbox, without duplicates, and without
    problems of evaluation sets. The command continues where it ended, also after it was killed.

    \b
    Settings: sources, evaluation_sets, minimum_tests, verification.*, strength.*, deduplication.*, judge.* ...
    Example: autoclave curate recipes/curate-deepcoder.yaml --out curated
    """
    config = resolve(CurateConfig, settings).config
    from autoclave.compose.curation import curate as run

    manifest = run(config, out, lambda text: click.echo(text, err=True))
    click.echo(json.dumps(manifest) if as_json else _table(manifest, out))


def _table(manifest: dict[str, Any], out: Path) -> str:
    rows = [f"{'stage':<18}{'left':>9}  dropped"]
    for stage in manifest["stages"]:
        reasons: dict[str, int] = {}
        for counts in stage["dropped"].values():
            for reason, count in counts.items():
                reasons[reason] = reasons.get(reason, 0) + count
        dropped = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1]))
        rows.append(f"{stage['name']:<18}{sum(stage['kept'].values()):>9}  {dropped}".rstrip())
    return "\n".join(
        [
            *rows,
            "",
            *(f"{stage['name']}: {note}" for stage in manifest["stages"] for note in stage["notes"]),
            f"{manifest['problems']} problems in {out}, {manifest['heldout']} of them held out; "
            f"{out / 'report.html'} shows what was dropped",
        ]
    )
