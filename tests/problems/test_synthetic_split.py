"""The split holds by pairs of operations, and by the behaviour of whole programs."""

from __future__ import annotations

import pytest

from autoclave.problems.synthetic.compose import DOMAINS
from autoclave.problems.synthetic.split import Part, Split, lowest
from tests.problems.whole_programs import adjacent_pairs, behaviour, program_of


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
    assert len(trained) > 10_000
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
