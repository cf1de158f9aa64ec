"""Synthetic problems are right, strict, different, and the same in every process; their split holds.

The default problems and demonstrations take seconds to build: what reads them is in this file.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autoclave.config.problems import SyntheticConfig
from autoclave.config.training import SftConfig
from autoclave.core import ConfigError, Problem, read_problems
from autoclave.problems import Demonstration
from autoclave_environments.synthetic import SyntheticProblems, build, build_synthetic, demonstrations
from autoclave_environments.synthetic.compose import DOMAINS
from autoclave_environments.synthetic.split import Part, Split, lowest
from tests.problems.whole_programs import (
    adjacent_pairs,
    behaviour,
    inputs_and_outputs,
    operation_names,
    passes,
    program_of,
)

NUM_SHOWN = 20_000 if os.environ.get("AUTOCLAVE_SOAK") == "1" else 5_000
_DUMP = """
import json, sys
from autoclave.config.problems import SyntheticConfig
from autoclave.config.training import SftConfig
from autoclave_environments.synthetic import build_synthetic, demonstrations
config = SyntheticConfig(seed=3, train=200, validation=60, heldout=200)
built = build_synthetic(config)
for problem in built.train + built.validation + built.heldout:
    print(json.dumps(problem.to_json()))
for shown in demonstrations(config, SftConfig(demonstrations=400)):
    print(shown.task_id, json.dumps(shown.messages), json.dumps(shown.response), shown.is_right)
