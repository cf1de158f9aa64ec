"""The figures of the docs: all in `docs/figures.yaml`, and the pages rendered from it. Not a benchmark.

    python -m benchmarks.figures --write           render the pages, and mark what is old
    python -m benchmarks.figures --check [--age]   fail where a page differs from the data (--age: or its marks are old)
    python -m benchmarks.figures --adopt KEY ...   take the blocks over that were written by hand on a page

A block on a page stands between `<!-- figures KEY -->` and `<!-- /figures -->`. Its entry holds `command`, `machine`,
`commit`, `date`, the `paths` of the code that the figures depend on, and the `body`: texts, and tables as columns and
rows. `[[KEY/NAME]]` in a body is the value NAME of `values` in the entry KEY, so that a figure which two pages quote is
written down once. `[[source]]` in a body shows the entry's own commands, machine, commit and date. Where code
under `paths` changed after `commit`, the block ends with a line that says so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = "docs/figures.yaml"
FIELDS = ("command", "machine", "commit", "date", "paths", "body")
_BLOCK = re.compile(r"(<!-- figures (?P<key>[\w.-]+) -->\n)(?P<body>.*?)(<!-- /figures -->)", re.DOTALL)
_MARK = re.compile(r"\n\*Measured at commit [^\n]*\*\n")
_QUOTED = re.compile(r"\[\[([\w.-]+)/([^\]]+)\]\]")


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are, rows of tables on a line each."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
_Dumper.add_representer(
    list,
    lambda dumper, items: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", items, flow_style=all(isinstance(item, str) and "\n" not in item for item in items)
    ),
)


def main(root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="render the pages")
    parser.add_argument("--check", action="store_true", help="fail where a page differs from the data")
    parser.add_argument("--age", action="store_true", help="with --check: marks of old figures count")
    parser.add_argument("--adopt", nargs="+", metavar="KEY", help="take blocks over that were written on a page")
    options = parser.parse_args()
    entries = read_entries(root)
    if options.adopt:
        adopt(root, entries, options.adopt)
    if options.write or options.adopt:
        for path in pages(root):
            path.write_text(rendered(path.read_text(encoding="utf-8"), entries, root), encoding="utf-8")
    problems = [*missing_fields(entries), *differences(root, entries, is_aged=options.age)]
    print("\n".join(problems) or f"{len(entries)} entries, all rendered")
    return 1 if problems else 0


def differences(root: Path, entries: Mapping[str, Any], *, is_aged: bool = False) -> Iterator[str]:
    """What pages say otherwise than the data, or say beside it."""
    for path in pages(root):
        page, name = path.read_text(encoding="utf-8"), path.relative_to(root)
        if rendered(page, entries, root if is_aged else None) != (page if is_aged else _MARK.sub("", page)):
            yield f"{name}: differs from {DATA}. Fix: edit {DATA} and run `python -m benchmarks.figures --write`"
        yield from (
            f"{name}: a table of figures outside of a block. Fix: put it into one: {row}" for row in loose(path)
        )


def read_entries(root: Path) -> dict[str, Any]:
    """The entries of the data file by their keys."""
    return yaml.safe_load((root / DATA).read_text(encoding="utf-8")) or {}


def pages(root: Path) -> list[Path]:
    """README and all pages of the docs."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def missing_fields(entries: Mapping[str, Any]) -> Iterator[str]:
    """What an entry lacks."""
    for key, entry in entries.items():
        if lacking := [field for field in FIELDS if not entry.get(field)]:
            yield f"{DATA}: {key}: missing {', '.join(lacking)}. Fix: say how, where and when it was measured"


