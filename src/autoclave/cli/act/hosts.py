"""`autoclave act hook` and `observe`: for agent hosts, which use tools of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autoclave.cli.act.common import on_folder

_EVENTS = ("start", "before", "after", "end")


@click.command()
@click.argument("event", type=click.Choice(_EVENTS))
@on_folder
def hook(event: str, root: Path, state: Path | None, name: str) -> None:
    """Tell the observer of a folder that a tool is about to be used, or has been; JSON of the host is read from stdin.

    Agent hosts call it as a hook (`install` writes their settings). The observer is started if there is none. It
    journals what a tool changed as one action. Exit code 1: undo may not cover this tool use; the tool is not blocked.

    \b
    Example: echo '{"tool_name": "Bash"}' | autoclave act hook before --root project
    """
    from autoclave.act.resident import hand_over
    from autoclave.core import AutoclaveError

    try:
        answer = hand_over(event, sys.stdin.buffer.read(), root, state, name)
    except AutoclaveError as error:  # exit code 2 would block the tool
        answer = f"1autoclave: {error}; undo may not cover this tool use\n".encode()
    click.echo(answer[1:].decode(errors="replace"), err=True, nl=False)
    sys.exit(int(answer[:1]))


@click.command()
@click.option("--idle", "idle_s", type=float, default=3600.0, show_default=True, help="Seconds without events to end.")
@on_folder
def observe(idle_s: float, root: Path, state: Path | None, name: str) -> None:
    """Observe a folder for the hooks of agent hosts, in the foreground. Hooks start it in the background otherwise.

    \b
    Example: autoclave act observe --root project
    """
    from autoclave.act.resident import serve

    serve(root, state, name=name, idle_s=idle_s)
