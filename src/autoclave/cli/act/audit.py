"""`autoclave act audit`: verify, checkpoint and export the journal."""

import sys
from pathlib import Path

import click

from autoclave.cli.act.common import FILE, on_folder, on_state, opened
from autoclave.core import InputError

_DAMAGED = 1


@click.group(no_args_is_help=True)
def audit() -> None:
    """Verify, checkpoint and export the journal.

    \b
    Example: autoclave act audit verify --root project
    """


@audit.command()
@click.option("--known", metavar="COUNT:DIGEST", help="Output of `audit checkpoint`, kept elsewhere.")
@on_folder
def verify(known: str | None, root: Path, state: Path | None, name: str) -> None:
    """Verify that no record of the journal was altered, inserted, removed or forged.

    The exit code is 1 if one was. A process that can write to journal and checkpoints can truncate both; --known
    detects that.

    \b
    Example: autoclave act audit verify --root project
    """
    checkpoint = _checkpoint(known) if known else None
    with opened(root, state, name) as session:
        findings = session.audit(checkpoint)
        count = len(session.journal.records())
    for finding in findings:
        click.echo(f"{finding.damage} at record {finding.number}")
    if findings:
        sys.exit(_DAMAGED)
    click.echo(f"{count} records, as they were written")


@audit.command()
@on_folder
def checkpoint(root: Path, state: Path | None, name: str) -> None:
    """Sign the journal, and print its number of records and last digest, to be kept elsewhere.

    \b
    Example: autoclave act audit checkpoint --root project
    """
    with opened(root, state, name) as session:
        made = session.journal.seal()
    click.echo(f"{made.count}:{made.head.hex()}")


def _checkpoint(known: str) -> tuple[int, bytes]:
    count, _, digest = known.partition(":")
    try:
        head = bytes.fromhex(digest)
        if len(head) != 32:
            raise ValueError
        return int(count), head
    except ValueError:
        raise InputError(f"--known {known!r}: must be what `audit checkpoint` printed, COUNT:DIGEST") from None


@audit.command()
@click.argument("out", type=FILE)
@click.option(
    "--format", "form", type=click.Choice(("jsonl", "otlp")), default="jsonl", show_default=True, help="Format of OUT."
)
@on_state
def export(out: Path, form: str, root: Path, state: Path | None) -> None:
    """Write the journal to OUT: a line of JSON per record, or the actions as OpenTelemetry spans (OTLP as JSON).

    Works beside a running session, and on a journal of another release.

    \b
    Example: autoclave act audit export journal.jsonl --root project
    """
    from autoclave.core.files import write_atomically
    from autoclave.runtime.export import as_json_lines, as_otlp
    from autoclave.runtime.journal import read_records
    from autoclave.runtime.opening import default_state

    records = read_records((state or default_state(root)) / "journal.sqlite")
    write_atomically(out, as_json_lines(records) if form == "jsonl" else as_otlp(records))
    click.echo(f"{len(records)} records in {out}")


@click.command(name="export")
@click.option("--git", "out", type=FILE, required=True, help="A new folder, for a bare repository.")
@on_folder
def export_history(out: Path, root: Path, state: Path | None, name: str) -> None:
    """Export the changes of the folder as a Git repository: a commit for each action that is not undone.

    \b
    Example: autoclave act export --git history.git --root project
    """
    from autoclave.runtime.git_export import export_git

    with opened(root, state, name) as session:
        count = export_git(session, out)
    click.echo(f"{count} actions in {out}; git --git-dir {out} log --patch shows them")