def rendered(page: str, entries: Mapping[str, Any], history: Path | None) -> str:
    """The page with its blocks as the data says; with marks of age by the history of a checkout, or without."""

    def block(found: re.Match[str]) -> str:
        key = found["key"]
        if key not in entries:
            raise SystemExit(f"{DATA}: no entry {key!r}. Fix: python -m benchmarks.figures --adopt {key}")
        mark = age(entries[key], history) if history else ""
        if mark is None:
            mark = "".join(_MARK.findall(found["body"]))
        return f"{found[1]}{text_of(entries[key], entries)}{mark}{found[4]}"

    return _BLOCK.sub(block, page)


def text_of(entry: Mapping[str, Any], entries: Mapping[str, Any]) -> str:
    """The body of an entry as Markdown."""
    text = "\n\n".join(part.rstrip() if isinstance(part, str) else _table(part) for part in entry["body"]) + "\n"
    if "[[source]]" in text:
        text = text.replace("[[source]]", _source(entry))
    return _QUOTED.sub(lambda found: str(entries[found[1]]["values"][found[2]]), text)


def _source(entry: Mapping[str, Any]) -> str:
    """Return the commands of an entry as a block of code, then its machine, commit and date."""
    commands = "\n".join(f"    {command}" for command in entry["command"].split("; "))
    machine = entry["machine"][:1].upper() + entry["machine"][1:]
    return f"{commands}\n\n{machine}; commit {entry['commit']}, {entry['date']}."


def _table(part: Mapping[str, Any]) -> str:
    rows = [part["columns"], ["---"] * len(part["columns"]), *part["rows"]]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)


def age(entry: Mapping[str, Any], checkout: Path) -> str | None:
    """The mark of an entry whose code changed since, "" for a current one, None where the history is missing."""
    git = ["git", "-C", str(checkout), "log", "--format=%h", f"{entry['commit']}..HEAD", "--"]
    runs = {path: subprocess.run([*git, path], capture_output=True, text=True, check=False) for path in entry["paths"]}
    if any(run.returncode for run in runs.values()):
        print(f"The history of this checkout lacks commit {entry['commit']}: marks stay as they are")
        return None
    changed = [f"`{path}`" for path, run in runs.items() if run.stdout]
    if not changed:
        return ""
    return f"\n*Measured at commit {entry['commit']}; changed since then: {', '.join(changed)}.*\n"


def loose(path: Path) -> list[str]:
    """Rows of results or of the README's table that hold a number and stand in no block."""
    if path.name not in ("results.md", "README.md"):
        return []
    rest = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    return [row for row in re.findall(r"^\|.*\|$", rest, re.MULTILINE) if re.search(r"\d\.\d|\d{2}", row)]


def adopt(root: Path, entries: dict[str, Any], keys: list[str]) -> None:
    """Write the bodies of blocks on pages into the data; a new entry gets fields to be filled in."""
    for page in pages(root):
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            if found["key"] not in keys:
                continue
            entry = entries.setdefault(
                found["key"],
                {"command": "", "machine": "", "commit": _head(root), "date": str(date.today()), "paths": []},
            )
            if any(isinstance(part, str) and _QUOTED.search(part) for part in entry.get("body", [])):
                raise SystemExit(f"{DATA}: {found['key']}: it quotes values of other entries. Fix: edit it there")
            entry["body"] = parsed(_MARK.sub("", found["body"]))
    write_entries(root, entries)


def parsed(markdown: str) -> list[Any]:
    """A body as texts and tables."""
    parts: list[Any] = []
    for number, piece in enumerate(re.split(r"((?:^\|[^\n]*\|\n)+)", markdown, flags=re.MULTILINE)):
        if number % 2:
            rows = [[cell.strip() for cell in row[1:-1].split("|")] for row in piece.splitlines()]
            parts.append({"columns": rows[0], "rows": rows[2:]})
        elif piece.strip():
            parts.append(piece.strip("\n") + "\n")
    return parts


def write_entries(root: Path, entries: Mapping[str, Any]) -> None:
    """Write the data file."""
    text = yaml.dump(dict(entries), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    (root / DATA).write_text(text, encoding="utf-8")


def _head(checkout: Path) -> str:
    run = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return run.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
