"""`autoclave act grant` and `revoke`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from autoclave.cli.act.common import on_folder, opened


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--verbs", default="*", show_default=True, help="read, create, modify, delete, rename, set_mode, run ...")
@click.option("--forbid", is_flag=True, help="Forbid it; no permission overrides that.")
@click.option("--except", "excluded", multiple=True, metavar="PATTERN", help="What it does not cover.")
@click.option("--for", "duration", help="How long it holds, such as 30m or 8h.")
@click.option("--narrows", "parent", default="", help="A grant that has to permit it as well.")
@click.option(
    "--guarantee",
    "minimum_guarantee",
    type=click.Choice(("exact", "equivalent", "compensating", "none")),
    default="compensating",
    show_default=True,
    help="How good the undo of an action must be; what asks a service has none.",
)
@click.option("--max-uses", type=int, help="Actions that may use it.")
@click.option("--max-files", type=int, help="Of all uses together.")
@click.option("--max-bytes-written", type=int, help="Of all uses together.")
@click.option("--max-bytes-deleted", type=int, help="Of all uses together.")
@click.option("--max-rows", type=int, help="Of databases, of all uses together.")
@click.option("--max-spend", type=float, help="At services, in their unit, of all uses together.")
@on_folder
def grant(
    resources: tuple[str, ...],
    verbs: str,
    forbid: bool,
    excluded: tuple[str, ...],
    duration: str | None,
    root: Path,
    state: Path | None,
    name: str,
    **limits: Any,
) -> None:
    """Permit RESOURCES, or show what is permitted when none are given.

    Patterns: `files/src/**` (a folder with all below), `files/*.txt`, `programs/make`, `packages/*`, `services/slack`.

    \b
    Example: autoclave act grant 'files/**' --verbs create,modify --for 8h --root project
    """
    from autoclave.runtime.policy.grants import grant_from, lint, seconds_of, shown_grant

    with opened(root, state, name) as session:
        if resources:
            given: dict[str, Any] = {
                "resources": resources,
                "verbs": [verb.strip() for verb in verbs.split(",")],
                "excluded": excluded,
                "effect": "forbid" if forbid else "allow",
                "session": "" if name == "main" else name,
                "expires_at": time.time() + seconds_of(duration) if duration else None,
            }
            found = grant_from(given | limits)
            session.permissions.grant(found)
            click.echo(shown_grant(found))
        else:
            for each in session.permissions.grants():
                click.echo(shown_grant(each))
        for line in lint(session.permissions.grants(), time.time()):
            click.echo(f"note: {line}", err=True)


@click.command()
@click.argument("grants", nargs=-1, required=True)
@on_folder
def revoke(grants: tuple[str, ...], root: Path, state: Path | None, name: str) -> None:
    """Take grants back, with those that narrow them.

    \b
    Example: autoclave act revoke 3f2a9c01 --root project
    """
    with opened(root, state, name) as session:
        for each in grants:
            session.permissions.revoke(each)
