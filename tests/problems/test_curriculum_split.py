"""What is held out is held out: by pairs of operations, and by behaviour as seen by programs run whole."""

from __future__ import annotations

import pytest

from autoclave.problems.curriculum.compose import DOMAINS
from autoclave.problems.curriculum.split import Part, Split, lowest
from tests.problems.whole_programs import adjacent_pairs, behaviour, program_of


def test_ids_name_the_pairs():
    assert adjacent_pairs("integer.call.sum.add-3.square.cap-9.number.01000") == {
        ("integer.add", "integer.square"),
        ("integer.square", "integer.cap"),
    }
    assert adjacent_pairs("text.stdin.replace-a-e.first-2.occurrences-a.000") == {("text.replace", "text.first")}


def test_no_training_problem_has_a_kept_pair(curriculum):
    kept = curriculum.heldout_pairs | curriculum.validation_pairs
    assert all(adjacent_pairs(problem.id).isdisjoint(kept) for problem in curriculum.train)


def test_no_demonstration_has_a_kept_pair(curriculum, shown):
    kept = curriculum.heldout_pairs | curriculum.validation_pairs
    assert all(adjacent_pairs(demonstration.task_id).isdisjoint(kept) for demonstration in shown)


def test_every_heldout_problem_has_a_pair_of_its_own_set(curriculum):
    for problem in curriculum.heldout:
        pairs = adjacent_pairs(problem.id)
        assert pairs & curriculum.heldout_pairs
        assert pairs.isdisjoint(curriculum.validation_pairs)
    for problem in curriculum.validation:
        pairs = adjacent_pairs(problem.id)
        assert pairs & curriculum.validation_pairs
        assert pairs.isdisjoint(curriculum.heldout_pairs)


def test_the_share_of_kept_pairs_is_as_asked(curriculum):
    num_pairs = sum(len(domain.operations) * (len(domain.operations) - 1) for domain in DOMAINS)
    kept = curriculum.heldout_pairs | curriculum.validation_pairs
    assert len(kept) / num_pairs == pytest.approx(0.25, abs=0.01)
    assert curriculum.heldout_pairs.isdisjoint(curriculum.validation_pairs)


def test_no_kept_problem_behaves_like_anything_trained_on(curriculum, shown):
    """Whole programs on probes of the test's own: every training solution, every demonstration, right or wrong."""
    trained = {behaviour(problem.id, problem.solutions[0]) for problem in curriculum.train}
    sources = {(demonstration.task_id.split(".")[0], program_of(demonstration)) for demonstration in shown}
    trained |= {behaviour(domain, source) for domain, source in sources}
    kept = [behaviour(problem.id, problem.solutions[0]) for problem in curriculum.heldout + curriculum.validation]
    assert len(trained) > 10_000
    assert trained.isdisjoint(kept)
    assert len(set(kept)) == len(kept)


def test_a_task_with_pairs_of_both_kept_sets_belongs_nowhere():
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
