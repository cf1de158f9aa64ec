"""A candidate program, and the lines of a programs file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoclave.core.errors import DataError
from autoclave.core.files import read_jsonl
from autoclave.core.json import shown


@dataclass(frozen=True, slots=True)
class Program:
    """Source text in one language. Nothing in it is trusted."""

    source: str
    language: str = "python"


@dataclass(frozen=True, slots=True)
class Submission:
    """One line of a programs file: a program, or raw model text a program is yet to be extracted from.

    Exactly one of `source` and `response` is given. `id` is `<problem_id>#<line>` when the line has none.
    """

    problem_id: str
    id: str
    source: str | None
    response: str | None
    where: str


def read_submissions(path: Path) -> Iterator[Submission]:
    """The lines of a programs file, one at a time. Keys besides problem_id, source, response and id are ignored.

    Raises:
        InputError: the file is missing.
        DataError: a line lacks `problem_id`, or has not exactly one of `source` and `response`; the message begins
            with `file:line`.
    """
    for where, value in read_jsonl(path, "programs file"):
        line = where.rpartition(":")[2]
        problem_id = value.get("problem_id")
        if not isinstance(problem_id, str):
            raise DataError(f"{where}: problem_id = {shown(problem_id)}: must be the id of a problem, as text")
        given = [key for key in ("source", "response") if key in value]
        if len(given) != 1:
            raise DataError(
                f"{where}: give exactly one of source and response; found {' and '.join(given) or 'neither'}"
            )
        if not isinstance(value[given[0]], str):
            raise DataError(f"{where}: {given[0]} = {shown(value[given[0]])}: must be text")
        label = value.get("id", f"{problem_id}#{line}")
        if not isinstance(label, str):
            raise DataError(f"{where}: id = {shown(label)}: must be text")
        yield Submission(problem_id, label, value.get("source"), value.get("response"), where)
