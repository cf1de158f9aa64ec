"""The known layouts by name, and the conversion of rows into candidates."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from autoclave.core import Problem
from autoclave.core.errors import DataError, InputError
from autoclave.core.problem import StoredTests
from autoclave.problems.candidate import Origin, ProblemCandidate, SkippedRow
from autoclave.problems.readers import answers, apps, checks, contests, livecodebench
from autoclave.problems.readers.row import RawRow, Reader, ReadProblem, UnusableRow, parsed

_MAX_WRONG_ROWS = 100
"""Number of first rows without any problem after which the source has another layout."""
_WRONG_LAYOUT = frozenset({"missing_field", "wrong_type", "not_json", "not_utf8"})
_ENDING = re.compile(r"(?:\.(?:jsonl|ndjson|json|parquet|arrow|gz|zst))+(?=:|$)")


@dataclass(frozen=True, slots=True)
class Layout:
    """Reader of the rows of a set.

    Attributes:
        read: returns a row as a problem.
        licence: of the published set, not of its problems. Empty: see its page.
        releases: files of each release, for sets that grow by files.
    """

    read: Reader
    licence: str = ""
    releases: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


def autoclave(row: RawRow) -> ReadProblem:
    """Files in the format `autoclave-problem/1`."""
    return ReadProblem(Problem.from_json(dict(row.fields), row.place))


def any_row(row: RawRow) -> ReadProblem:
    """A row of any of these layouts, or of a trainer, whose `reward_model` holds the tests (verl).

    Raises UnusableRow: no field tells how it is judged (`unknown_layout`), or as the reader of its layout.
    """
    if row.has("reward_model"):
        if (kind := row.text_or("code", "ability")) != "code":
            raise UnusableRow("not_code", f"ability = {kind!r}")
        return tests_alone(row.struct("reward_model").value("ground_truth"), row.struct("extra_info").fields, row.place)
    fields = {name: value for name, value in row.fields.items() if value is not None}
    for telling, name, statement in _TELLING:
        if fields.keys() >= set(telling.split()):
            return LAYOUTS[name].read(RawRow(row.place, {statement: "", **fields} if statement else fields))
    if fields.keys() & _TESTS:
        return tests_alone(fields, {}, row.place)
    if row.has("problem"):  # the column of which the trainers' functions of `autoclave.integrations` read
        return tests_alone(fields["problem"], {n: fields[n] for n in CONTEXT if n in fields}, row.place)
    present = ", ".join(sorted(map(str, fields))[:12]) or "none"
    raise UnusableRow("unknown_layout", f"no field tells how it is judged; its fields: {present}")


def tests_alone(given: Any, context: Mapping[str, Any], place: str) -> ReadProblem:
    """Return the problem of tests as trainers keep them: in a form of the sets, a whole row, or a digest.

    Args:
        context: what the trainer keeps beside them; a function is named there, or in its `metadata`.

    Raises:
        UnusableRow: none of these forms.
    """
    if isinstance(given, str) and _DIGEST.fullmatch(given.strip()):
        return ReadProblem(Problem("", StoredTests("stored", given.strip()), id=given.strip()[:16]))
    with suppress(UnusableRow):  # a script of assertions
        given = parsed(given, "tests")
    if isinstance(given, Mapping) and not (fields := cast("Mapping[str, Any]", given)).keys() & _TESTS:
        read = any_row(RawRow(place, fields))
    else:
        found = RawRow(place, context)
        metadata = {**context, **found.struct("metadata").fields}
        tests = {"problem": "", "tests": given, "starter_code": found.text_or("", "starter_code"), "metadata": metadata}
        read = contests.rllm(RawRow(place, tests))
    return replace(read, problem=replace(read.problem, id=read.problem.id or read.problem.digest[:16]))


CONTEXT = ("fn_name", "func_name", "starter_code", "metadata")
"""Fields of a row that are read beside tests that stand alone."""
_DIGEST = re.compile("[0-9a-f]{64}")
_TESTS = frozenset({"inputs", "functional", "assert_case"})
_TELLING: Sequence[tuple[str, str, str]] = (
    ("format", "autoclave", ""),
    ("verification_info", "synthetic1", "prompt"),
    ("original_json", "livebench", ""),
    ("public_test_cases", "livecodebench", "question_content"),
    ("entry_point completion", "leetcode", "problem_description"),
    ("entry_point declaration", "humanevalpack", ""),
    ("test_list", "mbpp", "text"),
    ("entry_point assertion", "mbpp_plus", ""),
    ("entry_point canonical_solution", "humaneval", ""),
    ("test test_info", "kodcode", "question"),
    ("files", "apps", ""),
    ("input_output", "taco", "question"),
    ("public_tests", "code_contests", "description"),
    ("content test", "code_contests", ""),
    ("official_tests", "codeforces", ""),
    ("tests", "rllm", "problem"),
)
"""Fields that only one layout has, its name, and its field of the statement, which rows for judging may lack."""

LAYOUTS: Mapping[str, Layout] = {
    "any": Layout(any_row),
    "autoclave": Layout(autoclave),
    "apps": Layout(apps.apps, "MIT"),
    "taco": Layout(apps.taco, "Apache-2.0"),
    "taco_verified": Layout(apps.taco, "Apache-2.0"),
    "synthetic1": Layout(contests.verifiable, "Apache-2.0"),
    "verifiable_coding_problems": Layout(contests.verifiable),
    "eurus2": Layout(apps.eurus2, "MIT"),
    "deepcoder": Layout(contests.rllm, "MIT"),
    "rllm": Layout(contests.rllm, "MIT"),
    "kodcode": Layout(checks.kodcode, "CC-BY-NC-4.0"),
    "livecodebench": Layout(livecodebench.livecodebench, "CC", livecodebench.RELEASES),
    "livecodebench_execution": Layout(livecodebench.livecodebench_execution, "CC"),
    "livecodebench_execution_program": Layout(answers.livecodebench_execution_program, "CC"),
    "livecodebench_test_output": Layout(livecodebench.livecodebench_test_output, "CC"),
    "leetcode": Layout(checks.leetcode, "Apache-2.0"),
    "code_contests": Layout(contests.code_contests, "CC-BY-4.0"),
    "codeforces": Layout(contests.codeforces, "CC-BY-4.0"),
    "humaneval": Layout(checks.humaneval, "MIT"),
    "humaneval_plus": Layout(checks.humaneval, "Apache-2.0"),
    "humanevalpack": Layout(checks.humanevalpack, "MIT"),
    "mbpp": Layout(checks.mbpp, "CC-BY-4.0"),
    "mbpp_plus": Layout(checks.mbpp, "Apache-2.0"),
    "cruxeval": Layout(answers.cruxeval, "MIT"),
    "cruxeval_program": Layout(answers.cruxeval_program, "MIT"),
    "cruxeval_input": Layout(answers.cruxeval_input, "MIT"),
    "livebench": Layout(livecodebench.livebench),
    "aime": Layout(answers.aime),
    "math": Layout(answers.mathematics, "MIT"),
}


def read_rows(name: str, label: str, rows: Iterable[RawRow | SkippedRow]) -> Iterator[ProblemCandidate | SkippedRow]:
    """Yield the rows of the layout `name` as candidates of the source `label`, or as skipped rows with a reason.

    Raises InputError: the first rows all have another layout.
    """
    read = LAYOUTS[name].read
    num_wrong: int | None = 0
    for row in rows:
        found = row if isinstance(row, SkippedRow) else read_candidate(read, name, label, row)
        yield found
        if num_wrong is not None:
            wrong = isinstance(found, SkippedRow) and found.reason in _WRONG_LAYOUT
            num_wrong = num_wrong + 1 if wrong else None
            if num_wrong == _MAX_WRONG_ROWS and isinstance(found, SkippedRow):
                raise InputError(
                    f"set = {name!r}: none of the first {_MAX_WRONG_ROWS} rows of {label} has this layout; the "
                    f"last one, {found.row}: {found.detail}. docs/reference/readers.md lists the layouts"
                )


def read_candidate(read: Reader, name: str, label: str, row: RawRow) -> ProblemCandidate | SkippedRow:
    """Return a row as a candidate, with the id of its place if it has none, or the reason why it is unusable."""
    try:
        found = read(row)
        id = found.problem.id or f"{name}/{_ENDING.sub('', row.place).replace(':', '-')}"
        source = found.problem.source or name
        checked = Problem.from_json(replace(found.problem, id=id, source=source).to_json(), "problem")
    except UnusableRow as unusable:
        return SkippedRow(row.place, unusable.reason, unusable.detail)
    except DataError as error:
        return SkippedRow(row.place, "malformed", str(error))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        return SkippedRow(row.place, "malformed", f"{type(error).__name__}: {error}"[:300])
    return ProblemCandidate(checked, Origin(label, row.place, found.key, found.url, found.title))
