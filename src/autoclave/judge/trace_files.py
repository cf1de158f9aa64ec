"""Trace the wrong answers of a file of verdicts and write a file of traces, in order, in bounded memory.

Programs that raise or hit a limit are left out, as CodeRL+ does (Jiang et al., appendix D): their values are not
final. The verdicts are read, never written.
"""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from autoclave.core import Problem, Trace
from autoclave.core.errors import DataError, InputError, JudgeFault
from autoclave.core.files import atomic_writer, read_jsonl
from autoclave.core.json import from_plain, to_plain
from autoclave.core.program import Program, Submission, read_submissions
from autoclave.core.verdict import Fault, Status, Verdict
from autoclave.judge.extraction import EXTRACTION_RULES
from autoclave.judge.files import ProblemIndex
from autoclave.judge.interface import Judge, JudgeJob
from autoclave.judge.streaming import done_in_order
from autoclave.judge.traces import is_traceable

NO_TRACE = "no_trace"
"""Key of the count of traces that a fault prevented."""
NOT_TRACEABLE = "not_traceable"
"""Key of the count of wrong answers to problems that cannot be traced; they have no line."""


def trace_file(
    judge: Judge,
    problems_path: Path,
    programs_path: Path,
    verdicts_path: Path,
    out_path: Path,
    *,
    extraction: str = "last_fence",
    pending_limit: int = 64,
) -> dict[str, int]:
    """Write one line for each wrong answer to `out_path`: its trace on the failing test. The count of each status.

    The first three files are those that `judge_file` read and wrote. A fault is a line of its own, and is counted
    as `no_trace`.

    Raises:
        InputError: a file is missing, or is the one to be written.
        DataError: a line of a file cannot be used, or the verdicts are not those of the programs.
    """
    refuse_to_overwrite(out_path, problems_path, programs_path, verdicts_path)
    counts: Counter[str] = Counter()
    with ProblemIndex(problems_path) as problems, atomic_writer(out_path) as out:
        jobs = _wrong_answers(problems, programs_path, verdicts_path, extraction)
        submitted = _submitted(judge, jobs, counts)
        for (job, index), future in done_in_order(submitted, pending_limit):
            trace = _trace_of(job, index, future)
            counts[NO_TRACE if trace.status is None else trace.status.value] += 1
            out.write(json.dumps(to_plain(trace)) + "\n")
    return dict(counts)


def refuse_to_overwrite(out_path: Path, *inputs: Path) -> None:
    """Check that a file of traces does not replace one of its inputs. Raises InputError: it does."""
    for given in inputs:
        if out_path.resolve() == given.resolve():
            raise InputError(f"--traces {out_path}: is read or written already; give another file for the traces")


def _wrong_answers(
    problems: ProblemIndex, programs_path: Path, verdicts_path: Path, extraction: str
) -> Iterator[tuple[JudgeJob, int]]:
    verdicts = read_jsonl(verdicts_path, "verdicts file")
    for submission in read_submissions(programs_path):
        where, line = next(verdicts, (str(verdicts_path), None))
        verdict = from_plain(Verdict, line, where)
        if verdict.id != submission.id:
            raise DataError(f"{where}: id = {verdict.id!r}: must be {submission.id!r}, that of {submission.where}")
        if verdict.status is Status.WRONG_ANSWER and verdict.failing_test is not None:
            problem = problems[submission.problem_id]
            program = Program(_source_of(submission, extraction), problem.language)
            yield JudgeJob(problem, program, submission.id), verdict.failing_test


def _source_of(submission: Submission, extraction: str) -> str:
    if submission.source is not None:
        return submission.source
    return EXTRACTION_RULES[extraction](submission.response or "") or ""


def _submitted(
    judge: Judge, jobs: Iterator[tuple[JudgeJob, int]], counts: Counter[str]
) -> Iterator[tuple[tuple[JudgeJob, int], Future[Trace]]]:
    for job, index in jobs:
        if is_traceable(job.problem):
            yield (job, index), judge.trace(job, index)
        else:
            counts[NOT_TRACEABLE] += 1


def _trace_of(job: JudgeJob, index: int, future: Future[Trace]) -> Trace:
    try:
        return future.result()
    except JudgeFault as error:
        problem: Problem = job.problem
        fault = Fault("sandbox", str(error))
        return Trace(problem_id=problem.id, id=job.id, test=index, status=None, entry="", fault=fault)
