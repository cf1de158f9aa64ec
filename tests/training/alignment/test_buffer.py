from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import AlignmentSample
from autoclave.training.alignment.buffer import AlignmentBuffer


def alignment_sample(number: int, problem: str = "p", version: int = 0) -> AlignmentSample:
    return AlignmentSample(
        problem_id=problem,
        test=0,
        program=f"x = {number}",
        entry="<module>",
        input="",
        variables={"x": str(number)},
        version=version,
    )


def buffer(capacity: int = 100, per_problem: int = 100, max_staleness: int | None = None) -> AlignmentBuffer:
    return AlignmentBuffer(capacity=capacity, per_problem=per_problem, max_staleness=max_staleness)


def test_the_newest_come_first_and_each_once():
    found = buffer()
    found.add(alignment_sample(number) for number in range(5))
    assert [each.values["x"] for each in found.take(2)] == [4, 3]
    found.add([alignment_sample(9)])
    assert [each.values["x"] for each in found.take(10)] == [9, 2, 1, 0]
    assert len(found) == 0


def test_a_program_on_an_input_is_taught_once_even_after_it_was_asked():
    found = buffer()
    assert found.add([alignment_sample(1), alignment_sample(1, problem="q")]) == {
        "added": 1,
        "duplicate": 1,
        "dropped": 0,
    }
    found.take(1)
    assert found.add([alignment_sample(1)])["duplicate"] == 1
    assert found.knows(alignment_sample(1).key)


def test_the_oldest_leave_when_it_is_full_and_when_a_problem_has_its_share():
    found = buffer(capacity=3)
    assert found.add(alignment_sample(number) for number in range(5))["dropped"] == 2
    assert [each.values["x"] for each in found.take(9)] == [4, 3, 2]
    found = buffer(per_problem=2)
    found.add([alignment_sample(0, "a"), alignment_sample(1, "b"), alignment_sample(2, "a"), alignment_sample(3, "a")])
    assert [each.values["x"] for each in found.take(9)] == [3, 2, 1]


def test_alignment_samples_of_policies_that_are_too_old_are_dropped():
    found = buffer(max_staleness=3)
    found.add(alignment_sample(number, version=number) for number in range(6))
    assert found.drop_stale(7) == 4
    assert [each.version for each in found.take(9)] == [5, 4]
    assert buffer().drop_stale(100) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.integers(0, 9)), max_size=60))
def test_it_is_the_same_after_it_was_written_and_read(given_alignment_samples: list[tuple[int, str, int]]):
    found, again = buffer(capacity=8, per_problem=3), buffer(capacity=8, per_problem=3)
    found.add(alignment_sample(*each) for each in given_alignment_samples)
    found.take(2)
    again.restore(json.loads(json.dumps(found.to_plain())))
    more = [alignment_sample(number, "d") for number in range(40)]
    assert found.add(more) == again.add(more)
    assert found.take(100) == again.take(100)
    assert len(found) == len(again) == 0
