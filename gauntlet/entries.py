"""Entries of the gauntlet: program texts with a small header, one file per entry, and the tasks they are judged on.

Reads files; runs nothing but the text of programs marked `build`, which is ours. Nothing here knows the judge.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoclave.core import Problem, Status

FOLDER = Path(__file__).parent
FAMILIES: Mapping[str, str] = {
    "early-exit": "the process ends before the answer is given or checked",
    "forged-result": "the program writes what the runner or the judge would write",
    "patched": "modules, builtins and import machinery are replaced",
    "lying-objects": "what is returned or printed says yes to every question",
    "stolen-answers": "the expected answer is looked for in memory, files, processes and on the network",
    "tampering": "runner, process 1, checker or proxy are manipulated",
    "residue": "something is passed to the next test or the next program",
    "time": "clocks, timers and CPU accounting are deceived",
    "bombs": "a resource is used up",
    "host-damage": "something outside of the cell is reached or left behind",
    "comparison": "text and values that comparison could take for something else",
    "induced-fault": "the judge is made to fail",
    "source-text": "the text of the program itself attacks decoding and compiling",
    "honest": "right programs of unusual habits, which must be accepted",
}
"""What the programs of each folder have in common."""

_HEADER_LINE = re.compile(r"(?:#|//): (?P<key>[a-z]+): (?P<value>.*)")
_FRESH = re.compile(r"FRESH_(TOKEN|SMALL)_[A-Z]")
_LONG_TEXT = "0123456789" * 30_000
_KEYS = ("task", "tries", "verdict", "harms", "known", "build")
_STATUSES = frozenset(status.value for status in Status)


class EntryError(ValueError):
    """A file of the gauntlet is not in its form; the message begins with `file:line`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One program of an entry: what it is judged on and which statuses are deserved."""

    task: str
    verdicts: frozenset[str]
    text: str
    is_built: bool

    def source(self, literals: Mapping[str, str]) -> str:
        """The program text. Each name in `literals` stands for the Python or C++ literal it is mapped to."""
        text = re.sub(rf"\b({'|'.join(literals)})\b", lambda found: literals[found[0]], self.text)
        if not self.is_built:
            return text
        namespace: dict[str, str] = {}
        exec(compile(text, "<build>", "exec"), namespace)
        return namespace["program"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One attack, or one honest control: programs that are judged one after the other."""

    family: str
    name: str
    tries: str
    """In one sentence."""
    harms: str
    """What it would do to a host without a sealed cell; such an entry runs in sealed cells only."""
    known: str
    """Where it is documented that this one works; it is run and reported, and does not fail the gauntlet."""
    attempts: tuple[Attempt, ...]

    @property
    def is_honest(self) -> bool:
        return self.family == "honest"


def read_entries(folder: Path = FOLDER / "programs") -> list[Entry]:
    """All entries, by family and name.

    Raises:
        EntryError: a file is not in its form.
    """
    paths = [path for family in FAMILIES for path in sorted((folder / family).iterdir())]
    unknown = {path.name for path in folder.iterdir()} - set(FAMILIES)
    if unknown:
        raise EntryError(f"{folder}:0: {', '.join(sorted(unknown))}: not a family; they are {', '.join(FAMILIES)}")
    return [read_entry(path) for path in paths]


def read_entry(path: Path) -> Entry:
    """The entry in one file.

    Raises:
        EntryError: it is not in its form.
    """
    sections = list(_sections(path))
    first = sections[0][1]
    if not first.get("tries"):
        raise EntryError(f"{path}:1: no line '#: tries: ...'")
    attempts = tuple(_attempt(path, *section) for section in sections)
    if len({(attempt.task, attempt.text) for attempt in attempts}) < len(attempts):
        raise EntryError(f"{path}:1: two programs are the same; a judge remembers, and would run only one")
    return Entry(path.parent.name, path.stem, first["tries"], first.get("harms", ""), first.get("known", ""), attempts)


def _sections(path: Path) -> Iterator[tuple[int, dict[str, str], str]]:
    """(line, header, program text) of each program in the file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    number = 0
    while number < len(lines):
        start, header = number, dict[str, str]()
        while number < len(lines) and (found := _HEADER_LINE.fullmatch(lines[number].rstrip("\n"))):
            header[found["key"]] = f"{header.get(found['key'], '')} {found['value']}".strip()
            number += 1
        if not header:
            raise EntryError(f"{path}:{number + 1}: must begin with '#: task: ...'")
        number += lines[number : number + 1] == ["\n"]
        begin = number
        while number < len(lines) and not _HEADER_LINE.fullmatch(lines[number].rstrip("\n")):
            number += 1
        yield start + 1, header, "".join(lines[begin:number])


def _attempt(path: Path, line: int, header: dict[str, str], text: str) -> Attempt:
    unknown = set(header) - set(_KEYS)
    if unknown:
        raise EntryError(f"{path}:{line}: {sorted(unknown)[0]}: must be one of {', '.join(_KEYS)}")
    if header.get("task") not in _task_lines():
        raise EntryError(f"{path}:{line}: task = {header.get('task')!r}: no such task in tasks.jsonl")
    verdicts = frozenset(header.get("verdict", "").split())
    if not verdicts or verdicts - _STATUSES:
        raise EntryError(
            f"{path}:{line}: verdict = {header.get('verdict')!r}: must be of {', '.join(sorted(_STATUSES))}"
        )
    if path.parent.name == "honest" and verdicts != {Status.ACCEPTED}:
        raise EntryError(f"{path}:{line}: verdict = {header.get('verdict')!r}: an honest control is accepted")
    return Attempt(header["task"], verdicts, text, header.get("build") == "yes")


@cache
def _task_lines() -> dict[str, str]:
    lines = (FOLDER / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return {json.loads(line)["id"]: line for line in lines}


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one run of the gauntlet. Answers to be stolen are fresh in each, so that no program knows them."""

    problems: Mapping[str, Problem]
    token: str
    """The answer of the tasks whose name begins with `token`, which nobody can compute."""


def fresh_tasks() -> Tasks:
    """All tasks, with FRESH_TOKEN_A and the like replaced by random text, FRESH_SMALL_A by a number below 32."""
    values: dict[str, str] = {}

    def value_of(found: re.Match[str]) -> str:
        made = f"token:{secrets.token_hex(8)}" if found[1] == "TOKEN" else str(secrets.randbelow(32))
        return values.setdefault(found[0], made)

    filled = {
        name: json.loads(_FRESH.sub(value_of, line).replace("LONG_TEXT", _LONG_TEXT))
        for name, line in _task_lines().items()
    }
    problems = {name: Problem.from_json(line, f"tasks.jsonl ({name})") for name, line in filled.items()}
    return Tasks(problems, values["FRESH_TOKEN_A"])
