"""`autoclave act`: actions that can be taken back."""

from __future__ import annotations

import click

from autoclave.cli.act.audit import audit
from autoclave.cli.act.authorize import authorize
from autoclave.cli.act.connect import connect
from autoclave.cli.act.doing import plan, propose, run
from autoclave.cli.act.host import doctor
from autoclave.cli.act.looking import diff, list_actions, show
from autoclave.cli.act.pairs import pairs
from autoclave.cli.act.permission import grant, revoke
from autoclave.cli.act.settling import commit, mark, redo, release, resolve, undo, withdraw
from autoclave.cli.act.vault import vault


@click.group(no_args_is_help=True)
def act() -> None:
    """Do what was proposed to the files of a folder, and take it back.

    Nothing is permitted until it is granted. Every action is in a journal before it happens. What it takes out of the
    folder is moved aside, not copied, so that an undo restores content, owner, modes, times, extended attributes and
    hard links exactly. Commands run in a sealed cell on a layer of their own.

    \b
    Example: autoclave act run changes.jsonl --root project
    """


vault.add_command(authorize)
for commands in (
    (plan, propose, run, release, withdraw),
    (list_actions, show, diff),
    (undo, redo, commit, mark, resolve),
    (grant, revoke, audit, vault, connect, pairs, doctor),
):
    for command in commands:
        act.add_command(command)
