"""Check the strength of tests: lazy programs must fail, and most mutants of a solution."""

import ast
import io
import random
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from autoclave.core import CallTests, CheckTests, Problem, Program, Status, StdinTests
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.filters import with_facts
from autoclave.problems.curation.lazy_programs import accepted_names, lazy_programs
from autoclave.problems.curation.programs import CandidatePrograms, JudgedCandidate, JudgedStage, solutions_of
from autoclave.problems.curation.python_source import tree_of
from autoclave.problems.curation.stage import Dropped
from autoclave.problems.curation.statements import TABLES
from autoclave.problems.curation.verification import SECONDS

_TIMES = 4
"""Time limit of a mutant, as a multiple of the time of a solution."""
LEAST_LIMIT_S = 1.0
_FEWEST = 4
"""Fewest mutants for a decision: a single one may be equivalent to the solution."""


class Strength(JudgedStage):
    """Stage that keeps problems whose tests fail every lazy program, and at least `minimum_killed` of the mutants.

    The share of failing mutants is recorded. Many mutants loop endlessly, so their time limit is a multiple of the time
    of a solution, if known. Mutants are made of the first solution; problems with too few mutants are judged by lazy
    programs alone.
    """

    name = "strength"

    def __init__(self, programs: CandidatePrograms, num_mutants: int, minimum_killed: float) -> None:
        super().__init__(programs, mutants=num_mutants, minimum_killed=minimum_killed)
        self._num_mutants = num_mutants
        self._minimum_killed = minimum_killed

    def _programs_of(self, candidate: ProblemCandidate) -> Sequence[Program]:
        return [*lazy_programs(candidate.problem).values(), *self._mutants(candidate.problem)]

    def _problem_of(self, candidate: ProblemCandidate) -> Problem:
        seconds = candidate.facts.get(SECONDS)
        limit_s = candidate.problem.time_limit_s if seconds is None else max(LEAST_LIMIT_S, _TIMES * seconds)
        return replace(candidate.problem, time_limit_s=limit_s)

    def _mutants(self, problem: Problem) -> list[Program]:
        solution = next(iter(solutions_of(problem)), None)
        if solution is None or not isinstance(problem.tests, StdinTests | CallTests | CheckTests):
            return []
        seed = int(problem.digest[:12], 16)
        found = mutants(solution.source, solution.language, self._num_mutants, seed)
        return [Program(source, solution.language) for source in found]

    def _decided(self, judged: JudgedCandidate) -> ProblemCandidate | Dropped:
        candidate = judged.candidate
        if names := accepted_names(candidate.problem, judged.verdicts):
            return Dropped.of(candidate, "trivial_program_passes", f"a program passes that {names[0]}")
        verdicts = judged.verdicts[len(lazy_programs(candidate.problem)) :]
        compiled = [verdict.status for verdict in verdicts if verdict.status is not Status.COMPILE_ERROR]
        outcomes = [status is not Status.ACCEPTED for status in compiled]
        if len(outcomes) < _FEWEST:
            return candidate
        killed = sum(outcomes) / len(outcomes)
        if killed < self._minimum_killed:
            detail = f"{outcomes.count(False)} of {len(outcomes)} mutants of a solution pass all tests"
            return Dropped.of(candidate, "mutants_pass", detail)
        return with_facts(candidate, killed_share=killed, mutants=len(outcomes))


_WORDS = " ".join(TABLES["mutations"]).split()
_SWAPS = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
"""Replacement of each token."""


@dataclass(frozen=True, slots=True)
class _Change:
    start: int
    end: int
    text: str


def mutants(source: str, language: str, count: int, seed: int) -> list[str]:
    """Return at most `count` different mutants that compile, sampled uniformly over the places that can be changed.

    Only of Python; other languages have none.
    """
    if language != "python":
        return []
    changes = [*_python_tokens(source), *_python_statements(source)]
    found: dict[str, None] = {}
    for change in random.Random(seed).sample(changes, len(changes)):
        if len(found) >= count:
            break
        mutant = source[: change.start] + change.text + source[change.end :]
        if mutant != source and tree_of(mutant):
            found[mutant] = None
    return list(found)


def _python_tokens(source: str) -> Iterator[_Change]:
    starts = _line_starts(source)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source, newline="").readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
    for token in tokens:
        if token.type not in (tokenize.OP, tokenize.NAME, tokenize.NUMBER):
            continue
        text = _changed(token.string)
        if text is not None:
            start = starts[token.start[0] - 1] + token.start[1]
            yield _Change(start, start + len(token.string), text)


def _python_statements(source: str) -> Iterator[_Change]:
    tree = tree_of(source)
    if tree is None:
        return
    starts, lines = _line_starts(source), list(io.StringIO(source, newline=""))

    def place(line: int, column: int) -> int:  # columns are in bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Constant):
            start, end = _span(node.test, place)
            yield _Change(start, end, f"(not ({source[start:end]}))")
        elif isinstance(node, ast.Assign | ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield _Change(*_span(node, place), "pass")


def _span(node: ast.expr | ast.stmt, place: Callable[[int, int], int]) -> tuple[int, int]:
    return place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)


def _line_starts(source: str) -> Sequence[int]:
    starts = [0]
    for line in io.StringIO(source, newline=""):
        starts.append(starts[-1] + len(line))
    return starts


def _changed(token: str) -> str | None:
    if token.isdecimal() and token.isascii() and len(token) < 19:
        return str(int(token) + 1)
    return _SWAPS.get(token)
