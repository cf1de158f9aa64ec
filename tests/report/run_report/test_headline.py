from __future__ import annotations

import json

import pytest

from autoclave.report.run_report.headline import headline
from autoclave.runs.reader import read_run


def _rewrite_summary(folder, **changes):
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_summary_names_the_numbers(make_run):
    folder = make_run()
    _rewrite_summary(folder, heldout_pass1_before=0.25, heldout_pass1_interval_before=[0.2, 0.3])
    told = headline(read_run(folder))
    first = told.measures[0]
    assert [measure.label for measure in told.measures] == ["pass@1", "greedy", "pass@8"]
    assert (first.before.value, first.before.bounds) == (0.25, (0.2, 0.3))
    assert told.after == "after RL"
    assert dict(told.facts)["Isolation"] == "sealed"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ([0.2, 0.3], [0.4, 0.5], "do not overlap: held-out problems are solved more often"),
        ([0.2, 0.3], [0.29, 0.4], "overlap: this run alone does not show a change"),
        ([0.4, 0.5], [0.2, 0.3], "do not overlap: held-out problems are solved less often"),
    ],
)
def test_the_sentence_says_what_the_intervals_allow(make_run, before, after, sentence):
    folder = make_run()
    _rewrite_summary(folder, heldout_pass1_interval_before=before, heldout_pass1_interval_after=after)
    assert sentence in " ".join(headline(read_run(folder)).sentences)


def test_an_unfinished_run_is_compared_at_its_latest_evaluation_and_says_how_large_that_was(make_run):
    told = headline(read_run(make_run(steps=25, is_finished=False)))
    assert told.after == "at step 20"
    assert "The latest evaluation used 100 of the 300 held-out problems." in told.sentences
    assert dict(told.facts)["Steps"] == "25 of 60"


def test_one_evaluation_is_not_a_comparison(make_run):
    told = headline(read_run(make_run(steps=5, is_finished=False)))
    assert told.measures[0].after is None
    assert "Only the evaluation before RL is recorded so far." in told.sentences
