"""`autoclave act install`, `uninstall`, `hook`, `observe` and `shell`: for agent hosts with tools of their own."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from autoclave.cli.act.common import on_folder, on_state, opened, require_of_agent, say

_NOT_RUN = 125
_EVENTS = ("start", "before", "after", "end")
_host = click.option("--host", type=click.Choice(("claude", "codex")), required=True, help="The agent host.")


@click.command()
@_host
@click.option("--mcp/--no-mcp", default=True, show_default=True, help="Also add the MCP server (`act mcp`).")
@click.option("--session", "given", help="Name under which actions and grants are recorded.  [default: the host]")
@on_state
def install(host: Any, mcp: bool, root: Path, state: Path | None, given: str | None) -> None:
    """Add hooks to the settings that an agent host has for a folder, so that undo covers what its tools do there.

    Other entries stay. The first copy of the folder is made. Nothing is granted to the MCP server; grants for it alone
    have its --session.

    \b
    Example: autoclave act install --host claude --root project
    """
    from autoclave.act import install as settings
    from autoclave.act.resident import hand_over

    name = given or str(host)
    require_of_agent(name)
    for line in settings.install(host, root, state, name=name, mcp=mcp):
        say(line)
    if told := hand_over("start", b"{}", root, state, name)[1:]:
        say(told.decode(errors="replace").rstrip("\n"), err=True)
    say(f"observing {root.resolve()}: `autoclave act list --root {root}` shows what tools do from now on")
    if host == "codex":
        say("Codex runs hooks only when you trust them: open /hooks there")


@click.command()
@_host
@on_state
def uninstall(host: Any, root: Path, state: Path | None) -> None:
    """Remove what `install` added to the settings of an agent host, and end the observer. Recorded actions stay.

    \b
    Example: autoclave act uninstall --host claude --root project
    """
    from autoclave.act import install as settings

    told = settings.uninstall(host, root, state)
    for line in told or [f"{root}: nothing is installed for {host}"]:
        say(line)


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


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--network", is_flag=True, help="Give it the network of this machine; what it does there is not undone.")
@click.option("--timeout", "timeout_s", type=float, default=3600.0, show_default=True, help="Seconds it may take.")
@click.option("--resident", "stays", is_flag=True, help="Keep a process warm; without COMMAND, print its prefix.")
@on_folder
@click.argument("command", nargs=-1)
def shell(network: bool, timeout_s: float, stays: bool, root: Path, state: Path | None, name: str, command: Any):
    """Run one command on an overlay of a folder, show what it prints, and apply what it changed as one action.

    Exits with the code of the command, or with 125 if it was not run or not applied. Needs grants for the files and the
    program, and for --network also `use` of network/host (with --guarantee none).

    \b
    Example: autoclave act shell --root project -- make test
    """
    from autoclave.act.shell import run_shell
    from autoclave.core import AutoclaveError, UsageError

    if stays:
        from autoclave.cli.act.resident_shell import prefix

        options = ["--session", name, f"--timeout={timeout_s:g}", *(["--network"] if network else [])]
        line = shlex.join(prefix(root, state, options))
        if not command:
            return say(line)
    if not command:
        raise UsageError("COMMAND: is missing")
    stdin = "" if sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    try:
        with opened(root, state, name) as session:
            code, warnings = run_shell(session, command, network=network, stdin=stdin, timeout_s=timeout_s)
    except AutoclaveError as error:
        hint = getattr(error, "hint", "")
        say(f"autoclave: {error}" + (f". What would permit it: {hint}" if hint else ""), err=True)
        sys.exit(_NOT_RUN)
    for warning in warnings:
        say(f"autoclave: {warning}", err=True)
    sys.exit(code)
