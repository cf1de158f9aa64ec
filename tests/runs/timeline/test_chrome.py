"""The trace follows the trace event format, and says what the spans say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.runs.timeline import write_trace

BEGAN = 1_900_000_000.0


def steps() -> list[StepTimeline]:
    """Two steps of two replicas; requests of the second begin in the first, before some of the first end."""
    made = []
    for step in (1, 2):
        begin = BEGAN + 10 * step
        requests = [
            Span(
                Role.SAMPLER, f"p{n}#{n}", begin - 3 * step + n / 7, begin + n, step, f"replica {n % 2}", {"tokens": n}
            )
            for n in range(9)
        ]
        rewards = [Span(Role.JUDGE, span.name, span.end, span.end + 0.5, step) for span in requests]
        learn = Span(Role.TRAINER, "learn", begin + 9.0, begin + 9.75, step, "", {"rollouts": 9})
        ordered = sorted([*requests, *rewards, learn], key=lambda span: span.start)
        made.append(StepTimeline(step, begin, begin + 10, tuple(ordered)))
    return made


@pytest.fixture
def events(tmp_path: Path) -> list[dict[str, Any]]:
    assert write_trace(steps(), tmp_path / "trace.json") == 38
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    return trace["traceEvents"]


def test_every_event_has_the_fields_that_its_phase_needs(events: list[dict[str, Any]]):
    for event in events:
        assert {"name", "ph", "pid", "tid"} <= set(event)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        match event["ph"]:
            case "X":
                assert event["ts"] >= 0
                assert event["dur"] >= 0
            case "C":
                assert event["ts"] >= 0
                assert all(isinstance(value, int) for value in event["args"].values())
            case "M":
                assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            case other:
                pytest.fail(f"no such phase here: {other}")


def test_spans_are_there_with_their_times_and_what_is_known_of_them(events: list[dict[str, Any]]):
    origin = min(span.start for step in steps() for span in step.spans)
    (learn, later) = [event for event in events if event["name"] == "learn"]
    assert learn["ts"] / 1e6 == pytest.approx(BEGAN + 19.0 - origin)
    assert (learn["dur"], learn["cat"], learn["args"]) == (750_000, "trainer", {"step": 1, "rollouts": 9})
    assert later["ts"] - learn["ts"] == 10_000_000
    assert Counter(event.get("cat") for event in events if event["ph"] == "X") == {
        "sampler": 18, "judge": 18, "trainer": 2, None: 2,
    }  # fmt: skip


def test_spans_of_one_thread_do_not_overlap(events: list[dict[str, Any]]):
    threads: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        assert all(before[1] <= after[0] + 1e-3 for before, after in pairwise(sorted(spans)))
    assert len(threads) > 6


def test_every_process_and_thread_has_a_name(events: list[dict[str, Any]]):
    named = {
        (event["pid"], event["tid"] if event["name"] == "thread_name" else None): event["args"]["name"]
        for event in events
        if event["name"] in ("process_name", "thread_name")
    }
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X" and event["pid"]}
    assert used == {key for key in named if key[1] is not None}
    assert {named[process, None] for process, _ in used} == {"sampler", "judge", "trainer"}
    lanes = {name.rpartition(" row ")[0] for (process, thread), name in named.items() if process == 1 and thread}
    assert lanes == {"replica 0", "replica 1"}
    assert {f"{lane} row 1" for lane in lanes} < set(named.values())


def test_counters_say_how_many_requests_are_in_flight_and_end_at_none(events: list[dict[str, Any]]):
    counts = [(event["ts"], event["args"]["count"]) for event in events if event["name"] == "requests in flight"]
    requests = [
        (event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X" and event["pid"] == 1
    ]
    assert counts[-1][1] == 0
    for (ts, count), (after, _) in pairwise(counts):
        assert ts < after
        middle = (ts + after) / 2
        assert count == sum(start <= middle < end for start, end in requests)


def test_no_steps_are_an_empty_trace(tmp_path: Path):
    assert write_trace([], tmp_path / "trace.json") == 0
    assert [event["ph"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]] == ["M", "M"]
