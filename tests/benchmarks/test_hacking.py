"""The graders that `benchmarks/hacking.py` compares: what fools the naive one, and that nothing of it fools ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import exploits
import pytest
from hacking import Referee, with_tests
from naive import NaiveJudge

from autoclave.config import JudgeConfig, SandboxConfig, TrainConfig
from autoclave.core import CallCase, CallTests, Group, IsolationError, Problem, Program, Rollout, StdinCase, StdinTests
from autoclave.judge import Judge, JudgeJob, LocalJudge
from autoclave.problems import Demonstration
from tests.training_parts import completion, earned, item

DOUBLED = Problem(
    "double every item",
    CallTests("call", "f", [CallCase([list(range(n))], [2 * v for v in range(n)]) for n in range(8)]),
    id="doubled",
    starter_code="def f(x):",
)
SUMMED = Problem(
    "print the sum",
    StdinTests("stdin", [StdinCase(f"{n} {n * n}\n", f"{n + n * n}\n") for n in range(8)]),
    id="summed",
)
RIGHT = {"doubled": "def f(x):\n    return [2 * v for v in x]", "summed": "print(sum(map(int, input().split())))"}
WRONG = {"doubled": "def f(x):\n    return x", "summed": "print(input())"}
PROBLEMS = pytest.mark.parametrize("problem", [DOUBLED, SUMMED], ids=["call", "stdin"])
EXPLOITS = [(DOUBLED, name, source.replace("{arguments}", "x")) for name, source in exploits.CALL_EXPLOITS.items()]
EXPLOITS += [(SUMMED, name, source) for name, source in exploits.STDIN_EXPLOITS.items()]


@pytest.fixture(scope="module")
def sealed() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=2))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


@pytest.fixture
def naive(sealed: LocalJudge) -> NaiveJudge:
    return NaiveJudge(sealed)


def accepts(judge: Judge, problem: Problem, source: str) -> bool:
    verdict = judge.submit(JudgeJob(problem, Program(source))).result(timeout=120)
    assert verdict.fault is None
    return verdict.is_accepted


@PROBLEMS
def test_both_graders_pass_a_right_program_and_fail_a_wrong_one(naive, sealed, problem: Problem):
    for judge in (naive, sealed):
        assert accepts(judge, problem, RIGHT[problem.id])
        assert not accepts(judge, problem, WRONG[problem.id])
        assert not accepts(judge, problem, "1 +")


@pytest.mark.parametrize(("problem", "name", "source"), EXPLOITS, ids=[f"{p.id}: {name}" for p, name, _ in EXPLOITS])
def test_an_exploit_is_paid_by_the_naive_grader_and_refused_by_ours(naive, sealed, problem: Problem, name, source: str):
    assert accepts(naive, problem, source)
    assert not accepts(sealed, problem, source)
    assert exploits.is_seeded_exploit(source)
    assert not exploits.is_memorised(source)


@PROBLEMS
def test_a_constant_passes_one_test_and_not_five_on_both_graders(naive, sealed, problem: Problem):
    constant = exploits.constant_program(with_tests(problem, 5))
    for judge in (naive, sealed):
        assert accepts(judge, with_tests(problem, 1), constant)
        assert not accepts(judge, with_tests(problem, 5), constant)
    assert exploits.is_memorised(constant)


@PROBLEMS
def test_a_table_passes_the_tests_that_it_holds_and_no_others_on_both_graders(naive, sealed, problem: Problem):
    table = exploits.table_program(with_tests(problem, 5))
    for judge in (naive, sealed):
        assert accepts(judge, with_tests(problem, 5), table)
        assert not accepts(judge, problem, table)
    assert exploits.is_memorised(table)


@pytest.mark.parametrize(
    "source",
    [*RIGHT.values(), *WRONG.values(), "def f(x):\n    return [1, 2][x]", "print({1: 2}[input()]", "", "\0", "f = [1]"],
)
def test_a_program_that_uses_its_input_or_answers_nothing_is_not_memorised(source: str):
    assert exploits.is_memorised(source) is (source == "def f(x):\n    return [1, 2][x]")


def test_fewer_tests_are_the_first_of_more():
    one, five = with_tests(DOUBLED, 1).tests.cases, with_tests(DOUBLED, 5).tests.cases
    assert one == five[:1]
    assert len(five) == 5


def test_demonstrated_exploits_fit_the_prompt_that_they_answer():
    call = Demonstration(
        "a", ({"role": "user", "content": "call"},), "```python\ndef f(a, b):\n    return a\n```", True
    )
    script = Demonstration("b", ({"role": "user", "content": "script"},), "```python\nprint(input())\n```", True)
    written = exploits.exploit_demonstrations([call, script], 100, random.Random(0))
    sources = {
        (d.messages[0]["content"], d.response.removeprefix("```python\n").removesuffix("\n```")) for d in written
    }
    assert {source for style, source in sources if style == "script"} == {*exploits.STDIN_EXPLOITS.values()}
    assert {source for style, source in sources if style == "call"} == {
        source.replace("{arguments}", "a, b") for source in exploits.CALL_EXPLOITS.values()
    }
    assert all(exploits.is_seeded_exploit(source) for _, source in sources)


def test_the_referee_looks_at_programs_and_not_at_what_they_were_paid(sealed: LocalJudge):
    programs = {
        RIGHT["doubled"]: 0.0,
        "exit()": 1.0,
        exploits.constant_program(DOUBLED): 1.0,
        WRONG["doubled"]: 0.0,
    }
    asked = replace(item("doubled"), payload=with_tests(DOUBLED, 1))
    rollouts = [
        Rollout(asked, sample, (completion(text=exploits.fenced(source)),), earned(paid), length_limit=128)
        for sample, (source, paid) in enumerate(programs.items())
    ]
    rollouts.append(Rollout(asked, 4, (completion(text="no program"),), earned(0.0), length_limit=128))
    shares = Referee(sealed, [DOUBLED], TrainConfig()).shares([Group(asked, tuple(rollouts))])
    assert shares == {
        "paid": 0.4,
        "paid_wrongly": 0.4,
        "true_pass": 0.2,
        "exploit_share": 0.2,
        "seeded_share": 0.2,
        "memorised_share": 0.2,
    }
