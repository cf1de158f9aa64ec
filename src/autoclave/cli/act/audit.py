"""`autoclave act audit`: is the journal as it was written, and what does it say."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autoclave.cli.act.common import FILE, on_folder, opened
from autoclave.core import InputError

_DAMAGED = 1


@click.group(no_args_is_help=True)
def audit() -> None:
    """Look at the journal itself.

    \b
    Example: autoclave act audit verify --root project
    """


@audit.command()
@click.option("--known", metavar="COUNT:DIGEST", help="What `audit checkpoint` said, kept elsewhere.")
@on_folder
def verify(known: str | None, root: Path, state: Path | None, name: str) -> None:
    """Look whether the journal is as it was written: altered, inserted, removed, truncated, rewritten, forged ...

    Exit code 1 when it is not. Without --known, who can write to the journal and its checkpoints can cut both off.

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
    """Sign the journal as it is, and say how many records there are and the digest of the last, to be kept elsewhere.

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
    "--format",
    "form",
    type=click.Choice(("jsonl", "otlp")),
    default="jsonl",
    show_default=True,
    help="How it is written.",
)
@on_folder
def export(out: Path, form: str, root: Path, state: Path | None, name: str) -> None:
    """Write the journal to OUT: a line of JSON per record, or the actions as OpenTelemetry spans (OTLP as JSON).

    \b
    Example: autoclave act audit export journal.jsonl --root project
    """
    from autoclave.core.files import write_atomically
    from autoclave.runtime.export import as_json_lines, as_otlp

    with opened(root, state, name) as session:
        records = session.journal.records()
    write_atomically(out, as_json_lines(records) if form == "jsonl" else as_otlp(records))
    click.echo(f"{len(records)} records in {out}")
