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
from autoclave.config.renamed import RENAMED_COMMANDS
from autoclave.core import InputError


class _Commands(click.Group):
    """Group that refuses the command names of earlier releases, and says the new ones."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in RENAMED_COMMANDS:
            raise InputError(f"act {cmd_name}: is now called `autoclave act {RENAMED_COMMANDS[cmd_name]}`")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, no_args_is_help=True)
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
