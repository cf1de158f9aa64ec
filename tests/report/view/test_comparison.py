from __future__ import annotations

from autoclave.report.view.page import COMPARED_LINES, compared, difference
from autoclave.report.view.shown import ShownGroup, shown_rollout
from autoclave.runs.rollouts import RecordedRollout


def group(*rollouts: dict) -> ShownGroup:
    return ShownGroup(None, 0, "a", "p", [shown_rollout(RecordedRollout(each), None) for each in rollouts], 0, 0)


def test_a_changed_line_is_removed_and_added():
    found = list(difference("a\nb\nc", "a\nB\nc"))
    assert found == [("place", "@@ -1,3 +1,3 @@"), ("kept", "a"), ("removed", "b"), ("added", "B"), ("kept", "c")]


def test_equal_lines_far_from_a_change_are_left_out():
    same = [str(number) for number in range(10)]
    found = list(difference("\n".join([*same, "old"]), "\n".join([*same, "new"])))
    assert [text for _, text in found] == ["@@ -8,4 +8,4 @@", "7", "8", "9", "old", "new"]


def test_of_very_long_responses_only_the_first_lines_are_compared():
    found = list(difference("a\n" * 1000, "b\n" * 1000))
    assert len(found) == 2 * COMPARED_LINES + 2
    assert found[-1] == ("place", f"lines after the first {COMPARED_LINES} are not compared")


def test_samples_of_one_number_stand_together(rollout):
    found = compared(group(rollout("a", 1), rollout("a", 0)), group(rollout("a", 1, response="x"), rollout("a", 2)))
    samples = [tuple(shown and shown.sample for shown in (pair.before, pair.after)) for pair in found.pairs]
    assert samples == [(0, None), (1, 1), (None, 2)]
    assert [pair.difference is not None for pair in found.pairs] == [False, True, False]


def test_equal_responses_have_no_difference(rollout):
    (pair,) = compared(group(rollout("a", 0)), group(rollout("a", 0))).pairs
    assert pair.difference is None
    assert len(pair.both) == 2


def test_the_first_pair_whose_verdict_changed_is_open(rollout):
    before = group(*(rollout("a", sample, "wrong_answer") for sample in range(3)))
    after = group(rollout("a", 0, "wrong_answer"), rollout("a", 1), rollout("a", 2))
    assert compared(before, after).open_pair.after.sample == 1
    assert compared(before, before).open_pair.after.sample == 0