print(sorted(built.heldout_pairs), sorted(built.validation_pairs))
"""


@pytest.fixture(scope="module")
def synthetic() -> SyntheticProblems:
    return build_synthetic(SyntheticConfig())


@pytest.fixture(scope="module")
def shown() -> list[Demonstration]:
    return demonstrations(SyntheticConfig(), SftConfig(demonstrations=NUM_SHOWN))


def every(synthetic: SyntheticProblems) -> list[Problem]:
    return synthetic.train + synthetic.validation + synthetic.heldout


def test_default_sizes(synthetic):
    assert (len(synthetic.train), len(synthetic.validation), len(synthetic.heldout)) == (4000, 200, 300)


def test_reference_solutions_pass_their_tests(synthetic):
    failing = [problem.id for problem in every(synthetic) if not passes(problem, problem.solutions[0])]
    assert failing == []


@pytest.mark.parametrize("style", ["call", "stdin"])
def test_a_reference_solution_passes_in_a_process_of_its_own(synthetic, style):
    problem = next(problem for problem in synthetic.heldout if style in problem.tags)
    for case in problem.tests.cases:
        source = problem.solutions[0]
        source += f"\nprint(f(*{case.arguments!r}))" if style == "call" else ""
        ran = subprocess.run(
            [sys.executable, "-c", source], input=getattr(case, "input", ""), capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == str(case.output).strip()


def test_single_mutations_of_solutions_mostly_fail(synthetic):
    rng = random.Random(5)
    outcomes = [
        passes(problem, mutant) for problem in synthetic.train[:1500] if (mutant := mutated(problem.solutions[0], rng))
    ]
    assert len(outcomes) > 1000
    assert outcomes.count(False) >= 0.85 * len(outcomes)  # the rest are mostly equivalent programs


def mutated(source: str, rng: random.Random) -> str | None:
    """`source` with one small change in one line; loops with a condition are left alone, they might never end."""
    swaps = {" > ": " >= ", " >= ": " > ", " < ": " <= ", " <= ": " < ", " == ": " != ", "min(": "max(", "max(": "min(",
             "[::-1]": "", " // ": " % ", " % ": " // ", "x[1:]": "x", "s[1:]": "s"}  # fmt: skip
    lines = source.splitlines()
    changes: list[str] = []
    for place, line in enumerate(lines):
        if "while" in source or line.startswith(("def ", "x = list(map(int, input", "s = input", "a, b")):
            continue
        changed = [line.replace(old, new, 1) for old, new in swaps.items() if old in line]
        changed += [re.sub(r"\d", lambda digit: str(int(digit[0]) + 1), line, count=1)]
        changes += ["\n".join([*lines[:place], new, *lines[place + 1 :]]) for new in changed if new != line]
    return rng.choice(changes) if changes else None


def test_tests_grow_and_their_answers_vary(synthetic):
    for problem in every(synthetic):
        inputs, outputs = inputs_and_outputs(problem)
        lengths = [len(" ".join(map(str, arguments))) for arguments in inputs]
        assert len(inputs) >= 8
        assert lengths[0] < lengths[-1]
        assert sum(lengths[:4]) < sum(lengths[4:])
        assert len(set(outputs)) >= 3
        assert max(map(len, outputs)) <= 400


def test_lists_and_texts_are_also_tried_empty(synthetic):
    for problem in every(synthetic):
        inputs, _ = inputs_and_outputs(problem)
        if "integer" not in problem.tags:
            assert inputs[0] in {("",)} if "stdin" in problem.tags or "text" in problem.tags else inputs[0] == ([],)


def test_ids_statements_and_digests_are_unique(synthetic):
    problems = every(synthetic)
    for values in ([p.id for p in problems], [p.statement for p in problems], [p.digest for p in problems]):
        assert len(set(values)) == len(problems)


def test_every_operation_occurs_in_training(synthetic):
    seen = {name for problem in synthetic.train for name in operation_names(problem.id)}
    assert seen == {f"{domain.name}.{operation.name}" for domain in DOMAINS for operation in domain.operations}


def test_problems_are_labelled(synthetic):
    for problem in every(synthetic):
        domain, style, depth = problem.tags
        num_operations = len(operation_names(problem.id))
        assert domain in ("list", "text", "integer")
        assert style == problem.tests.kind
        assert (depth, problem.difficulty) == {2: ("depth-2", "medium"), 3: ("depth-3", "hard")}[num_operations]
        assert (problem.source, problem.time_limit_s) == ("curriculum", 1.0)


def test_all_sets_have_the_same_mix_of_depths(synthetic):
    for problems in (synthetic.train, synthetic.validation, synthetic.heldout):
        share = sum("depth-3" in problem.tags for problem in problems) / len(problems)
        assert share == pytest.approx(1 / 3, abs=0.01)


def test_statements_are_short(synthetic):
    assert max(len(problem.statement) for problem in every(synthetic)) < 200


def test_same_settings_give_the_same_bytes_in_any_process():
    digests = set()
    for hash_seed in ("1", "77"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        ran = subprocess.run([sys.executable, "-c", _DUMP], capture_output=True, env=environment, check=True)
        assert ran.stdout.count(b"\n") == 861
        digests.add(hashlib.sha256(ran.stdout).hexdigest())
    assert len(digests) == 1


def test_another_seed_gives_other_problems(synthetic):
    other = build_synthetic(SyntheticConfig(seed=1, train=100, validation=20, heldout=200))
    assert other.heldout_pairs != synthetic.heldout_pairs
    assert {p.id for p in other.train}.isdisjoint({p.id for p in synthetic.train[:100]})


def test_problems_survive_a_file(synthetic, tmp_path: Path):
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(problem.to_json()) + "\n" for problem in synthetic.heldout))
    assert list(read_problems(path)) == synthetic.heldout


def test_changing_the_returned_lists_does_not_change_the_cache():
    config = SyntheticConfig(train=20, validation=5, heldout=200)
    build_synthetic(config).train.clear()
    assert len(build_synthetic(config).train) == 20


def test_problems_and_demonstrations_are_of_the_domains_asked_for():
    config = SyntheticConfig(train=40, validation=5, heldout=200, domains=("text", "integer"))
    synthetic = build_synthetic(config)
    for problems in (synthetic.train, synthetic.validation, synthetic.heldout):
        assert {problem.tags[0] for problem in problems} == {"text", "integer"}
    written = demonstrations(config, SftConfig(demonstrations=200))
    assert {demonstration.task_id.partition(".")[0] for demonstration in written} == {"text", "integer"}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_that_leaves_a_set_empty_is_refused(share):
    with pytest.raises(ConfigError, match=r"problems\.heldout_share: leaves no"):
        build_synthetic(SyntheticConfig(heldout_share=share, train=10))


def test_more_problems_than_exist_are_an_error(monkeypatch):
    monkeypatch.setattr(build, "_MAX_REJECTED", 1)
    with pytest.raises(ConfigError, match=r"problems\.heldout = 5000: only \d+ different problems"):
        build_synthetic(SyntheticConfig(heldout_share=0.01, train=10, heldout=5000))


# --- The split -------------------------------------------------------------------------------------------------------


def test_ids_name_the_pairs():
    assert adjacent_pairs("integer.call.sum.add-3.square.cap-9.number.01000") == {
        ("integer.add", "integer.square"),
        ("integer.square", "integer.cap"),
    }
    assert adjacent_pairs("text.stdin.replace-a-e.first-2.occurrences-a.000") == {("text.replace", "text.first")}


def test_no_training_problem_has_a_kept_pair(synthetic):
    kept = synthetic.heldout_pairs | synthetic.validation_pairs
    assert all(adjacent_pairs(problem.id).isdisjoint(kept) for problem in synthetic.train)


def test_no_demonstration_has_a_kept_pair(synthetic, shown):
    kept = synthetic.heldout_pairs | synthetic.validation_pairs
    assert all(adjacent_pairs(demonstration.task_id).isdisjoint(kept) for demonstration in shown)


def test_every_heldout_problem_has_a_pair_of_its_own_set(synthetic):
    for problem in synthetic.heldout:
        pairs = adjacent_pairs(problem.id)
        assert pairs & synthetic.heldout_pairs
        assert pairs.isdisjoint(synthetic.validation_pairs)
    for problem in synthetic.validation:
        pairs = adjacent_pairs(problem.id)
        assert pairs & synthetic.validation_pairs
        assert pairs.isdisjoint(synthetic.heldout_pairs)


def test_the_share_of_kept_pairs_is_as_configured(synthetic):
    num_pairs = sum(len(domain.operations) * (len(domain.operations) - 1) for domain in DOMAINS)
    kept = synthetic.heldout_pairs | synthetic.validation_pairs
    assert len(kept) / num_pairs == pytest.approx(0.25, abs=0.01)
    assert synthetic.heldout_pairs.isdisjoint(synthetic.validation_pairs)


def test_no_kept_problem_behaves_like_anything_trained_on(synthetic, shown):
    """Whole programs on probes of the test's own: every training solution, every demonstration, right or wrong."""
    trained = {behaviour(problem.id, problem.solutions[0]) for problem in synthetic.train}
    sources = {(demonstration.task_id.split(".")[0], program_of(demonstration)) for demonstration in shown}
    trained |= {behaviour(domain, source) for domain, source in sources}
    kept = [behaviour(problem.id, problem.solutions[0]) for problem in synthetic.heldout + synthetic.validation]
    assert len(trained) > NUM_SHOWN // 2
    assert trained.isdisjoint(kept)
    assert len(set(kept)) == len(kept)


