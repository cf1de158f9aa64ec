"""`autoclave act list`, `show`, `diff` and `doctor`."""

import sys
from pathlib import Path

import click

from autoclave.cli.act.common import FOLDER, acting, on_folder, recorded, say, say_json, words


@click.command(name="list")
@on_folder
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per action.")
def list_actions(root: Path, state: Path | None, name: str, as_json: bool) -> None:
    """List all actions with their state; the number in brackets is the group for `undo --group`.

    The name at the end of a line is that of the session, if it is not `main`. Works beside a running session, as does
    `show`.

    \b
    Example: autoclave act list --root project
    """
    with recorded(root, state, name) as (actions, _):
        numbers = {action: number for number, group in enumerate(actions.groups(), start=1) for action in group}
        for each in actions.journal.standings():
            group = numbers.get(each.action)
            if as_json:
                told = {"action": each.action, "state": each.state, "at": each.at, "group": group, **each.proposed}
                say_json(told)
            else:
                shown = f"[{group}]" if group else ""
                guarantee, who = each.proposed["guarantee"], each.proposed["session"]
                by = "" if who == "main" else f"  ({who})"
                say(f"{each.action}  {each.state:<14}{shown:<6}{guarantee:<14}{words(each.proposed['operation'])}{by}")


@click.command()
@click.argument("action")
@on_folder
def show(action: str, root: Path, state: Path | None, name: str) -> None:
    """Show the records of an action, as JSON lines.

    \b
    Example: autoclave act show 3f2a9c01 --root project
    """
    with recorded(root, state, name) as (actions, _):
        guarantee = actions.journal.standing(action).proposed["guarantee"]
        for record in actions.journal.records(action):
            told = {"number": record.number, "at": record.at, "kind": record.kind, "guarantee": guarantee}
            say_json({**told, **record.body})


@click.command()
@click.argument("action")
@click.option(
    "--undo", "is_undo", is_flag=True, help="Show what others have changed since, with which an undo would conflict."
)
@on_folder
def diff(action: str, is_undo: bool, root: Path, state: Path | None, name: str) -> None:
    """Show the changes of an action: proposed, executed or undone.

    \b
    Example: autoclave act diff 3f2a9c01 --root project
    """
    with acting(root, state, name) as session:
        proposed = session.journal.standing(action).proposed
        say(f"{action}  {proposed['guarantee']}  {words(proposed['operation'])}")
        if not is_undo:
            for line in session.difference(action):
                say(line)
            return
        for each in session.dependents_of(action):
            say(f"depends on it: {each}  {words(session.journal.standing(each).proposed['operation'])}")
        for path in session.conflicts_of(action):
            say(f"changed by another program: {path!r}")


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
    sys.exit(0 if is_whole else 3)
