"""Profiles from files and from seeds."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from autoclave.core import DataError, InputError
from autoclave.planning import CODE, MATHEMATICS, Profile, generate, read_profile, write_profile
from tests.planning.profiles import profiles, tiny

WORKLOADS = pytest.mark.parametrize("workload", [MATHEMATICS, CODE], ids=lambda workload: workload.name)


@pytest.mark.parametrize("name", ["profile.json", "profile.json.gz"])
def test_what_was_written_is_read(name: str, tmp_path: Path):
    profile = generate(CODE)
    write_profile(profile, tmp_path / name)
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


@given(profiles())
def test_slower_devices_have_the_same_work(profile: Profile):
    slower = profile.slowed(2.0)
    assert slower.token_s(3) == pytest.approx(2 * profile.token_s(3))
    assert slower.train_s(100, 2) == pytest.approx(2 * profile.train_s(100, 2))
    for before, after in zip(profile.iterations, slower.iterations, strict=True):
        assert [(work.group, work.tokens, 2 * work.reward_s) for work in before] == [
            (work.group, work.tokens, work.reward_s) for work in after
        ]


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
