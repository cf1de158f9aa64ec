from __future__ import annotations

import json
import tracemalloc

import pytest

from autoclave.core import DataError
from autoclave.report.view import Request, write_view
from autoclave.report.view.survey import sources_of, survey


def figures_of(folder, **words):
    (source,) = sources_of(Request(folder, steps=(1,), **words))
    return survey(source, words.get("problems", ())).figures


def test_figures_are_over_all_rollouts_of_a_step(record, rollout):
    folder = record({1: [
        rollout("a", 0, tokens=10, token_ids=[1, 2], sampler_log_probs=[-1, -2], trainer_log_probs=[-1.5, -2]),
        rollout("a", 1, "wrong_answer", tokens=20, finish_reason="length", mask_reason="overlong", token_ids=None),
        rollout("b", 0, None, tokens=30, token_ids=None),
    ]})  # fmt: skip
    found = figures_of(folder)
    assert (found.rollouts, found.masked, found.cut) == (3, 2, 1)
    assert found.statuses == {"accepted": 1, "wrong_answer": 1, "no_verdict": 1}
    assert (found.accepted_share, found.reward.value, found.length.value) == (pytest.approx(1 / 3), 0.5, 20.0)
    assert (found.mismatch.value, found.max_mismatch) == (0.25, 0.5)  # |0.5| and 0; the other two have none


def test_of_a_problem_only_its_rollouts_count(record, rollout):
    folder = record({1: [rollout("a", sample) for sample in range(3)] + [rollout("b")]})
    assert figures_of(folder, problems=("a",)).rollouts == 3


def test_what_was_never_recorded_is_none(record):
    found = figures_of(record({1: [{"group": 0, "response": "x"}]}))
    assert (found.reward.value, found.length.value, found.mismatch.value, found.max_mismatch) == (
        None,
        None,
        None,
        None,
    )


def test_a_line_of_another_format_is_refused(record, rollout):
    folder = record({1: [rollout("a"), rollout("b") | {"format": "autoclave-rollout/2"}]})
    with pytest.raises(DataError, match=r'gz:2: format = "autoclave-rollout/2": must be "autoclave-rollout/1"'):
        figures_of(folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"token_ids": [1, 2]},
        {"token_ids": ["1"] * 8},
        {"token_ids": "12345678"},
        {"token_ids": [True] * 8},
        {"sampler_log_probs": ["-1"] * 8},
        {"sampler_log_probs": None},
    ],
    ids=json.dumps,
)
def test_columns_that_do_not_fit_are_as_not_recorded(record, rollout, changed):
    folder = record({1: [rollout("a") | changed]})
    assert figures_of(folder).max_mismatch is None
    assert "Tokens and their log-probs: not recorded." in write_view(Request(folder)).path.read_text("utf-8")


def test_memory_does_not_grow_with_the_file(record, rollout):
    long = {"response": "x " * 10_000, "sampler_log_probs": [-0.5] * 999, "trainer_log_probs": [-0.5] * 999}
    long |= {"token_ids": [7] * 999, "tokens": 999}
    folder = record({1: [rollout("p") | long | {"item": number, "group": number} for number in range(150)]})
    tracemalloc.start()
    try:
        written = write_view(Request(folder, limit=2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (written.num_shown, written.num_found) == (2, 150)
    assert peak < 5e6  # the records together are more than 15 MB
