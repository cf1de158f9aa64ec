"""`autoclave act doctor`: check this host for actions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autoclave.cli.act.common import FOLDER

_LACKS = 3


@click.command()
@click.option("--root", type=FOLDER, default=Path("."), show_default=True, help="Folder for the actions.")
@click.option("--state", type=FOLDER, help="Folder of the journal.  [default: .autoclave-NAME beside the folder]")
def doctor(root: Path, state: Path | None) -> None:
    """Check that this host has what actions on a folder need; exit code 3 if something is missing.

    \b
    Example: autoclave act doctor --root project
    """
    from autoclave.runtime.doctor import examine

    is_whole = True
    for check in examine(root, state):
        mark = "ok     " if check.is_present else "MISSING" if check.is_required else "without"
        click.echo(f"{mark}  {check.name}: {check.detail}")
        if not check.is_present:
            click.echo(f"         fix: {check.fix}")
            is_whole = is_whole and not check.is_required
    sys.exit(0 if is_whole else _LACKS)
