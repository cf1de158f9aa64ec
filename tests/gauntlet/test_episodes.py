"""The corpus of episodes is in form and large, and graders withstand some of it here; `make gauntlet` runs all."""

from __future__ import annotations

from collections import Counter

import pytest

from autoclave.core import IsolationError
from gauntlet.episode_course import EpisodeCourse, read_episodes

ENTRIES = read_episodes()
QUICK = 37
"""Every so many-th entry is run here."""


def test_there_are_many_forgeries_and_honest_episodes_and_each_has_a_name_of_its_own():
    honest = Counter(entry.is_honest for entry in ENTRIES)
    assert honest[False] >= 80
    assert honest[True] >= 40
    assert max(Counter((entry.family, entry.name) for entry in ENTRIES).values()) == 1
    assert all(entry.files and (entry.is_honest or entry.settings["tries"]) for entry in ENTRIES)


def test_no_forgery_is_rewarded_and_no_honest_episode_refused_in_every_so_many():
    try:
        course = EpisodeCourse()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with course:
        chosen = [entry for entry in ENTRIES if "slow" not in entry.settings][::QUICK]
        assert [result for entry in chosen for result in course.run(entry) if not result.is_well] == []
