"""Recording spans: from many threads, by clocks not to be trusted, for steps that overlap, in bounded memory."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import timeline as module
from autoclave.core.timeline import Role, Span, Timeline

WALL = 1_900_000_000.0


class Clocks:
    """A wall clock and a monotonic one, both moved by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = WALL, 50.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(module, "time", clocks)
    return clocks


def test_a_block_is_a_span_of_the_step_under_way_also_when_it_fails(clocks: Clocks):
    timeline = Timeline()
    timeline.begin(3)

    def learn() -> None:
        with timeline.time(Role.TRAINER, "learn", rollouts=8):
            clocks.pass_(2)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        learn()
    assert timeline.recorded().spans == (Span(Role.TRAINER, "learn", WALL, WALL + 2, 3, "", {"rollouts": 8}),)


def test_the_window_of_a_step_ends_at_its_barrier_and_spans_after_it_are_kept_with_it(clocks: Clocks):
    timeline = Timeline()
    timeline.begin(1)
    clocks.pass_(5)
    timeline.end()
    with timeline.time(Role.EVALUATION, "step 1"):
        clocks.pass_(7)
    found = timeline.recorded()
    assert found.window == (WALL, WALL + 5)
    assert found.spans[0].interval == (WALL + 5, WALL + 12)


def test_spans_of_a_later_step_wait_for_it(clocks: Clocks):
    timeline = Timeline()
    timeline.begin(1)
    clocks.pass_(9)
    timeline.record(Role.SAMPLER, "ahead", WALL + 3, WALL + 4, step=2)
    timeline.record(Role.SAMPLER, "own", WALL + 1, WALL + 2, step=1)
    assert [span.name for span in timeline.recorded().spans] == ["own"]
    assert {span.name for span in timeline.all_spans()} == {"own", "ahead"}
    timeline.begin(2)
    assert [span.name for span in timeline.recorded().spans] == ["ahead"]


def test_a_span_that_comes_after_its_step_was_forgotten_stands_with_the_next_and_keeps_its_own_step(clocks: Clocks):
    timeline = Timeline()
    timeline.begin(1)
    timeline.begin(2)
    timeline.record(Role.SAMPLER, "late", WALL - 2, WALL - 1, step=1)
    assert [(span.name, span.step) for span in timeline.recorded().spans] == [("late", 1)]


def test_going_back_to_an_earlier_step_forgets_everything(clocks: Clocks):
    timeline = Timeline()
    timeline.begin(4)
    timeline.record(Role.SAMPLER, "own", WALL - 2, WALL - 1)
    timeline.record(Role.SAMPLER, "ahead", WALL - 2, WALL - 1, step=5)
    timeline.begin(3)
    assert timeline.all_spans() == []


def test_spans_beyond_the_capacity_are_counted_and_room_comes_back_with_the_next_step(clocks: Clocks):
    timeline = Timeline(capacity=3)
    timeline.begin(1)
    for number in range(5):
        timeline.record(Role.JUDGE, str(number), WALL - 2, WALL - 1, step=1 + number % 2)
    assert timeline.recorded().dropped == 2
    timeline.begin(2)
    timeline.record(Role.JUDGE, "fits", WALL - 2, WALL - 1)
    assert ([span.name for span in timeline.recorded().spans], timeline.recorded().dropped) == (["1", "fits"], 0)
    for _ in range(2):
        timeline.record(Role.JUDGE, "one of them fits", WALL - 2, WALL - 1)
    assert timeline.recorded().dropped == 1


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (2.0, 5.0, (2.0, 5.0)),
        (5.0, 2.0, (5.0, 5.0)),  # the clock stepped back in between
        (-30.0, 5.0, (0.0, 5.0)),
        (-30.0, -20.0, (0.0, 0.0)),
        (5.0, 99.0, (5.0, 10.0)),  # now is 10
        (50.0, 99.0, (10.0, 10.0)),
        (math.nan, 5.0, (0.0, 5.0)),
        (2.0, math.nan, (2.0, 2.0)),
        (-math.inf, math.inf, (0.0, 0.0)),
        (0.0, 10.0005, (0.0, 10.0)),  # within the slack: not worth counting
    ],
)
def test_what_cannot_have_been_is_moved_to_what_can_and_counted(
    clocks: Clocks, start: float, end: float, expected: tuple[float, float]
):
    timeline = Timeline()
    timeline.begin(1)
    clocks.pass_(10)
    timeline.record(Role.SAMPLER, "request", WALL + start, WALL + end, not_before=WALL)
    found = timeline.recorded()
    assert found.spans[0].interval == pytest.approx((WALL + expected[0], WALL + expected[1]))
    assert found.moved == (expected != (start, end) and end != 10.0005)


def test_the_clock_of_a_timeline_does_not_follow_a_wall_clock_that_is_set(clocks: Clocks):
    timeline = Timeline()
    clocks.pass_(4)
    clocks.wall -= 3600
    assert timeline.now() == WALL + 4
    stamp = clocks.time()
    clocks.pass_(2)
    assert timeline.placed(stamp) == WALL + 4  # two seconds ago, by both clocks


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=20), st.floats(0, 1e9))
def test_every_span_has_an_order_and_lies_between_its_bound_and_now(times: list[tuple[float, float]], bound: float):
    timeline = Timeline()
    for start, end in times:
        timeline.record(Role.SAMPLER, "any", start, end, not_before=bound)
    spans = timeline.recorded().spans
    assert len(spans) == len(times)
    assert all(bound <= span.start <= span.end <= timeline.now() for span in spans)
    assert list(spans) == sorted(spans, key=lambda span: span.start)


def test_threads_lose_no_span():
    timeline = Timeline()
    timeline.begin(1)
    start = threading.Barrier(8)

    def record(number: int) -> None:
        start.wait()
        for index in range(500):
            timeline.record(Role.SAMPLER, f"{number}-{index}", 1.0, 2.0, step=1 + index % 2, lane=str(number))

    threads = [threading.Thread(target=record, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({span.name for span in timeline.all_spans()}) == 4000
    assert len(timeline.recorded().spans) == 2000
