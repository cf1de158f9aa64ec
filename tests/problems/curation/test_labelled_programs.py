"""Real problems with induced faults: weak tests, flaky solutions, solutions that end early."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoclave.core import CheckTests
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.programs import CandidatePrograms
from autoclave.problems.curation.stage import Dropped, Stage
from autoclave.problems.curation.strength import Strength
from autoclave.problems.curation.verification import Flakiness, Verification
from autoclave.problems.readers import raw_files, read_rows

FLAKY = (
    "import random\nassert random.random() < 0.5\n",
    "import time\nassert time.time_ns() // 1000 % 2\n",
    "import os\nassert os.urandom(1)[0] % 2\n",
    "import random\nif random.randrange(2): raise SystemExit(1)\n",
)
ENDING = (
    "import sys\nsys.exit(0)\n",
    "import os\nos._exit(0)\n",
    "raise SystemExit\n",
    "import atexit, os\natexit.register(os._exit, 0)\nquit()\n",
)
REPEATS = 5
REPEATS_OF_FLAKY = 28  # all of those that pass every other time are found but for once in ten million runs of this test
_COMPARED = re.compile(r"^(\s*)assert (candidate\(.*\)) == .*$", re.MULTILINE)
WEAK = (
    r"\1assert \2 is not 7",  # anything passes
    r"\1assert str(\2)",
    r"\1\2",
)


@dataclass(frozen=True)
class Plant:
    kind: str
    candidate: ProblemCandidate


def with_solution(candidate: ProblemCandidate, before: str, number: int) -> ProblemCandidate:
    """Its solution with code before it, under another name."""
    problem = candidate.problem
    changed = replace(problem, id=f"{problem.id}#{number}", solutions=[before + problem.solutions[0]])
    return replace(candidate, problem=changed)


def with_weak_tests(candidate: ProblemCandidate, pattern: str) -> ProblemCandidate:
    tests = candidate.problem.tests
    assert isinstance(tests, CheckTests)
    source = _COMPARED.sub(pattern, tests.source)
    changed = replace(candidate.problem, id=f"{candidate.problem.id}#weak", tests=replace(tests, source=source))
    return replace(candidate, problem=changed)


def planted(real: Sequence[ProblemCandidate]) -> list[Plant]:
    found = [Plant("right", candidate) for candidate in real]
    for number, candidate in enumerate(real):
        tests = candidate.problem.tests
        found.append(Plant("flaky", with_solution(candidate, FLAKY[number % 4], number)))
        found.append(Plant("ends early", with_solution(candidate, ENDING[number % 4], number)))
        if isinstance(tests, CheckTests) and len(_COMPARED.findall(tests.source)) == tests.source.count("assert"):
            found.append(Plant("weak", with_weak_tests(candidate, WEAK[number % 3])))
    return found


def dropped_by(stages: Sequence[Stage], candidates: Sequence[ProblemCandidate]) -> dict[str, str]:
    """The reason why each was dropped, by its id."""
    reasons: dict[str, str] = {}
    left = list(candidates)
    for stage in stages:
        results = list(stage.run(left))
        reasons |= {each.id: each.reason for each in results if isinstance(each, Dropped)}
        left = [each for each in results if isinstance(each, ProblemCandidate)]
    return reasons


def test_labelled_faults_are_found_and_nothing_else(data: Path, programs: CandidatePrograms):
    rows = raw_files(data / "leetcode_v020_dev300.jsonl.gz").rows()
    real = [row for row in read_rows("leetcode", "leetcode", rows) if isinstance(row, ProblemCandidate)][:240:15]
    plants = planted(real)
    reasons: dict[str, str] = {}
    for is_flaky, repeats in ((False, REPEATS), (True, REPEATS_OF_FLAKY)):
        stages = [
            Verification(programs, "all", frozenset()),
            Flakiness(programs, "all", repeats),
            Strength(programs, 6, 0.5),
        ]
        reasons |= dropped_by(stages, [plant.candidate for plant in plants if (plant.kind == "flaky") is is_flaky])
    kinds = Counter(plant.kind for plant in plants)
    found = Counter(plant.kind for plant in plants if plant.candidate.problem.id in reasons)
    assert kinds["weak"] >= 10
    assert found["ends early"] == kinds["ends early"]
    assert found["weak"] >= 0.95 * kinds["weak"]
    assert found["flaky"] == kinds["flaky"]
    assert found.total() - found["right"] >= 0.95 * found.total(), reasons
