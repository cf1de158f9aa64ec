"""Grade a repository that an episode left, by hidden test suites.

At level `sealed` every test is a check of the judge: it runs in a cell of its own, the code under test in another, and
names cross as proxies. A suite that cannot be split runs at level `shared`, only if the user asks for it: in one cell
with the code under test, whose declared files alone are carried in; see `cells/shared.py`.
"""

import ast
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Literal

from autoclave.core import CheckTests, Closing, InputError, IsolationError, Problem, Program, SandboxFault
from autoclave.core.rollout import EndState, Reward, Rollout, TaskItem
from autoclave.core.verdict import Status, TestResult, Verdict
from autoclave.environments.splitting import read_module
from autoclave.environments.verdicts import VALUES, verdict_of, verdict_of_fault
from autoclave.judge import Judge, JudgeJob
from autoclave.judge.messages import failure_of
from autoclave.judge.plain_run import PlainRunner, RunOrder

_CELLS = Path(__file__).parent / "cells"
_NEVER = ("conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", "*.so")
"""Files of an end state that are never carried in: they would act on interpreter or runner, or are no source."""
_STAND_IN = """from __future__ import annotations
import builtins as autoclave_builtins, sys as autoclave_sys, types as autoclave_types
autoclave_suite = autoclave_sys.modules["pytest"] = autoclave_types.ModuleType("pytest")
autoclave_suite.__builtins__ = dict(vars(autoclave_builtins))  # those of a program may be changed
exec({suite!r}, vars(autoclave_suite))
"""
_REPOSITORY = """
import os, sys
for path, content in {files!r}.items():
    os.makedirs(os.path.dirname("repository/" + path), exist_ok=True)
    with open("repository/" + path, "wb") as file:
        file.write(content)
os.makedirs("repository", exist_ok=True)
os.chdir("repository")
sys.path += [os.path.abspath(root) for root in {roots!r}]
"""
_IN_ONE_CELL = """
space = {{"__name__": "supervisor", "__builtins__": dict(vars(autoclave_builtins))}}
exec({supervisor!r}, space)
modules = {{path: (compile(text, "tests", "exec"), names) for path, text, names in {modules!r}}}
given = modules, {names!r}, {files!r}, {roots!r}
supervise = space.pop("supervise")
for name in [name for name in globals() if not name.startswith("__") and name not in ("supervise", "given")]:
    del globals()[name]
globals().pop("supervise")(*globals().pop("given"))
"""
_FORGED = "a control test that must fail has passed: the code under test interferes with its tests"


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """Hidden tests of a repository. Raises InputError for tests that cannot run at this level.

    `tests` are test modules by path. `modules` names the top-level modules of the code under test. `base` has the files
    that the episode began with; those that match a pattern of `sources` are replaced by those of the end state. Modules
    are looked for in `roots`. The time limit is for a test, and clipped to `judge.time_limit_range`, by default 6 to 12
    s; with `shared` it is for the whole suite.
    """

    tests: Mapping[str, str]
    modules: Sequence[str]
    base: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    sources: Sequence[str] = ("*.py",)
    roots: Sequence[str] = ("", "src")
    level: Literal["sealed", "shared"] = "sealed"
    time_limit_s: float = 10.0
    memory_limit_mb: int | None = None
    profile: str = "plain"

    def __post_init__(self) -> None:
        if not self.tests:
            raise InputError("tests = {}: a suite needs at least one test module")
        if found := {*sys.stdlib_module_names, "pytest"} & {*self.modules}:
            raise InputError(f"modules = {self.modules!r}: {min(found)} is a module that tests import from elsewhere")
        for path, text in self.tests.items():
            read_module(path, text, self.modules, is_split=self.level == "sealed")

    def files_of(self, state: EndState | None) -> dict[str, bytes]:
        """Return the files of the code under test: declared ones of the end state, the others of `base`."""
        kept = {path: content for path, content in self.base.items() if not self._is_source(path)}
        return kept | {
            path: content for path, content in (state.files if state else {}).items() if self._is_source(path)
        }

    def _is_source(self, path: str) -> bool:
        parts = PurePosixPath(path).parts
        is_declared = any(fnmatchcase(path, pattern) for pattern in self.sources)
        is_safe = bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path
        return is_declared and is_safe and not any(fnmatchcase(parts[-1], pattern) for pattern in _NEVER)


