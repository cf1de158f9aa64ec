"""Simulated schedules: figures worked out by hand, and laws that hold for every profile."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import ConfigError
from autoclave.core.timeline import Role, Span
from autoclave.planning.profile import Profile, Work
from autoclave.planning.simulation import ScheduleName, ScheduleRun, Split, simulate
from tests.planning.profiles import divided, profiles, tiny, ways

ONE_EACH = Split(1, 1)
SYNCHRONOUS, MINIBATCH = ScheduleName.SYNCHRONOUS, ScheduleName.MINIBATCH_PIPELINE
ONE_OFF, ASYNCHRONOUS = ScheduleName.ONE_OFF_PIPELINE, ScheduleName.ASYNCHRONOUS


def times(run: ScheduleRun, role: Role) -> list[tuple[float, float]]:
    return [(span.start, span.end) for span in sorted(run.of(role), key=lambda span: (span.end, span.start))]


def place(span: Span) -> tuple[int, int]:
    """Iteration, and which request of it."""
    return span.step - 1, int(span.name)


def work_of(profile: Profile, span: Span) -> Work:
    iteration, request = place(span)
    return profile.iterations[iteration][request]


# --- By hand: see `tiny` -------------------------------------------------------------------------------------------


def test_synchronous_does_one_thing_after_the_other():
    run = simulate(tiny(), SYNCHRONOUS, Split.time_sharing(1), rewards_after_sampling=True)
    assert times(run, Role.SAMPLER) == [(0, 4), (0, 7)]
    assert times(run, Role.JUDGE) == [(7, 8), (8, 9)]  # one slot
    assert times(run, Role.TRAINER) == [(9, 12)]  # 6 tokens of 0.5 s
    assert times(run, Role.PUBLISH) == [(12, 13)]
    assert run.ends == (13,)


def test_rewards_that_start_when_a_response_is_done_hide_behind_sampling():
    run = simulate(tiny(), SYNCHRONOUS, Split.time_sharing(1))
    assert times(run, Role.JUDGE) == [(4, 5), (7, 8)]
    assert run.ends == (12,)
    assert run.hidden_reward_share() == 0.5


def test_the_minibatch_pipeline_learns_from_what_is_complete_and_the_last_part_spills_over():
    run = simulate(tiny(iterations=2), MINIBATCH, ONE_EACH)
    assert times(run, Role.TRAINER) == [(5, 6), (8, 10), (16, 17), (19, 21)]
    assert run.ends == (11, 22)  # the second iteration is sampled from 11 on
    assert run.hidden_training_share() == pytest.approx(1 / 3)


def test_the_sampler_of_the_one_off_pipeline_is_one_iteration_ahead_and_does_not_wait_for_rewards():
    run = simulate(tiny(iterations=3), ONE_OFF, ONE_EACH)
    assert times(run, Role.SAMPLER)[1::2] == [(0, 7), (7, 14), (14, 21)]
    assert times(run, Role.TRAINER) == [(8, 11), (15, 18), (22, 25)]
    assert run.ends == (12, 19, 26)
    assert (run.whole_s, run.steady_s) == (26 / 3, 7)
    assert (run.busy_share(Role.SAMPLER), run.busy_share(Role.TRAINER)) == (1, 3 / 7)  # from 7 to 14
    assert run.hidden_training_share() == 1


def test_the_sampler_of_the_one_off_pipeline_is_not_two_iterations_ahead_of_a_slow_trainer():
    run = simulate(tiny(iterations=3, train_ms_per_token=2000.0), ONE_OFF, ONE_EACH)  # 12 s an update
    assert times(run, Role.TRAINER) == [(8, 20), (21, 33), (34, 46)]
    assert times(run, Role.SAMPLER)[1::2] == [(0, 7), (7, 14), (21, 28)]  # 21: the first update is published


def test_the_asynchronous_schedule_fills_the_slots_that_the_last_responses_leave():
    run = simulate(tiny(iterations=2), ASYNCHRONOUS, ONE_EACH, max_staleness=1)
    # The short response of the second iteration runs beside the long one of the first, from 4 to 8.
    assert times(run, Role.SAMPLER) == [(0, 4), (0, 8), (4, 8), (8, 14)]
    assert times(run, Role.JUDGE) == [(4, 5), (8, 9), (9, 10), (14, 15)]
    assert run.ends == (13, 19)


def test_devices_of_the_trainer_divide_its_work_and_devices_of_the_sampler_its_requests():
    run = simulate(tiny(), SYNCHRONOUS, Split(2, 3))
    assert times(run, Role.SAMPLER) == [(0, 3), (0, 6)]  # each alone on its device: 1.5 s a token
    assert run.ends == (6 + 1 + 1 + 1,)  # the last reward, then 6 tokens of 0.5 s on three devices, and a publish


def test_requests_beyond_the_slots_wait():
    run = simulate(tiny(slots=1), SYNCHRONOUS, ONE_EACH)
    assert times(run, Role.SAMPLER) == [(0, 3), (3, 9)]


@pytest.mark.parametrize(("keeps_groups", "expected"), [(False, [[0, 2, 4], [1, 3]]), (True, [[0, 1, 4], [2, 3]])])
def test_requests_are_assigned_in_turn(keeps_groups: bool, expected: list[list[int]]):
    lengths = [(0, 3), (0, 1), (1, 9), (1, 2), (2, 5)]
    profile = tiny(slots=8, iterations=(tuple(Work(group, tokens, 0.0) for group, tokens in lengths),))
    run = simulate(profile, SYNCHRONOUS, Split(2, 1), keeps_groups=keeps_groups)
    on_device = defaultdict(list)
    for span in run.of(Role.SAMPLER):
        on_device[span.lane].append(int(span.name))
    assert [sorted(on_device[device]) for device in ("0", "1")] == expected


@pytest.mark.parametrize("schedule", [MINIBATCH, ONE_OFF, ASYNCHRONOUS])
def test_devices_that_take_turns_cannot_work_at_the_same_time(schedule: ScheduleName):
    with pytest.raises(ConfigError, match="divide them"):
        simulate(tiny(), schedule, Split.time_sharing(2))


def test_a_role_without_a_device_is_an_error():
    with pytest.raises(ConfigError, match="split 2:0: sampler and trainer need at least one device each"):
        simulate(tiny(), ONE_OFF, Split(2, 0))


# --- Laws ----------------------------------------------------------------------------------------------------------


def overlapping(spans: list[Span]) -> bool:
    ordered = sorted((span.start, span.end) for span in spans)
    return any(second[0] < first[1] - 1e-9 for first, second in pairwise(ordered))


@given(profiles(), ways(), st.booleans())
def test_all_work_is_done_once_and_by_one_at_a_time(profile: Profile, way, keeps_groups):
    schedule, split, staleness = way
    run = simulate(profile, schedule, split, max_staleness=staleness, keeps_groups=keeps_groups)
    wanted = Counter((i, r) for i, works in enumerate(profile.iterations) for r in range(len(works)))
    assert Counter(place(span) for span in run.of(Role.SAMPLER)) == wanted
    assert Counter(place(span) for span in run.of(Role.JUDGE)) == wanted
    places = defaultdict(list)
    for span in run.spans:
        role = Role.TRAINER if span.role is Role.PUBLISH else span.role
        places[role, int(span.lane or 0)].append(span)
    for (role, lane), spans in places.items():
        if role is Role.SAMPLER:
            assert lane < split.samplers
            assert all(sum(one.start <= other.start < one.end for one in spans) <= profile.slots for other in spans)
        else:
            assert not overlapping(spans)
    if split.is_shared:
        busy = [(span.start, span.end) for span in run.of(Role.TRAINER)]
        assert all(
            span.end <= low + 1e-9 or span.start >= high - 1e-9 for span in run.of(Role.SAMPLER) for low, high in busy
        )


@given(profiles(), ways(), st.booleans())
def test_time_is_what_the_work_takes(profile: Profile, way, keeps_groups):
    schedule, split, staleness = way
    run = simulate(profile, schedule, split, max_staleness=staleness, keeps_groups=keeps_groups)
    for device in range(split.samplers):
        spans = [span for span in run.of(Role.SAMPLER) if span.lane == str(device)]
        done = [0.0] * len(spans)
        moments = sorted({moment for span in spans for moment in (span.start, span.end)})
        for low, high in pairwise(moments):
            running = [i for i, span in enumerate(spans) if span.start <= low and span.end >= high]
            for index in running:
                done[index] += (high - low) / profile.token_s(len(running))
        lengths = [work_of(profile, span).tokens for span in spans]
        assert done == pytest.approx(lengths, abs=1e-6)
    for span in run.of(Role.JUDGE):
        assert span.end - span.start == pytest.approx(work_of(profile, span).reward_s)
    for iteration, works in enumerate(profile.iterations):
        learnt = profile.train_s(sum(work.tokens for work in works), split.trainers)
        assert sum(span.end - span.start for span in run.of(Role.TRAINER, iteration)) == pytest.approx(learnt)


@given(profiles(), ways())
def test_nothing_happens_before_what_it_needs(profile: Profile, way):
    schedule, split, staleness = way
    run = simulate(profile, schedule, split, max_staleness=staleness)
    behind = {ONE_OFF: 1, ASYNCHRONOUS: staleness}.get(schedule, 0)
    sampled = {place(span): span.end for span in run.of(Role.SAMPLER)}
    assert all(span.start >= sampled[place(span)] - 1e-9 for span in run.of(Role.JUDGE))
    for iteration in range(len(profile.iterations)):
        judged = max(span.end for span in run.of(Role.JUDGE, iteration))
        updates = run.of(Role.TRAINER, iteration)
        assert run.ends[iteration] == pytest.approx(updates[-1].end + profile.sync_s)
        assert updates[-1].start >= judged - 1e-9
        if schedule is not MINIBATCH:
            assert len(updates) == 1
        if iteration > behind:
            begun = min(span.start for span in run.of(Role.SAMPLER, iteration))
            assert begun >= run.ends[iteration - 1 - behind] - 1e-9
    if schedule is not ASYNCHRONOUS:
        for iteration in range(1, len(profile.iterations)):
            before = max(span.end for span in run.of(Role.SAMPLER, iteration - 1))
            assert min(span.start for span in run.of(Role.SAMPLER, iteration)) >= before - 1e-9


@given(profiles(), ways(), st.booleans())
def test_no_run_is_shorter_than_the_work_of_any_role(profile: Profile, way, keeps_groups):
    schedule, split, staleness = way
    run = simulate(profile, schedule, split, max_staleness=staleness, keeps_groups=keeps_groups)
    works = [work for iteration in profile.iterations for work in iteration]
    tokens, count = sum(work.tokens for work in works), len(profile.iterations)
    least = max(
        profile.train_s(tokens, split.trainers) + count * profile.sync_s,
        sum(work.reward_s for work in works) / profile.judge_slots,
        tokens * profile.token_s(profile.slots) / profile.slots / split.samplers,
        max(work.tokens * profile.token_s(1) + work.reward_s for work in works),
    )
    assert run.ends[-1] >= least - 1e-6


@given(profiles(reward_s=(0.0,)), divided())
def test_one_off_is_never_slower_than_synchronous_on_the_same_devices_where_judging_is_free(profile, split):
    one_off, synchronous = (simulate(profile, schedule, split) for schedule in (ONE_OFF, SYNCHRONOUS))
    assert all(end <= other + 1e-6 for end, other in zip(one_off.ends, synchronous.ends, strict=True))


@given(profiles(), divided())
def test_without_staleness_the_asynchronous_schedule_is_the_synchronous_one(profile, split):
    asynchronous = simulate(profile, ASYNCHRONOUS, split, max_staleness=0)
    assert asynchronous.ends == simulate(profile, SYNCHRONOUS, split).ends


@given(profiles(), ways())
def test_shares_are_shares(profile, way):
    schedule, split, staleness = way
    run = simulate(profile, schedule, split, max_staleness=staleness)
    shares = [run.busy_share(role) for role in Role]
    shares += [run.sampler_device_share(), run.hidden_reward_share(), run.hidden_training_share()]
    assert all(0 <= share <= 1 + 1e-9 for share in shares)
    assert run.sampler_device_share() <= run.busy_share(Role.SAMPLER) + 1e-9


@given(profiles())
def test_slower_devices_have_the_same_work(profile: Profile):
    slower = profile.slowed(2.0)
    assert slower.token_s(3) == pytest.approx(2 * profile.token_s(3))
    assert slower.train_s(100, 2) == pytest.approx(2 * profile.train_s(100, 2))
    for before, after in zip(profile.iterations, slower.iterations, strict=True):
        assert [(work.group, work.tokens, 2 * work.reward_s) for work in before] == [
            (work.group, work.tokens, work.reward_s) for work in after
        ]
