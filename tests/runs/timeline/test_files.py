"""Files of timelines: what is written is read, and what is damaged is named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import DataError, InputError
from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.runs.timeline import (
    read_steps,
    read_timeline,
    spans_during,
    timeline_path,
    timeline_steps,
    write_timeline,
)

times = st.integers(0, 10**15).map(lambda microseconds: microseconds / 1e6)
pairs = st.tuples(times, times).map(sorted)
attributes = st.dictionaries(
    st.text(), st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), max_size=3
)
spans = st.builds(
    lambda role, name, pair, step, lane, attributes: Span(role, name, *pair, step, lane, attributes),
    st.sampled_from(Role), st.text(), pairs, st.integers(0, 10**6), st.text(), attributes,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@given(st.integers(0, 10**6), pairs, st.lists(spans, max_size=4), st.integers(0, 9), st.integers(0, 9))
def test_what_is_written_is_read(folder: Path, step: int, window, found, dropped: int, moved: int):
    timeline = StepTimeline(step, *window, tuple(found), dropped, moved)
    write_timeline(folder, timeline)
    assert read_timeline(timeline_path(folder, step)) == timeline


def three_steps(folder: Path) -> list[StepTimeline]:
    """Steps of 10 s; requests of steps 2 and 3 are sampled from 4 s before these begin."""
    made = [
        StepTimeline(
            step,
            10.0 * step,
            10.0 * step + 10,
            (Span(Role.SAMPLER, f"of {step}", 10.0 * step - 4 * (step > 1), 10.0 * step + 5, step),),
        )
        for step in (1, 2, 3)
    ]
    for timeline in made:
        write_timeline(folder, timeline)
    return made


def test_a_step_that_is_done_again_replaces_its_file_and_no_other(tmp_path: Path):
    first, _, third = three_steps(tmp_path)
    again = StepTimeline(2, 100.0, 110.0, ())
    write_timeline(tmp_path, again)
    assert list(read_steps(tmp_path, timeline_steps(tmp_path))) == [first, again, third]


def test_during_a_step_there_are_spans_of_the_next_one_that_began_in_it(tmp_path: Path):
    first, _, third = three_steps(tmp_path)
    assert [span.name for span in spans_during(tmp_path, first)] == ["of 1", "of 2"]
    assert [span.name for span in spans_during(tmp_path, third)] == ["of 3"]


def test_steps_that_are_not_there_are_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"step 4: .* has no timeline of it; it has none of any step"):
        list(read_steps(tmp_path, [4]))
    three_steps(tmp_path)
    with pytest.raises(InputError, match="it has 3 of the steps 1 to 3"):
        list(read_steps(tmp_path, [1, 4]))


def rewritten(path: Path, change: Callable[[list[dict]], object]) -> Path:
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    change(lines)
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: lines[0].update(format="autoclave-timeline/9"), r':1: format = "autoclave-timeline/9": must be'),
        (lambda lines: lines.clear(), r":1: format = null: must be"),
        (lambda lines: lines[0].pop("start"), r":1: start: required field is missing"),
        (lambda lines: lines.pop(), r"has 0 spans, and its first line says 1; it was cut or changed"),
        (lambda lines: lines[1].update(role="cook"), r':2: role = "cook": '),
        (lambda lines: lines[1].update(end=0.0), r":2: start = 10.0, end = 0.0: must be finite"),
        (lambda lines: lines[1].update(end=float("nan")), r":2: start = 10.0, end = nan: must be finite"),
        (lambda lines: lines[1].update(start="soon"), r':2: start = "soon": '),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, change: Callable[[list[dict]], object], complaint: str):
    three_steps(tmp_path)
    path = rewritten(timeline_path(tmp_path, 1), change)
    with pytest.raises(DataError, match=complaint):
        read_timeline(path)


def test_a_file_that_was_cut_is_named(tmp_path: Path):
    three_steps(tmp_path)
    path = timeline_path(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"step-000001.jsonl.gz:\d+: damaged gzip file"):
        read_timeline(path)


def test_fields_of_a_later_version_are_ignored(tmp_path: Path):
    first, *_ = three_steps(tmp_path)
    path = rewritten(timeline_path(tmp_path, 1), lambda lines: [line.update(more=1) for line in lines])
    assert read_timeline(path) == first
