"""Footprints: what depends on what, and groups that commute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoclave.runtime.footprints import Done, Footprint, groups, meet

KEYS = st.sampled_from(["files", "files/a", "files/a/b", "files/ab", "files/c", "rows/t", "rows/t/1", "rows/t/2"])
SETS = st.frozensets(KEYS, max_size=3)
FOOTPRINTS = st.builds(Footprint, SETS, SETS)


@given(SETS, SETS)
def test_sets_meet_where_a_key_is_the_same_or_below(one: frozenset[str], other: frozenset[str]):
    expected = any(a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/") for a in one for b in other)
    assert meet(one, other) == meet(other, one) == expected


@given(st.lists(FOOTPRINTS, max_size=10))
def test_groups_hold_all_in_order_and_commute_within(footprints: list[Footprint]):
    done = [Done(f"{number}", footprint, float(number)) for number, footprint in enumerate(footprints)]
    found = groups(done)
    assert [name for group in found for name in group] == [each.action for each in done]
    for group in found:
        own = [footprints[int(name)] for name in group]
        assert all(a.commutes_with(b) for place, a in enumerate(own) for b in own[:place])


def test_groups_close_at_savepoints_limits_and_what_cannot_be_taken_back():
    def done(number: int, **others: object) -> Done:
        return Done(f"{number}", Footprint(writes=frozenset({f"files/{number}"})), float(number), **others)  # type: ignore

    plain = [done(number) for number in range(4)]
    assert groups(plain) == [["0", "1", "2", "3"]]
    assert groups(plain, savepoints=[1.5]) == [["0", "1"], ["2", "3"]]
    assert [len(group) for group in groups([done(number) for number in range(120)])] == [50, 50, 20]
    assert groups([done(0, closes=True), done(1)]) == [["0"], ["1"]]
