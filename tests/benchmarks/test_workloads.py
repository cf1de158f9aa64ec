"""Workloads of the benchmark of schedules, from files and from seeds, and the known figures of their simulation."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workloads import CODE, MATHEMATICS, generate, ideal, read_profile

from autoclave.core import DataError, InputError
from autoclave.core.timeline import Role
from autoclave.planning.simulation import ScheduleName, Split
from tests.planning.profiles import tiny

SYNCHRONOUS, MINIBATCH = ScheduleName.SYNCHRONOUS, ScheduleName.MINIBATCH_PIPELINE
ONE_OFF = ScheduleName.ONE_OFF_PIPELINE
WORKLOADS = pytest.mark.parametrize("workload", [MATHEMATICS, CODE], ids=lambda workload: workload.name)


@pytest.mark.parametrize("name", ["profile.json", "profile.json.gz"])
def test_what_was_written_is_read(name: str, tmp_path: Path):
    profile = generate(CODE)
    content = json.dumps(asdict(profile)).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_profile(tmp_path / name) == profile


def test_the_files_that_others_wrote_have_the_same_fields(data: Path):
    folder = data.parent / "profiles"
    if not folder.is_dir():
        pytest.skip("AUTOCLAVE_DATA is not set to a folder that has profiles beside it")
    theirs = json.loads(gzip.decompress((folder / "code.json.gz").read_bytes()))
    assert json.loads(json.dumps(asdict(read_profile(folder / "code.json.gz")))) == theirs


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("slots",), 0, r"slots = 0: must be greater than or equal to 1|slots = 0: input must"),
        (("slot",), 3, "slot: no such field; did you mean slots"),
        (("sync_s",), None, "sync_s = null"),
        (("iterations", 0, 1, "tokens"), 0, r"iterations\.0\.1\.tokens = 0"),
        (("iterations", 0, 1, "reward_s"), -1, r"iterations\.0\.1\.reward_s = -1"),
        (("iterations", 0, 1, "reward"), 1, r"iterations\.0\.1\.reward: no such field; did you mean reward_s"),
        (("iterations", 0), [], r"iterations\.0 = \[\]"),
        (("iterations",), [], r"iterations = \[\]"),
        (("mini_batches",), 3, r"iterations\.0 has 2 groups, fewer than mini_batches = 3; .* lower mini_batches"),
    ],
)
def test_a_mistake_in_a_file_is_named(path: tuple[Any, ...], value: Any, complaint: str, tmp_path: Path):
    content = json.loads(json.dumps(asdict(tiny())))
    inner = content
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=complaint) as error:
        read_profile(file)
    assert str(error.value).startswith(str(file))


def test_a_damaged_file_is_an_error_of_its_own(tmp_path: Path):
    file = tmp_path / "profile.json.gz"
    file.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(DataError, match="damaged gzip file"):
        read_profile(file)
    with pytest.raises(InputError, match="no such file"):
        read_profile(tmp_path / "other.json")


@WORKLOADS
def test_a_seed_draws_the_same_profile_and_another_seed_another(workload):
    assert generate(workload, 5) == generate(workload, 5) != generate(workload, 6)


@WORKLOADS
def test_a_generated_profile_is_as_described(workload):
    profile = generate(workload)
    groups = [[work.group for work in works] for works in profile.iterations]
    assert groups == [[group for group in range(32) for _ in range(8)]] * 8
    tokens = np.array([[work.tokens for work in works] for works in profile.iterations])
    assert tokens.max() == 16_384
    assert 0.005 < (tokens == 16_384).mean() < 0.03
    assert np.percentile(tokens, 99) > 5 * np.median(tokens)  # a heavy tail
    by_prompt = np.log(tokens).reshape(8, 32, 8)
    assert by_prompt.mean(axis=2).std() > 1.5 * by_prompt.std(axis=2).mean() / np.sqrt(8)  # prompts differ


def test_rewards_of_code_take_seconds_and_more_for_longer_responses_and_those_of_mathematics_take_none():
    works = [work for iteration in generate(CODE).iterations for work in iteration]
    seconds = np.array([work.reward_s for work in works])
    assert seconds.min() >= 0.3
    assert seconds.max() <= 60
    assert 4 < seconds.mean() < 5.5
    assert np.corrcoef(np.log(seconds), np.log([work.tokens for work in works]))[0, 1] > 0.1
    assert {work.reward_s for iteration in generate(MATHEMATICS).iterations for work in iteration} == {0.002}


KNOWN = {
    "math": (304.8, (200.6, 0.0, 109.7), (295.5, 1.03), (233.6, 1.31), (209.7, 1.45)),
    "code": (422.5, (201.4, 129.2, 105.2), (299.4, 1.41), (234.5, 1.80), (211.5, 2.00)),
}
"""Seconds per iteration of the synchronous schedule, (sampling, rest of rewards, learning) of its first; then seconds
and ratio to it of the minibatch pipeline, the one-off pipeline, and that in its steady part. They come with the
profiles and were computed by somebody else's simulation."""


@pytest.mark.parametrize("name", KNOWN)
def test_the_figures_that_come_with_profiles_of_others_are_reproduced(name: str, data: Path):
    folder = data.parent / "profiles"
    if not folder.is_dir():
        pytest.skip("AUTOCLAVE_DATA is not set to a folder that has profiles beside it")
    synchronous_s, parts, minibatch, one_off, steady = KNOWN[name]
    found = ideal(read_profile(folder / f"{name}.json.gz"))
    run = found[SYNCHRONOUS].run
    assert run.whole_s == pytest.approx(synchronous_s, abs=0.06)  # they are rounded
    sampled, judged, learnt = (run.of(role, 0) for role in (Role.SAMPLER, Role.JUDGE, Role.TRAINER))
    first, last = min(span.start for span in sampled), max(span.end for span in sampled)
    found_parts = (last - first, max(span.end for span in judged) - last, learnt[-1].end - learnt[0].start)
    assert found_parts == pytest.approx(parts, abs=0.06)
    pipelines = [found[MINIBATCH].run.whole_s, found[ONE_OFF].run.whole_s, found[ONE_OFF].run.steady_s]
    for seconds, expected in zip(pipelines, (minibatch, one_off, steady), strict=True):
        assert (seconds, run.whole_s / seconds) == (
            pytest.approx(expected[0], abs=0.06),
            pytest.approx(expected[1], abs=0.006),
        )
    assert found[MINIBATCH].split == found[ONE_OFF].split == Split(3, 5)


@pytest.mark.parametrize(
    ("workload", "synchronous_s", "minibatch_s", "one_off_s", "steady_s"),
    [(MATHEMATICS, 302.2, 292.6, 231.3, 211.1), (CODE, 428.6, 300.1, 235.0, 214.6)],
)
def test_our_own_profiles_come_close_to_those(workload, synchronous_s, minibatch_s, one_off_s, steady_s):
    found = ideal(generate(workload))
    of_synchronous, _, of_minibatch, of_one_off, of_steady = KNOWN[workload.name]
    seconds = [found[schedule].run.whole_s for schedule in (SYNCHRONOUS, MINIBATCH, ONE_OFF)]
    seconds.append(found[ONE_OFF].run.steady_s)
    assert seconds == pytest.approx([synchronous_s, minibatch_s, one_off_s, steady_s], abs=0.06)
    assert seconds == pytest.approx([of_synchronous, of_minibatch[0], of_one_off[0], of_steady[0]], rel=0.016)
    assert found[MINIBATCH].split == found[ONE_OFF].split == Split(3, 5)
    assert found[ONE_OFF].run.busy_share(Role.SAMPLER) > 0.98
