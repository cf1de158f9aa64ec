from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoclave.report.view.survey import Outline, Survey, choose_pairs, choose_varied


def survey(**groups: str) -> Survey:
    """Groups by name; `a` is an accepted rollout, `f` one that failed."""
    return Survey(None, groups={name: Outline(name, [each == "a" for each in line]) for name, line in groups.items()})


def test_partly_accepted_groups_come_first():
    found = survey(won="aa", lost="ff", mixed="af", other="fa")
    assert [chosen.group for chosen in choose_varied([found], 100)] == ["mixed", "other", "lost", "won"]


def test_steps_take_turns_and_stay_in_order():
    first, last = survey(a="af", b="af", c="af"), survey(d="af", e="af")
    chosen = choose_varied([first, last], 6)
    assert [(group.source, group.group) for group in chosen] == [(0, "a"), (0, "b"), (1, "d")]


def test_groups_stay_whole_but_for_one_that_is_larger_than_the_limit():
    assert [chosen.rollouts for chosen in choose_varied([survey(a="afff", b="afff")], 7)] == [4]
    assert [chosen.rollouts for chosen in choose_varied([survey(a="afff", b="afff")], 3)] == [3]


outlines = st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.text("af", min_size=1, max_size=5), max_size=8)


@given(st.lists(outlines, min_size=1, max_size=3), st.integers(1, 30))
def test_no_more_than_the_limit_is_chosen_and_nothing_twice(groups: list[dict[str, str]], limit: int):
    surveys = [survey(**each) for each in groups]
    chosen = choose_varied(surveys, limit)
    assert sum(group.rollouts for group in chosen) <= limit
    assert len({(group.source, group.group) for group in chosen}) == len(chosen)
    assert bool(chosen) == any(groups)


def test_problems_are_paired_by_item_and_those_that_changed_most_come_first():
    before, after = (
        survey(same="af", better="ff", worse="aa", gone="a"),
        survey(worse="af", better="aa", same="fa", new="a"),
    )
    pairs = choose_pairs(before, after, 100)
    assert [(old.group, new.group) for old, new in pairs] == [
        ("better", "better"),
        ("worse", "worse"),
        ("same", "same"),
    ]
    assert {(old.source, new.source) for old, new in pairs} == {(0, 1)}


def test_a_pair_counts_both_of_its_groups():
    before, after = survey(a="afff", b="afff"), survey(a="ffff", b="ffff")
    assert [(old.rollouts, new.rollouts) for old, new in choose_pairs(before, after, 15)] == [(4, 4)]
    assert [(old.rollouts, new.rollouts) for old, new in choose_pairs(before, after, 5)] == [(2, 2)]
