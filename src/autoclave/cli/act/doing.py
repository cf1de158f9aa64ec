"""`autoclave act plan`, `propose` and `run`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoclave.cli.act.common import (
    FILE,
    acting,
    named,
    on_folder,
    operations,
    say,
    say_output,
    say_undo,
    tell_of_hold,
    words,
)
from autoclave.core import DataError, HostError, InputError, UsageError

if TYPE_CHECKING:
    from autoclave.runtime.proposals import Chat
    from autoclave.runtime.session import Proposal, Session

_BY = "command line"


_PACKAGES = click.option(
    "--packages", type=FILE, help="Requirements file with hashes: the packages that generated code may import."
)
_MODEL = (
    click.option("--prompt", help="Task for a model, in place of FILE."),
    click.option("--endpoint", help="Base URL of a server with an OpenAI-compatible chat API, such as .../v1."),
    click.option("--model", help="Name of the model at the endpoint."),
    click.option(
        "--key-variable", default="OPENAI_API_KEY", show_default=True, help="Environment variable with the key."
    ),
    click.option("--record", type=FILE, help="Write the proposed operations to this file, for another run."),
    click.option(
        "--by",
        "way",
        type=click.Choice(("functions", "program")),
        default="functions",
        show_default=True,
        help="Have the model call functions, or write a program.",
    ),
    click.option(
        "--undo",
        "undo",
        type=click.Choice(("snapshot", "model")),
        default="snapshot",
        show_default=True,
        help="`model`: have the model write what undoes its commands as well, tested and shown. What a command "
        "replaces is kept either way.",
    ),
    click.option(
        "--service",
        "services",
        multiple=True,
        help="Service of the vault that the model's program may use; may be given several times.",
    ),
    click.option(
        "--hide-personal-data",
        is_flag=True,
        help="Show the model placeholders in place of addresses, phone numbers, cards and accounts.",
    ),
    click.option(
        "--narrow",
        type=click.Choice(("mentioned", "model")),
        help="Forbid services that the prompt does not name, or that the model says it does not need.",
    ),
)


def _by_model(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_MODEL):
        command = option(command)
    return command


def _session(root: Path, state: Path | None, name: str, packages: Path | None) -> AbstractContextManager[Session]:
    if packages is None:
        return acting(root, state, name)
    from autoclave.core.files import cache_folder
    from autoclave.runtime.packages import AllowedPackages

    return acting(root, state, name, packages=AllowedPackages(packages, cache_folder() / "packages"))


@click.command()
@click.argument("file", type=FILE)
@_PACKAGES
@on_folder
def plan(file: Path, packages: Path | None, root: Path, state: Path | None, name: str) -> None:
    """Show what each operation of FILE would do in the current state. Nothing is executed; only denials are recorded.

    FILE has an operation per line; `-` is standard input. A command with `network` or `secrets` sends its requests when
    it is planned; `list` shows that.

    \b
    Example: autoclave act plan changes.jsonl --root project
    """
    with _session(root, state, name, packages) as session:
        for where, given in operations(file):
            try:
                found = session.plan(given)
            except InputError as error:
                say_output(getattr(error, "output", {}))
                raise named(where, error) from None
            say(f"{found.digest[:12]}  {found.guarantee:<12}  {words(given)}")
            say_undo(given)
            for change in found.changes:
                say(f"    {change}")
            say_output(found.output)


@click.command()
@click.argument("file", type=FILE, required=False)
@_by_model
@_PACKAGES
@on_folder
def propose(file: Path | None, packages: Path | None, root: Path, state: Path | None, name: str, **model: Any) -> None:
    """Plan each operation of FILE, or what a model proposes, and record it, for `run ACTION`. Nothing is executed.

    \b
    Example: autoclave act propose changes.jsonl --root project
    """
    with _session(root, state, name, packages) as session:
        for proposal, given in _proposals(session, file, is_run=False, **model):
            say(f"{proposal.action}  {proposal.plan.digest[:12]}  {proposal.plan.guarantee:<12}  {words(given)}")
            say_undo(given)


@click.command()
@click.argument("target", required=False)
@click.option(
    "--atomic", is_flag=True, help="Undo the earlier operations of the file if one fails or the process dies."
)
@_by_model
@_PACKAGES
@on_folder
def run(
    target: str | None, atomic: bool, packages: Path | None, root: Path, state: Path | None, name: str, **model: Any
) -> None:
    """Execute a proposed action, or propose and execute the operations of a file in turn, up to the first that fails.

    TARGET is the name of an action or a file (`-`: standard input). With --prompt a model proposes, and is told what
    became of each.

    \b
    Example: autoclave act run changes.jsonl --root project
    """
    with _session(root, state, name, packages) as session:
        if target and target != "-" and not Path(target).exists():
            if "." in target or "/" in target:
                raise UsageError(f"{target}: there is no such file")
            standing = session.journal.standing(target)
            try:
                became = session.run(target, standing.proposed["plan"], approved_by=_BY)
            except InputError as error:
                raise named(target, error) from None
            say(f"{target}  {standing.proposed['guarantee']:<12}  {words(standing.proposed['operation'])}")
            tell_of_hold(became)
            return
        file = Path(target) if target else None
        for proposal, given in _proposals(session, file, is_run=True, is_atomic=atomic, **model):
            say(f"{proposal.action}  {proposal.plan.guarantee:<12}  {words(given)}")
            say_undo(given)
            tell_of_hold(session.journal.standing(proposal.action))
            if "exit_code" in proposal.plan.output:
                for change in proposal.plan.changes:
                    say(f"    {change}")
            say_output(proposal.plan.output)


def _proposals(
    session: Session, file: Path | None, *, is_run: bool, is_atomic: bool = False, prompt: str | None, **model: Any
) -> Iterator[tuple[Proposal, dict[str, Any]]]:
    if (file is None) == (prompt is None):
        raise UsageError("act: give a file of operations, or --prompt with --endpoint and --model")
    if prompt is not None:
        yield from _by_prompt(session, prompt, is_run=is_run, **model)
        return
    assert file is not None
    done, lines = list[str](), operations(file)
    where = ""
    try:
        with session.atomic() if is_atomic else contextlib.nullcontext():
            for where, given in list(lines) if is_atomic else lines:  # noqa: B007 - named by an error
                proposal = _done(session, given, is_run, is_atomic=is_atomic)
                done += [] if proposal.plan.is_read else [proposal.action]
                yield proposal, given
    except DataError:
        raise
    except (InputError, HostError) as error:
        say_output(getattr(error, "output", {}))
        if undone := [each for each in reversed(done) if session.journal.standing(each).state == "undone"]:
            say(f"undone: {' '.join(undone)}")
        raise named(where, error) if isinstance(error, InputError) else error from None


def _done(session: Session, given: dict[str, Any], is_run: bool, by: str = _BY, *, is_atomic: bool = False) -> Proposal:
    proposal = session.propose(given, by=by)
    if is_atomic and proposal.plan.guarantee == "none":
        raise InputError("--atomic: it cannot be undone (guarantee none), so it is not done")
    if is_run:
        session.run(proposal.action, proposal.plan.digest, approved_by=_BY)
    return proposal


def _by_prompt(
    session: Session,
    prompt: str,
    *,
    is_run: bool,
    endpoint: str | None,
    model: str | None,
    key_variable: str,
    record: Path | None,
    way: str,
    undo: str,
    services: Sequence[str],
    hide_personal_data: bool,
    narrow: str | None,
) -> Iterator[tuple[Proposal, dict[str, Any]]]:
    import hashlib
    import json

    from autoclave.core.files import write_atomically
    from autoclave.runtime.personal_data import PersonalData
    from autoclave.runtime.proposals import (
        Refused,
        chat_at,
        converse,
        converse_by_program,
        refusal_of,
        result_of,
        with_placeholders,
    )

    if not endpoint or not model:
        raise UsageError("act --prompt: needs --endpoint URL and --model NAME")
    if services and way != "program":
        raise UsageError("act --service: is for --by program; a function names the services that it uses")
    chat = chat_at(endpoint, model, os.environ.get(key_variable, ""))
    if hide_personal_data:
        chat = with_placeholders(chat, PersonalData())
    if narrow:
        _narrow(session, prompt, chat, narrow)
    lines: list[str] = []
    if way == "program":
        turns = converse_by_program(chat, prompt, session.told(), secrets=services, with_undo=undo == "model")
    else:
        turns = converse(chat, prompt, session.told(), session.operations, with_undo=undo == "model")
    by = f"model {model}, task {hashlib.sha256(prompt.encode()).hexdigest()[:16]}"
    answer: str | Refused | None = None
    while True:
        try:
            given = turns.send(answer)
        except StopIteration as stop:
            if stop.value:
                say(f"model: {stop.value}", err=True)
            return
        try:
            proposal = _done(session, given, is_run, by=by)
        except InputError as error:
            answer = refusal_of(error)
            say(f"refused: {named('operation', error)}", err=True)
            continue
        answer = result_of(proposal.plan)
        lines.append(json.dumps(given))
        if record:
            write_atomically(record, "".join(f"{line}\n" for line in lines))
        yield proposal, given


def _narrow(session: Session, prompt: str, chat: Chat, how: str) -> None:
    from autoclave.runtime.policy.needed import as_model_says, mentioned, narrowing, services_of

    services = services_of(session.permissions.grants())
    needed = as_model_says(lambda text: chat([{"role": "user", "content": text}], []).text)
    found = (mentioned if how == "mentioned" else needed)(prompt, services)
    session.permissions.narrow(narrowing(found), f"{how}: {', '.join(sorted(found)) or 'none'}")
    click.echo(f"services of this task: {', '.join(sorted(found)) or 'none'}", err=True)
