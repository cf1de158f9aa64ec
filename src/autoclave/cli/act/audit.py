"""`autoclave act audit`: is the journal as it was written, and what does it say."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autoclave.cli.act.common import FILE, on_folder, opened

_DAMAGED = 1


@click.group(no_args_is_help=True)
def audit() -> None:
    """Look at the journal itself.

    \b
    Example: autoclave act audit verify --root project
    """


@audit.command()
@on_folder
def verify(root: Path, state: Path | None, name: str) -> None:
    """Look whether the journal is as it was written: altered, inserted, removed, truncated, rewritten or forged.

    Exit code 1 when it is not.

    \b
    Example: autoclave act audit verify --root project
    """
    with opened(root, state, name) as session:
        findings = session.audit()
        count = len(session.journal.records())
    for finding in findings:
        click.echo(f"{finding.damage} at record {finding.number}")
    if findings:
        sys.exit(_DAMAGED)
    click.echo(f"{count} records, as they were written")


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
