"""Profiles that name packages: what programs find, what they do not, and what is said when a package is missing."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import autoclave
from autoclave.config import BUILT_IN_PROFILES, JudgeConfig, JudgeRunConfig, load, parse_override
from autoclave.core import CallCase, CallTests, HostError, InputError, Problem, Program, Status, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge, judge_file
from autoclave.judge.profiles import PROFILES

from .conftest import JUDGE, SANDBOX

pytest.importorskip("numpy")

PROFILE_CONFIG = {
    "mine": {"base": "plain", "packages": ["numpy"], "preamble": "import numpy as np\nanswer = int(np.sum([3, 4]))"},
    "absent": {"packages": ["no_such_package"]},
    "broken": {"preamble": "1 / 0"},
    "threaded": {
        "preamble": "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()"
    },
}


@pytest.fixture(scope="module")
def rich_judge(judge: LocalJudge) -> Iterator[LocalJudge]:
    """A judge with profiles of its own; `judge` tells whether cells can be made at all."""
    config = JudgeConfig.model_validate_json(
        json.dumps(JUDGE.model_dump() | {"workers": 1, "profiles": PROFILE_CONFIG})
    )
    with LocalJudge(SANDBOX, config) as opened:
        yield opened


@pytest.fixture
def status_of(rich_judge: LocalJudge) -> Callable[..., tuple[Status | None, str]]:
    """status_of(source, profile): status and message where "7" is expected on standard output."""

    def judged(source: str, profile: str = "lcb_numpy") -> tuple[Status | None, str]:
        problem = Problem("s", StdinTests("stdin", [StdinCase("", "7\n")]), id="p", profile=profile)
        verdict = rich_judge.submit(JudgeJob(problem, Program(source), "x")).result(timeout=120)
        return verdict.status, verdict.message

    return judged


ACCEPTED = (Status.ACCEPTED, "")


def test_the_built_in_profiles_are_those_that_settings_know():
    assert tuple(PROFILES) == BUILT_IN_PROFILES


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nprint(np.array([3, 4]).sum())",
        "import numpy as np\na = np.random.rand(60, 60) + 60 * np.eye(60)\nprint(7 if np.allclose(np.linalg.inv(a) @ a, np.eye(60)) else 0)",
        "import numpy as np\nprint(7 if abs(np.fft.fft([3, 4])[0] - 7) < 1e-9 else 0)",
        "from numpy import *\nprint(int(array([7])[0]))",
        "import numpy as np\nprint(np.random.default_rng(0).integers(7, 8))",
        "import numpy as np\nprint(Counter([7]).most_common()[0][0], end='') or heappush([], 1)",
    ],
)
def test_numpy_computes_in_a_cell(status_of: Callable[..., Any], source: str):
    assert status_of(source) == ACCEPTED


def test_other_profiles_have_no_packages(status_of: Callable[..., Any]):
    assert status_of("import numpy", "lcb") == (Status.RUNTIME_ERROR, "ModuleNotFoundError: numpy (line 1)")


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import os, yaml.nodes as y", ": yaml (line 1)"),
        ("try: from yaml.nodes import Node\nexcept ValueError: pass", ": yaml (line 1)"),
        ("def f():\n    import json; import yaml\nf()", ": yaml (line 2)"),
        ("import json.nothing", ": json.nothing (line 1)"),
        ("__import__('secret')", " (line 1)"),
        ("raise ModuleNotFoundError('x', name='secret')", " (line 1)"),
        ("if 0: import yamls\n__import__('yaml')", " (line 2)"),
        ("raise ModuleNotFoundError('import yaml')", " (line 1)"),
        ("__import__('a\\nb' * 999)", " (line 1)"),
    ],
)
def test_a_missing_module_is_named_where_the_program_imports_it(status_of: Callable[..., Any], source, named):
    status, message = status_of(source)
    assert (status, message) == (Status.RUNTIME_ERROR, f"ModuleNotFoundError{named}")


@pytest.mark.parametrize(
    "source",
    [
        "from sortedcontainers import SortedList\nprint(SortedList([9, 7])[0])",
        "print(SortedDict({7: 1}).peekitem(0)[0])",
        "node = ListNode(3, ListNode(4))\nprint(node.val + node.next.val)",
        "node = TreeNode(7)\nprint(node.val if node.left is node.right is None else 0)",
        "print(7 if gcd(14, 21) == 7 and inf == math.inf and Optional[List[int]] and cache(len) else 0)",
        "import numpy as np\nprint(np.array([3, 4]).sum())",
    ],
)
def test_leetcode_offers_what_its_programs_use(status_of: Callable[..., Any], source: str):
    assert status_of(source, "leetcode") == ACCEPTED


def test_a_cell_shows_the_packages_of_its_profile_and_no_others(status_of: Callable[..., Any]):
    source = (
        "import os, sys\nfound = sorted(os.listdir('/packages'))\n"
        "try:\n    import pydantic\nexcept ImportError: print(7 if set(found) <= {'numpy', 'numpy.libs'} else found)"
    )
    assert status_of(source) == ACCEPTED


def test_packages_cannot_be_changed(status_of: Callable[..., Any]):
    source = "import os, numpy\ntry:\n    open('/packages/numpy/x.py', 'w')\nexcept OSError as e: print(7 if e.errno in (13, 30) else e)"
    assert status_of(source) == ACCEPTED


def test_a_package_is_imported_before_the_program(status_of: Callable[..., Any]):
    assert status_of("import sys\nprint(7 if 'numpy.random' in sys.modules else 0)") == ACCEPTED


def test_a_profile_of_the_settings_has_its_preamble(status_of: Callable[..., Any]):
    assert status_of("print(answer)", "mine") == ACCEPTED
    assert status_of("print(deque())", "mine") == (Status.RUNTIME_ERROR, "NameError (line 1)")  # not `lcb`


@pytest.mark.parametrize(
    ("returned", "expected", "status"),
    [
        ("np.int64(7)", 7, Status.ACCEPTED),
        ("[np.float64(0.5), np.int8(3)]", [0.5, 3], Status.ACCEPTED),
        ("np.bool_(True)", True, Status.ACCEPTED),
        ("np.float32(0.1)", 0.1, Status.WRONG_ANSWER),  # as in Python: it is another number
        ("np.array([1, 2])", [1, 2], Status.WRONG_ANSWER),  # an array is no list
    ],
)
def test_a_numpy_scalar_that_a_call_returns_is_its_number(
    rich_judge: LocalJudge, returned: str, expected: Any, status: Status
):
    problem = Problem("s", CallTests("call", "f", [CallCase([], expected)]), id="p", profile="lcb_numpy")
    program = Program(f"import numpy as np\ndef f(): return {returned}")
    assert rich_judge.submit(JudgeJob(problem, program, "x")).result(timeout=120).status is status


def test_an_absent_package_is_named_with_the_fix_before_anything_runs(rich_judge: LocalJudge, tmp_path: Path):
    line = {"format": "autoclave-problem/1", "id": "p", "statement": "s", "profile": "absent"}
    line |= {"tests": {"kind": "stdin", "cases": [{"input": "", "output": ""}]}}
    (tmp_path / "problems.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "programs.jsonl").write_text(json.dumps({"problem_id": "p", "source": ""}) + "\n")
    with pytest.raises(HostError, match=r"problem 'p': .*profile = 'absent': package 'no_such_package'.* Fix: "):
        judge_file(rich_judge, tmp_path / "problems.jsonl", tmp_path / "programs.jsonl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_profile_is_refused_with_the_known_ones(rich_judge: LocalJudge):
    problem = Problem("s", StdinTests("stdin", [StdinCase("", "")]), id="p", profile="magic")
    known = "lcb, plain, lcb_numpy, plain_numpy, leetcode, mine"
    with pytest.raises(InputError, match=f"problem 'p': profile = 'magic': must be one of {known}"):
        rich_judge.check(problem)


@pytest.mark.parametrize(
    ("profile", "reason"), [("broken", "ZeroDivisionError"), ("threaded", "left 1 threads running")]
)
def test_a_profile_that_does_not_start_is_an_error_of_the_host_not_of_a_program(
    status_of: Callable[..., Any], profile: str, reason: str
):
    with pytest.raises(HostError, match=f"profile '{profile}' does not start in a cell: .*{reason}"):
        status_of("print(7)", profile)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("judge.profiles.lcb={}", '"lcb" is the name of a built-in profile'),
        ("judge.profiles.a.packages=[json]", '"json" is in the standard library'),
        ("judge.profiles.a.packages=[a.b]", "judge.profiles.a.packages"),
        ("judge.profiles.a.base=magic", "judge.profiles.a.base"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_by_the_settings(override: str, message: str):
    with pytest.raises(InputError, match=message):
        load(JudgeRunConfig, None, [parse_override(override)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_numpy_computes_for_an_ordinary_user_too():
    import shutil

    import numpy

    interpreter = shutil.which("python3.11", path="/usr/bin")
    if interpreter is None or sys.version_info[:2] != (3, 11):
        pytest.skip("no interpreter outside of root's home that fits this environment")
    source, site = Path(autoclave.__file__).parents[1], Path(numpy.__file__).parents[1]
    program = (
        "from autoclave.config import SandboxConfig\nfrom autoclave.core import Program\n"
        "from autoclave.judge import run_program\nimport os\nassert os.getuid() == 65534\n"
        "source = 'import numpy as np\\nprint(round(np.linalg.det(np.eye(3) * 2)), np.random.rand() < 1)'\n"
        "print(run_program(SandboxConfig(), Program(source), profile='lcb_numpy'))"
    )
    done = subprocess.run(
        [interpreter, "-c", program], env={"PYTHONPATH": f"{source}:{site}", "PYTHONDONTWRITEBYTECODE": "1"},
        user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if "Permission denied" in done.stderr and "autoclave" not in done.stderr:
        pytest.skip("the sources are in a private folder")
    assert "8 True" in done.stdout, done.stderr
