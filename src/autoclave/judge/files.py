"""Judge a file of programs against a file of problems and write a file of verdicts, in order, in bounded memory.

Both files are checked whole before anything runs. Problems are then read again one at a time by their place in the
file, and a few are kept. The verdicts appear under their name only when all are there.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO, Self

from autoclave.core.compressed import DAMAGED, damage, is_compressed, open_plain
from autoclave.core.errors import DataError, InputError
from autoclave.core.files import atomic_writer, existing_file
from autoclave.core.futures import completed
from autoclave.core.json import parse_object, to_plain
from autoclave.core.problem import AnswerTests, Problem
from autoclave.core.program import Program, Submission, read_submissions
from autoclave.core.sized_cache import SizedCache
from autoclave.core.verdict import Status, Verdict
from autoclave.judge.extraction import EXTRACTION_RULES
from autoclave.judge.final_answer import ANSWER_RULES
from autoclave.judge.interface import Judge, JudgeJob
from autoclave.judge.streaming import in_order

_KEPT_PROBLEMS = 32
_KEPT_BYTES = 16 << 20
"""Of lines; the problem used last is kept whatever its size."""

NO_VERDICT = "no_verdict"
"""Key of the count of programs without a verdict, because of a fault."""


def judge_file(
    judge: Judge,
    problems_path: Path,
    programs_path: Path,
    out_path: Path,
    *,
    extraction: str = "last_fence",
    answer: str = "final",
    tests: str = "all",
    stop_at_failure: bool = True,
    pending_limit: int = 64,
) -> dict[str, int]:
    """Write one line per program to `out_path`, in the order of the programs. The count of each status.

    A fault is counted as `no_verdict` and does not stop the others.

    Args:
        judge: judges the programs.
        problems_path: `autoclave-problem/1` lines.
        programs_path: lines with `problem_id` and `source` or `response`.
        out_path: replaced in one step at the end.
        extraction: rule that finds the program in a `response`.
        answer: rule that finds the final answer in a `response`, for problems with answer tests.
        tests: `all` or `longest:N`.
        stop_at_failure: whether the first failing test ends a program's judging.
        pending_limit: most programs held at a time.

    Raises:
        InputError: a file is missing, the rule is unknown, or a problem cannot be judged.
        HostError: a requirement of a problem is missing on this host. Nothing ran.
        DataError: a line of either file cannot be used; the message begins with `file:line`. Or there are no programs.
            Nothing ran.
    """
    for given, what in ((problems_path, "problem file"), (programs_path, "programs file")):
        if out_path.exists() and given.exists() and out_path.samefile(given):
            raise InputError(f"--out {out_path}: is the {what}; give another file for the verdicts")
    for setting, rule, rules in (("extraction", extraction, EXTRACTION_RULES), ("answer", answer, ANSWER_RULES)):
        if rule not in rules:
            raise InputError(f"{setting} = {rule!r}: must be one of {', '.join(rules)}")
    rules = EXTRACTION_RULES[extraction], ANSWER_RULES[answer]
    with ProblemIndex(problems_path) as problems:
        _check_programs(judge, programs_path, problems)
        submitted = (
            (submission, _submit(judge, problems, submission, rules, tests, stop_at_failure))
            for submission in read_submissions(programs_path)
        )
        counts: Counter[str] = Counter()
        with atomic_writer(out_path) as out:
            for _, verdict in in_order(submitted, pending_limit):
                counts[NO_VERDICT if verdict.status is None else verdict.status.value] += 1
                out.write(json.dumps(to_plain(verdict)) + "\n")
    return dict(counts)


def _check_programs(judge: Judge, path: Path, problems: "ProblemIndex") -> None:
    seen: dict[str, str] = {}
    judgeable: set[str] = set()
    for submission in read_submissions(path):
        if submission.problem_id not in problems:
            raise DataError(
                f"{submission.where}: problem_id = {submission.problem_id!r}: no such problem in {problems.path}"
            )
        if submission.id in seen:
            raise DataError(f"{submission.where}: id = {submission.id!r}: already used at {seen[submission.id]}")
        seen[submission.id] = submission.where
        if submission.problem_id not in judgeable:
            judge.check(problems[submission.problem_id])
            judgeable.add(submission.problem_id)
    if not seen:
        raise DataError(f"{path}: holds no programs")


def _submit(
    judge: Judge,
    problems: "ProblemIndex",
    submission: Submission,
    rules: tuple[Callable[[str], str | None], ...],
    tests: str,
    stop_at_failure: bool,
) -> Future[Verdict]:
    """Submit a program; `rules` extract a program, and an answer, from a response."""
    problem = problems[submission.problem_id]
    expects_answer = isinstance(problem.tests, AnswerTests)
    source = submission.source
    if source is None:
        source = rules[expects_answer](submission.response or "")
    if source is None:
        what, id = "final answer" if expects_answer else "program", submission.id
        message = f"the response holds no {what}"
        verdict = Verdict.of(Status.BAD_FORMAT, problem_id=problem.id, id=id, level=judge.level, message=message)
        return completed(verdict)
    program = Program(source, problem.language)
    return judge.submit(JudgeJob(problem, program, submission.id, tests, stop_at_failure))


class ProblemIndex:
    """The problems of a file by id. Only their places are held, and the few used last."""

    def __init__(self, path: Path) -> None:
        """Read the file once and check every line.

        Raises InputError: the file is missing. DataError: a line cannot be used, or an id occurs twice.
        """
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._kept = SizedCache[str, Problem](_KEPT_BYTES)
        self._file = _seekable(existing_file(path, "problem file"))
        try:
            self._read_places()
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, problem_id: str) -> bool:
        return problem_id in self._places

    def __getitem__(self, problem_id: str) -> Problem:
        if kept := self._kept.get(problem_id):
            return kept
        offset, number = self._places[problem_id]
        self._file.seek(offset)
        line = self._file.readline()
        size = min(max(len(line), self._kept.limit // _KEPT_PROBLEMS), self._kept.limit)
        return self._kept.add(problem_id, self._parse(line, number), size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._file.close()

    def _read_places(self) -> None:
        for number, offset, line in self._lines():
            problem_id = self._parse(line, number).id
            if problem_id in self._places:
                first = f"{self.path}:{self._places[problem_id][1]}"
                raise DataError(
                    f"{self.path}:{number}: id = {problem_id!r}: already used at {first}; ids are unique in a file"
                )
            self._places[problem_id] = (offset, number)

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        offset = 0
        for number, line in enumerate(self._file, start=1):
            if line.strip():
                yield number, offset, line
            offset += len(line)

    def _parse(self, line: bytes, number: int) -> Problem:
        where = f"{self.path}:{number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from None
        return Problem.from_json(parse_object(text, where), where)


def _seekable(path: Path) -> BinaryIO:
    """The file itself, or its unpacked content in a nameless temporary file."""
    if not is_compressed(path):
        return open_plain(path)
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115  the index closes it
    try:
        with open_plain(path) as plain:
            shutil.copyfileobj(plain, unpacked)
    except DAMAGED as error:
        unpacked.close()
        raise DataError(f"{path}:1: {damage(path, error)}") from None
    unpacked.seek(0)
    return unpacked
