"""`autoclave act list`, `show` and `diff`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autoclave.cli.act.common import on_folder, opened, printable, words


@click.command(name="list")
@on_folder
@click.option("--json", "as_json", is_flag=True, help="A line of JSON per action.")
def list_actions(root: Path, state: Path | None, name: str, as_json: bool) -> None:
    """Show all actions and where they stand; in brackets the group that `undo --group` takes back.

    \b
    Example: autoclave act list --root project
    """
    with opened(root, state, name) as session:
        numbers = {action: number for number, group in enumerate(session.groups(), start=1) for action in group}
        for each in session.journal.standings():
            group = numbers.get(each.action)
            if as_json:
                told = {"action": each.action, "state": each.state, "at": each.at, "group": group, **each.proposed}
                click.echo(json.dumps(told))
            else:
                shown = f"[{group}]" if group else ""
                click.echo(f"{each.action}  {each.state:<14}{shown:<6}{words(each.proposed['operation'])}")


@click.command()
@click.argument("action")
@on_folder
def show(action: str, root: Path, state: Path | None, name: str) -> None:
    """Show all that is recorded of an action, as JSON lines.

    \b
    Example: autoclave act show 3f2a9c01 --root project
    """
    with opened(root, state, name) as session:
        session.journal.standing(action)
        for record in session.journal.records(action):
            click.echo(json.dumps({"number": record.number, "at": record.at, "kind": record.kind, **record.body}))


@click.command()
@click.argument("action")
@click.option("--undo", "is_undo", is_flag=True, help="What an undo would find changed by others, in place of that.")
@on_folder
def diff(action: str, is_undo: bool, root: Path, state: Path | None, name: str) -> None:
    """Show what an action would change, has changed, or had changed before it was undone.

    \b
    Example: autoclave act diff 3f2a9c01 --root project
    """
    with opened(root, state, name) as session:
        if not is_undo:
            for line in session.difference(action):
                click.echo(printable(line))
            return
        for each in session.dependents_of(action):
            click.echo(f"depends on it: {each}  {words(session.journal.standing(each).proposed['operation'])}")
        for path in session.conflicts_of(action):
            click.echo(f"changed by somebody else: {path!r}")
