"""`autoclave act grant`, `revoke` and `stop`."""

import time
from pathlib import Path
from typing import Any

import click

from autoclave.cli.act.common import on_folder, recorded, say


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--verbs", default="*", show_default=True, help="read, create, modify, delete, rename, set_mode, run ...")
@click.option("--forbid", is_flag=True, help="Forbid the resources; no grant overrides this.")
@click.option("--except", "excluded", multiple=True, metavar="PATTERN", help="Resources that the grant does not cover.")
@click.option("--for", "duration", help="Time until the grant expires, such as 30m or 8h.")
@click.option("--narrows", "parent", default="", help="Another grant that must permit the action as well.")
@click.option(
    "--guarantee",
    "minimum_guarantee",
    type=click.Choice(("exact", "equivalent", "compensating", "none")),
    default="compensating",
    show_default=True,
    help="Weakest undo that an action may have; reads from services have none.",
)
@click.option("--max-uses", type=int, help="Most actions that may use the grant.")
@click.option("--max-files", type=int, help="Most files, over all uses.")
@click.option("--max-bytes-written", type=int, help="Most bytes written, over all uses.")
@click.option("--max-bytes-deleted", type=int, help="Most bytes deleted, over all uses.")
@click.option("--max-rows", type=int, help="Most rows of databases, over all uses.")
@click.option("--max-spend", type=float, help="Most spending at services, in their unit, over all uses.")
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
    """Grant access to RESOURCES, or list the grants when none are given. A running session takes it over.

    Patterns: `files/src/**` (a folder with all below), `files/*.txt`, `programs/make`, `packages/*`, `services/slack`.

    \b
    Example: autoclave act grant 'files/**' --verbs create,modify --for 8h --root project
    """
    from autoclave.runtime.policy.grants import grant_from, lint, seconds_of, shown_grant

    with recorded(root, state, name) as (_, permissions):
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
            permissions.grant(found)
            say(shown_grant(found))
        else:
            for each in permissions.grants():
                say(shown_grant(each))
        for line in lint(permissions.grants(), time.time()):
            say(f"note: {line}", err=True)


@click.command()
@click.argument("grants", nargs=-1, required=True)
@on_folder
def revoke(grants: tuple[str, ...], root: Path, state: Path | None, name: str) -> None:
    """Revoke grants, with those that narrow them. A running session takes it over.

    \b
    Example: autoclave act revoke 3f2a9c01 --root project
    """
    with recorded(root, state, name) as (_, permissions):
        for each in grants:
            permissions.revoke(each)


@click.command()
@on_folder
def stop(root: Path, state: Path | None, name: str) -> None:
    """Deny all further actions, also those of a running session, until the printed grant is revoked.

    An action that is being executed ends. You can still undo here and on the review page; agents and programs cannot.
    With `--session` only that session is stopped.

    \b
    Example: autoclave act stop --root project
    """
    from autoclave.runtime.policy.grants import Grant, shown_grant

    with recorded(root, state, name) as (_, permissions):
        denial = Grant(effect="forbid", resources=("**",), verbs=("*",), session="" if name == "main" else name)
        permissions.grant(denial)
        say(shown_grant(denial))
