"""verl's own reward functions for SandboxFusion, asking our server. In the environment of verl: `make test-verl`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import RIGHT, LiveServer
from .real_programs import LIMIT_S, Case, asked, local_verdicts, real_programs

pytestmark = pytest.mark.verl
MEMORY_MB = 512
WORDS = {
    True: {"accepted"},
    False: {"wrong_answer", "accepted"},  # verl wants the same text, also where numbers are equal
    -2: {"runtime_error", "compile_error", "memory_limit", "output_limit"},
    -3: {"time_limit"},
}
TESTS = {"inputs": ["3 4\n", "1 1\n"], "outputs": ["7\n", "3\n"]}


def fenced(source: str) -> str:
    return f"```python\n{source}\n```"


@pytest.mark.parametrize(
    ("source", "score", "codes"),
    [
        (RIGHT, 0.5, [True, False]),
        ("1 / 0", 0.0, [-2, -2]),
        ("print(", 0.0, [-2, -2]),
        ("while True: pass", 0.0, [-3, -3]),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", 0.0, [-2, -2]),
        ("a, b = map(int, input().split())\nif a == 1: raise SystemExit(1)\nprint(a + b)", 0.5, [True, -2]),
    ],
)
def test_the_score_is_the_share_of_passed_tests(compatible: LiveServer, source, score, codes):
    from verl.utils.reward_score.sandbox_fusion import compute_score
    from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

    url = f"{compatible.url}/run_code"
    assert compute_score(url, None, MEMORY_MB, fenced(source), TESTS, timeout=1)[0] == score
    assert check_correctness(url, TESTS, source, timeout=1, memory_limit_mb=MEMORY_MB)[0] == codes


def test_functions_are_called_and_asserts_are_checked(compatible: LiveServer):
    from verl.utils.reward_score.sandbox_fusion import compute_score

    url = f"{compatible.url}/run_code"
    calls = {"inputs": ["[1, 2]\n3", "[]\n0"], "outputs": ["[1, 2, 3]", "[0]"], "fn_name": "joined"}
    program = "class Solution:\n    def joined(self, a, b): return a + [b]"
    assert compute_score(url, None, MEMORY_MB, fenced(program), calls, timeout=2)[0] == 1.0
    asserts = {"assert_case": ["assert f(1) == 2", "assert f(1) == 3"]}
    assert compute_score(url, None, MEMORY_MB, fenced("def f(x): return x + 1"), asserts, timeout=2)[0] == 0.5


def test_verdicts_on_real_programs_equal_those_of_the_local_judge(compatible: LiveServer, data: Path):
    from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

    programs = real_programs(data)
    local = local_verdicts(programs, compatible.parts.config.judge)

    def check(case: Case) -> object:
        cases = case[1].tests.cases
        tests = {"inputs": [one.input for one in cases], "outputs": [one.output for one in cases]}
        return check_correctness(
            f"{compatible.url}/run_code", tests, case[2], timeout=LIMIT_S, memory_limit_mb=MEMORY_MB
        )[0]

    wrong = []
    for name, codes in asked(programs, check).items():
        statuses = [test.status.value for test in local[name].tests] or [local[name].status.value] * len(codes)
        for code, status in zip(codes, statuses, strict=True):
            if status not in WORDS.get(code, set()):
                wrong.append((name, code, status))
    assert len(programs) >= 200
    assert wrong == []
