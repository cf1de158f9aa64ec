"""Spans of requests and rewards, from completions that were stamped elsewhere."""

from __future__ import annotations

import time
from dataclasses import replace

from autoclave.core import Reward
from autoclave.core.timeline import Role, Timeline
from autoclave.rollout.collection import CollectionSpans
from tests.training_parts import completion


def test_a_request_and_its_reward_are_spans_of_the_step_one_after_the_other():
    timeline = Timeline()
    timeline.begin(4)
    spans = CollectionSpans(timeline, step=5)
    submitted = time.time()
    asked = spans.sampled(
        "sum", 3, replace(completion(), submitted_at=submitted, finished_at=time.time(), sampled_by="b")
    )
    spans.judged("sum", 3, Reward(1.0, "accepted"), asked)
    request, reward = timeline.all_spans()
    assert (request.role, request.name, request.step, request.lane) == (Role.SAMPLER, "sum#3", 5, "b")
    assert (reward.role, reward.name, reward.step, reward.lane) == (Role.JUDGE, "sum#3", 5, "")
    assert request.attributes == {"tokens": 3, "finish_reason": "stop", "version": 0}
    assert reward.attributes == {"reward": 1.0, "reason": "accepted"}
    assert request.start <= request.end <= reward.start <= reward.end
    assert reward.start == asked
    assert timeline.recorded().moved == 0


def test_a_request_of_a_machine_whose_clock_is_wrong_lies_between_the_begin_of_its_collection_and_its_end():
    timeline = Timeline()
    timeline.begin(1)
    for hours in (-1, 1):
        spans = CollectionSpans(timeline, step=1)
        begun, there = timeline.now(), time.time() + 3600 * hours
        asked = spans.sampled("sum", 0, replace(completion(), submitted_at=there, finished_at=there))
        request = timeline.all_spans()[-1]
        assert begun - 1e-3 <= request.start <= request.end <= asked
    assert timeline.recorded().moved == 2
