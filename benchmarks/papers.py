"""Check `docs/reference/papers.yaml`, which says where each part of the four papers is, and render it. Not a benchmark.

    python -m benchmarks.papers            report rows whose module, test, command or setting does not exist
    python -m benchmarks.papers --write    the same, then render the tables of docs/reference/papers.md

The data maps each paper to its sections, and each section to its rows. A row has `what` the paper describes, the
`value` it prints, `module` (dotted symbols, or paths of files that are not Python), `test` (`FILE::NAME`), `command`,
`status` and `note`. Modules and tests are parsed, never imported; commands are parsed by the command line itself.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import yaml

from autoclave.cli.main import cli
from autoclave.cli.settings import SHORT, resolve
from autoclave.config import BenchmarkConfig, Config, CurateConfig, JudgeRunConfig, ServeConfig, TrainConfig, load
from autoclave.config.loader import parse_override
from autoclave.core import AutoclaveError

ROOT = Path(__file__).resolve().parent.parent
DATA, PAGE = ROOT / "docs" / "reference" / "papers.yaml", ROOT / "docs" / "reference" / "papers.md"
DEFINITIONS = ROOT / "src" / "autoclave" / "evaluation" / "definitions"
STATUSES = {
    "tested": "implemented and tested",
    "not at scale": "implemented and tested, never run at the paper's scale",
    "partly": "partly",
    "absent": "not here",
}
LISTS = ("module", "test", "command")
FIELDS = {"what", "value", *LISTS, "status", "note"}
SCHEMAS = {"curate": CurateConfig, "serve": ServeConfig, "judge": JudgeRunConfig, "run": JudgeRunConfig}
_BLOCK = re.compile(r"(?<=<!-- papers -->\n).*?(?=<!-- /papers -->)", re.DOTALL)
_SETTING = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)+)(?:=[^`]*)?`")
_FILE = re.compile(r"\.(ya?ml|jsonl?|md|html|py|sbatch)$")

Row = Mapping[str, Any]


def read(path: Path = DATA) -> dict[str, Any]:
    """Return the papers by their keys."""
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def rows(papers: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield every row with its place."""
    for key, paper in papers.items():
        for section, found in paper["sections"].items():
            for number, row in enumerate(found, 1):
                yield f"{key}, {section}, row {number}", row