class SuiteGrader(Closing):
    """Runs the suite of an item over the end state. The reward is 1 if all tests pass, or with `fraction` their share.

    `runner` is for suites at level `shared`. Safe to use from several threads; `workers` suites run at a time.
    """

    def __init__(
        self,
        judge: Judge,
        suite_of: Callable[[TaskItem], Suite],
        reward: str = "binary",
        runner: PlainRunner | None = None,
        workers: int = 16,
    ) -> None:
        if runner and runner.level != "sealed":
            raise IsolationError(f"level = {runner.level!r}: suites of level shared need a sealed sandbox")
        self._judge = judge
        self._suite_of = suite_of
        self._reward = reward
        self._runner = runner
        self._pool = ThreadPoolExecutor(workers, "suite-grader")

    def __call__(self, rollout: Rollout) -> Future[Reward]:
        suite = self._suite_of(rollout.item)
        if suite.level == "shared" and not self._runner:
            raise InputError(f"item {rollout.item.id!r}: level = 'shared': the grader was made without a runner for it")
        return self._pool.submit(self._grade, suite, suite.files_of(rollout.end_state), rollout.item.id)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _grade(self, suite: Suite, files: Mapping[str, bytes], item_id: str) -> Reward:
        verdict = (
            _run_in_one_cell(self._runner, suite, files, item_id)
            if self._runner and suite.level == "shared"
            else _run_in_two_cells(self._judge, suite, files, item_id)
        )
        return Reward.of(verdict, VALUES[self._reward])


def _run_in_two_cells(judge: Judge, suite: Suite, files: Mapping[str, bytes], item_id: str) -> Verdict:
    """Judge every test of a suite. A fault at one test leaves no verdict."""
    waiting = [judge.submit(job) for job in _jobs(suite, files, item_id)]
    verdicts = [future.result() for future in waiting]
    for verdict in verdicts:
        if verdict.status is None:
            return replace(verdict, problem_id=item_id, id=item_id)
    results = [
        replace(verdict.tests[0], index=index)
        if verdict.tests
        else TestResult(index, Status.COMPILE_ERROR, 0.0, 0.0, 0.0)
        for index, verdict in enumerate(verdicts)
    ]
    return verdict_of(results, [verdict.message for verdict in verdicts], item_id, judge.level)


def _jobs(suite: Suite, files: Mapping[str, bytes], item_id: str) -> list[JudgeJob]:
    jobs: list[JudgeJob] = []
    stand_in = _STAND_IN.format(suite=(_CELLS / "suite.py").read_text(encoding="utf-8"))
    begin = _REPOSITORY.format(files=dict(files), roots=list(suite.roots))
    for path, text in suite.tests.items():
        module = read_module(path, text, suite.modules, is_split=True)
        program = Program("\n".join([begin, *module.imports, "def autoclave_loaded(): pass"]), "python")
        for name in module.tests:
            tests = CheckTests(
                "check",
                entry_point="autoclave_loaded",
                source=f"{stand_in}\n{ast.unparse(module.tree)}",
                invocation=f"candidate()\nautoclave_suite.run(globals(), {name!r})",
                preamble="\n".join(f"class {name}(Exception): pass" for name in sorted(module.exceptions)),
                mutates_arguments=True,
            )
            problem = Problem(
                statement="",
                tests=tests,
                id=f"{item_id}/{path}::{name}",
                time_limit_s=suite.time_limit_s,
                memory_limit_mb=suite.memory_limit_mb,
                profile=suite.profile,
            )
            jobs.append(JudgeJob(problem, program, id=item_id))
    return jobs


def _run_in_one_cell(runner: PlainRunner, suite: Suite, files: Mapping[str, bytes], item_id: str) -> Verdict:
    modules = [read_module(path, text, suite.modules, is_split=False) for path, text in suite.tests.items()]
    names = [(module.path, name) for module in modules for name in module.tests]
    program = "\n".join(
        [
            _STAND_IN.format(suite=(_CELLS / "suite.py").read_text(encoding="utf-8")),
            _IN_ONE_CELL.format(
                supervisor=(_CELLS / "shared.py").read_text(encoding="utf-8"),
                modules=[(module.path, ast.unparse(module.tree), module.imports) for module in modules],
                names=names,
                files=dict(files),
                roots=list(suite.roots),
            ),
        ]
    )
    nonce = secrets.token_hex(16)
    order = RunOrder(
        f"{nonce}\n".encode(),
        profile=suite.profile,
        time_limit_s=suite.time_limit_s,
        memory_limit_mb=suite.memory_limit_mb,
        decides=True,
    )
    try:
        outcome = runner.run(Program(program, "python"), order).outcome
    except SandboxFault as fault:
        return verdict_of_fault(fault, runner, item_id, "shared")
    passed = _reported(outcome.stdout, nonce, len(names))
    status, message = Status.WRONG_ANSWER, "the test failed"
    if passed is None:
        status, message = failure_of(outcome, "") or (Status.RUNTIME_ERROR, "the suite ended before its report")
    elif any(is_forged for _, is_forged in passed):
        passed, message = None, _FORGED
    results = [Status.ACCEPTED if passed and passed[index][0] else status for index in range(len(names))]
    return verdict_of(results, [message] * len(names), item_id, "shared")


def _reported(printed: bytes, nonce: str, num_tests: int) -> list[list[bool]] | None:
    """Return what the supervisor reports: of each test whether it passed, and whether what must fail did."""
    try:
        found, passed = json.loads(printed.splitlines()[-1])
    except (ValueError, TypeError, IndexError):
        return None
    return passed if found == nonce and len(passed) == num_tests else None