def test_a_task_with_pairs_of_both_kept_sets_is_in_no_part():
    split = Split(validation=frozenset({("a", "b")}), heldout=frozenset({("b", "c")}))
    assert split.part([("a", "b"), ("b", "c")]) is None
    assert split.part([("b", "c"), ("c", "d")]) is Part.HELDOUT
    assert split.part([("a", "b"), ("b", "d")]) is Part.VALIDATION
    assert split.part([("b", "a")]) is Part.TRAIN
    assert split.part([]) is Part.TRAIN


def test_a_larger_share_keeps_what_a_smaller_one_kept():
    items = range(50)
    assert lowest(items, 0.4, "salt")[:10] == lowest(items, 0.2, "salt")
    assert lowest(items, 0.2, "salt") != lowest(items, 0.2, "pepper")


# --- Demonstrations --------------------------------------------------------------------------------------------------


def test_the_number_of_demonstrations_is_as_configured_and_three_in_five_are_right(shown):
    assert len(shown) == NUM_SHOWN
    assert sum(demonstration.is_right for demonstration in shown) / len(shown) == pytest.approx(0.58, abs=0.04)


def test_each_is_one_fenced_program_in_reply_to_a_bare_statement(shown):
    for demonstration in shown[:3000]:
        assert re.fullmatch(r"```python\n[^`]+\n```", demonstration.response)
        ast.parse(program_of(demonstration))
        (message,) = demonstration.messages
        assert message["role"] == "user"
        assert message["content"].endswith(".")


def test_right_demonstrations_pass_and_wrong_ones_mostly_fail(synthetic, shown):
    problems = {problem.id: problem for problem in synthetic.train}
    known = [demonstration for demonstration in shown if demonstration.task_id in problems]
    right = [passes(problems[d.task_id], program_of(d)) for d in known if d.is_right]
    wrong = [passes(problems[d.task_id], program_of(d)) for d in known if not d.is_right]
    assert len(right) > 50
    assert all(right)
    assert wrong.count(False) >= 0.95 * len(wrong)


def test_every_operation_is_shown_right_at_least_once(shown):
    names = {
        name for demonstration in shown if demonstration.is_right for name in operation_names(demonstration.task_id)
    }
    assert names == {f"{domain.name}.{operation.name}" for domain in DOMAINS for operation in domain.operations}