def problems(papers: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with each row, with its place."""
    with chdir(ROOT):
        for place, row in rows(papers):
            for problem in problems_of(row):
                yield f"{place} ({row.get('what')}): {problem}"


def problems_of(row: Row) -> Iterator[str]:
    """Yield what is wrong with a row."""
    if unknown := row.keys() - FIELDS:
        yield f"unknown fields {sorted(unknown)}"
    status = row.get("status")
    needed = {"what", "status"} | ({"module", "test"} if status in ("tested", "not at scale") else {"note"})
    if missing := sorted(name for name in needed if not row.get(name)):
        yield f"status {status!r} needs {', '.join(missing)}"
    if status not in STATUSES:
        yield f"status {status!r} is not one of {', '.join(STATUSES)}"
    yield from (f"no symbol {name}" for name in row.get("module", ()) if not has_symbol(name))
    yield from (f"no test {name}" for name in row.get("test", ()) if not has_test(name))
    yield from filter(None, map(problem_of_command, row.get("command", ())))
    text = " ".join(str(row.get(name, "")) for name in ("what", "value", "note"))
    yield from (
        f"no setting {key}" for key in _SETTING.findall(text) if not _FILE.search(key) and key not in settings()
    )


# --- Modules and tests ------------------------------------------------------------------------------------------------


@cache
def _names(path: Path) -> frozenset[str]:
    """Return dotted names that a file defines: functions, classes, their methods and fields, and variables."""
    found: set[str] = set()

    def visit(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(prefix + name)
                case ast.ClassDef(name=name):
                    found.add(prefix + name)
                    visit(node.body, f"{prefix}{name}.")
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                    found.add(prefix + name)
                case _:
                    pass

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def has_symbol(name: str) -> bool:
    """Return whether a dotted symbol is defined where it says, or a file exists."""
    if "/" in name:
        return (ROOT / name).exists()
    parts = name.split(".")
    top = ROOT / {"autoclave": "src", "autoclave_testing": "testing", "autoclave_environments": "environments"}.get(
        parts[0], ""
    )
    for length in range(len(parts), 0, -1):
        module = top.joinpath(*parts[:length])
        for path in (module.with_name(f"{module.name}.py"), module / "__init__.py"):
            if path.is_file():
                return length == len(parts) or ".".join(parts[length:]) in _names(path)
    return False


def has_test(name: str) -> bool:
    """Return whether a file has a test `FILE::NAME` or `FILE::CLASS::NAME`."""
    file, _, function = name.partition("::")
    return (
        function[:4].lower() == "test"
        and (ROOT / file).is_file()
        and function.replace("::", ".") in _names(ROOT / file)
    )


# --- Commands and settings --------------------------------------------------------------------------------------------


@cache
def problem_of_command(command: str) -> str | None:
    """Return what is wrong with a command; None for one that can be called."""
    words = shlex.split(command)
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]  # a variable of the environment
    match words:
        case ["autoclave", *rest]:
            found = _problem_of_call(rest)
        case ["make", target]:
            found = None if re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) else "no target"
        case ["python", "-m", module, *options]:
            found = _problem_of_script(ROOT / f"{module.replace('.', '/')}.py", options)
            found = None if not options and (ROOT / module / "__main__.py").is_file() else found
        case ["python", script, *options]:
            found = _problem_of_script(ROOT / script, options)
        case ["pytest", *paths]:
            found = ", ".join(f"no {path}" for path in paths if "/" in path and not (ROOT / path).exists())
        case _:
            found = "not a command of this project"
    return f"{command}: {found}" if found else None


def _problem_of_script(script: Path, options: Sequence[str]) -> str | None:
    if not script.is_file():
        return f"no {script.relative_to(ROOT)}"
    text = script.read_text(encoding="utf-8")
    beside = [script.with_name(f"{name}.py") for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)]
    text += "".join(path.read_text(encoding="utf-8") for path in beside if path.is_file())
    return ", ".join(f"no option {word}" for word in options if word.startswith("--") and f'"{word}"' not in text)


def _problem_of_call(words: Sequence[str]) -> str | None:
    """Return why the command line refuses these words, or the settings among them."""
    command, path, rest = cli, list[str](), list(words)
    context = click.Context(cli, **cli.context_settings)  # click keeps the first names of the help option
    try:
        while isinstance(command, click.Group) and not (
            command.invoke_without_command and rest[0] not in command.commands
        ):
            name, inner, rest = command.resolve_command(context, rest)
            assert name
            assert inner
            command, path = inner, [*path, name]
            context = click.Context(command, parent=context, info_name=name)
        given = command.make_context(path[-1], rest, parent=context.parent)
        given.params.setdefault("settings", given.meta.get("settings", ()))
        _load(path, given.params)
    except (click.ClickException, AutoclaveError) as error:
        return error.format_message() if isinstance(error, click.ClickException) else str(error)
    return None


def _load(path: Sequence[str], given: Mapping[str, Any]) -> None:
    """Load the settings of a command as it does."""
    texts = given["settings"]
    if path[:2] == ["act", "connect"]:
        from autoclave.runtime.connections import ModelPlace
        from autoclave.runtime.databases.settings import DatabaseConnection
        from autoclave.runtime.rest.connection import ServiceConnection

        forms = {"database": DatabaseConnection, "service": ServiceConnection, "model": ModelPlace}
        fields, keys = forms[path[-1]].model_fields, {text.partition("=")[0] for text in texts}
        wrong = sorted(keys - fields.keys()) + [
            name for name in fields if fields[name].is_required() and name not in keys
        ]
        if wrong:
            raise AutoclaveError(f"{', '.join(wrong)}: not a setting of {' '.join(path)}, or missing")
    elif benchmark := given.get("benchmark"):
        file = Path(benchmark) if "/" in benchmark else DEFINITIONS / f"{benchmark}.yaml"
        load(BenchmarkConfig, file, [parse_override(text) for text in texts])
    elif texts:
        short = {name: given[name] for name in SHORT if name in given}
        resolve(SCHEMAS.get(path[0], TrainConfig), texts, short)


@cache
def settings() -> frozenset[str]:
    """Return the dotted keys of all settings."""
    return frozenset(key for schema in (TrainConfig, BenchmarkConfig, *SCHEMAS.values()) for key in _keys(schema, ""))


def _keys(schema: type[Config], prefix: str) -> Iterator[str]:
    for name, field in schema.model_fields.items():
        yield prefix + name
        for block in _blocks(field.annotation):
            yield from _keys(block, f"{prefix}{name}.")


def _blocks(annotation: Any) -> Iterator[type[Config]]:
    """Yield the blocks of settings that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for inner in get_args(getattr(annotation, "__value__", annotation)):
        yield from _blocks(inner)


# --- The page ---------------------------------------------------------------------------------------------------------


def tables(papers: Mapping[str, Any]) -> str:
    """Return the tables of the page as Markdown."""
    counts = ["| paper | rows |" + "".join(f" {words} |" for words in STATUSES.values()), "| --- " * 6 + "|"]
    parts: list[str] = []
    for paper in papers.values():
        found = [row for section in paper["sections"].values() for row in section]
        of_status = [sum(row["status"] == status for row in found) for status in STATUSES]
        counts.append(f"| {paper['title']} | {len(found)} |" + "".join(f" {count} |" for count in of_status))
        parts.append(f"## {paper['title']}\n\n{paper['source']}\n")
        for section, in_section in paper["sections"].items():
            lines = ["| what | value | where, tests, commands | status |", "| --- " * 4 + "|", *map(_line, in_section)]
            parts.append(f"### {section}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(["\n".join(counts) + "\n", *parts])


def _line(row: Row) -> str:
    found = "<br>".join(f"`{text.removeprefix('autoclave.')}`" for name in LISTS for text in row.get(name, ()))
    status = STATUSES[row["status"]] + (f": {row['note']}" if row.get("note") else "")
    cells = [row["what"], str(row.get("value", "")), found, status]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def rendered(page: str, papers: Mapping[str, Any]) -> str:
    """Return the page with the tables of the data."""
    return _BLOCK.sub(lambda _: tables(papers), page)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="render the tables of the page")
    write = parser.parse_args().write
    papers, page = read(), PAGE.read_text(encoding="utf-8")
    found = list(problems(papers))
    if write and not found:
        PAGE.write_text(rendered(page, papers), encoding="utf-8")
    elif rendered(page, papers) != page:
        found.append("docs/reference/papers.md differs from papers.yaml. Fix: python -m benchmarks.papers --write")
    print("\n".join(found) or f"{len(list(rows(papers)))} rows, all found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
