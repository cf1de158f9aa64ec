"""The layouts that can be read, by their names, and rows of a layout as candidates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoclave.core import Problem
from autoclave.core.errors import DataError, InputError
from autoclave.problems.candidate import Candidate, Origin, Unread
from autoclave.problems.readers.answers import aime, cruxeval, cruxeval_input, mathematics
from autoclave.problems.readers.apps import apps, eurus2, taco
from autoclave.problems.readers.checks import humaneval, humanevalpack, kodcode, leetcode, mbpp
from autoclave.problems.readers.contests import code_contests, codeforces
from autoclave.problems.readers.livecodebench import (
    RELEASES,
    livebench,
    livecodebench,
    livecodebench_execution,
    livecodebench_test_output,
)
from autoclave.problems.readers.programs import cruxeval_program, livecodebench_execution_program
from autoclave.problems.readers.rllm import rllm
from autoclave.problems.readers.row import Reader, ReadProblem, Row, UnusableRow
from autoclave.problems.readers.verifiable import verifiable

_HOPELESS = 100
"""After so many rows, and no problem among them, a source is taken for one of another layout."""
_WRONG_LAYOUT = frozenset({"missing_field", "wrong_type", "not_json", "not_utf8"})
_ENDING = re.compile(r"(?:\.(?:jsonl|ndjson|json|parquet|arrow|gz|zst))+(?=:|$)")


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a set are read.

    Attributes:
        read: a row as a problem.
        licence: of the set as it was published; of the problems themselves it says nothing. Empty: see its page.
        releases: files of each release, for sets that grow by files.
    """

    read: Reader
    licence: str = ""
    releases: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


def own(row: Row) -> ReadProblem:
    """Our own files of problems."""
    return ReadProblem(Problem.from_json(dict(row.fields), row.place))


LAYOUTS: Mapping[str, Layout] = {
    "autoclave": Layout(own),
    "apps": Layout(apps, "MIT"),
    "taco": Layout(taco, "Apache-2.0"),
    "taco_verified": Layout(taco, "Apache-2.0"),
    "synthetic1": Layout(verifiable, "Apache-2.0"),
    "verifiable_coding_problems": Layout(verifiable),
    "eurus2": Layout(eurus2, "MIT"),
    "deepcoder": Layout(rllm, "MIT"),
    "rllm": Layout(rllm, "MIT"),
    "kodcode": Layout(kodcode, "CC-BY-NC-4.0"),
    "livecodebench": Layout(livecodebench, "CC", RELEASES),
    "livecodebench_execution": Layout(livecodebench_execution, "CC"),
    "livecodebench_execution_program": Layout(livecodebench_execution_program, "CC"),
    "livecodebench_test_output": Layout(livecodebench_test_output, "CC"),
    "leetcode": Layout(leetcode, "Apache-2.0"),
    "code_contests": Layout(code_contests, "CC-BY-4.0"),
    "codeforces": Layout(codeforces, "CC-BY-4.0"),
    "humaneval": Layout(humaneval, "MIT"),
    "humaneval_plus": Layout(humaneval, "Apache-2.0"),
    "humanevalpack": Layout(humanevalpack, "MIT"),
    "mbpp": Layout(mbpp, "CC-BY-4.0"),
    "mbpp_plus": Layout(mbpp, "Apache-2.0"),
    "cruxeval": Layout(cruxeval, "MIT"),
    "cruxeval_program": Layout(cruxeval_program, "MIT"),
    "cruxeval_input": Layout(cruxeval_input, "MIT"),
    "livebench": Layout(livebench),
    "aime": Layout(aime),
    "math": Layout(mathematics, "MIT"),
}


def read_rows(name: str, label: str, rows: Iterable[Row | Unread]) -> Iterator[Candidate | Unread]:
    """Rows of the layout `name` as candidates of the source `label`, in their order. What is no problem has its reason.

    Raises:
        InputError: the first rows are all of another layout.
    """
    read = LAYOUTS[name].read
    num_wrong: int | None = 0
    for row in rows:
        found = row if isinstance(row, Unread) else _candidate(read, name, label, row)
        yield found
        if num_wrong is not None:
            wrong = isinstance(found, Unread) and found.reason in _WRONG_LAYOUT
            num_wrong = num_wrong + 1 if wrong else None
            if num_wrong == _HOPELESS and isinstance(found, Unread):
                raise InputError(
                    f"set = {name!r}: none of the first {_HOPELESS} rows of {label} has this layout; the last one, "
                    f"{found.row}: {found.detail}. docs/reference/readers.md lists the layouts"
                )


def _candidate(read: Reader, name: str, label: str, row: Row) -> Candidate | Unread:
    try:
        found = read(row)
        id = found.problem.id or f"{name}/{_ENDING.sub('', row.place).replace(':', '-')}"
        source = found.problem.source or name
        checked = Problem.from_json(replace(found.problem, id=id, source=source).to_json(), "problem")
    except UnusableRow as unusable:
        return Unread(row.place, unusable.reason, unusable.detail)
    except DataError as error:
        return Unread(row.place, "malformed", str(error))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        return Unread(row.place, "malformed", f"{type(error).__name__}: {error}"[:300])
    return Candidate(checked, Origin(label, row.place, found.key, found.url, found.title))
