"""`autoclave act`: actions that can be taken back."""

import click

from autoclave.cli.act.agents import mcp
from autoclave.cli.act.audit import audit, export_history
from autoclave.cli.act.compensations import compensations
from autoclave.cli.act.connect import connect
from autoclave.cli.act.doing import plan, propose, run
from autoclave.cli.act.hosts import hook, install, observe, shell, uninstall
from autoclave.cli.act.looking import diff, doctor, list_actions, show
from autoclave.cli.act.permission import grant, revoke, stop
from autoclave.cli.act.review import serve
from autoclave.cli.act.settling import commit, discard, flush, redo, resolve, savepoint, undo
from autoclave.cli.act.vault import vault


@click.group(no_args_is_help=True)
def act() -> None:
    """Perform proposed actions on files, databases and services, and undo them.

    Nothing is permitted without a grant. Every action is written to a journal before it happens. Files that an action
    replaces or deletes are moved to a stash, not copied, so an undo restores content, owner, mode, times, extended
    attributes and hard links exactly. Commands run in a sandbox on an overlay of the folder.

    \b
    Example: autoclave act run changes.jsonl --root project
    """


for commands in (
    (plan, propose, run, flush, discard),
    (list_actions, show, diff),
    (undo, redo, commit, savepoint, resolve),
    (install, uninstall, hook, observe, shell),
    (serve, mcp, grant, revoke, stop, audit, export_history, vault, connect, compensations, doctor),
):
    for command in commands:
        act.add_command(command)
