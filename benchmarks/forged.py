"""Are forged episodes rewarded, and honest ones refused? The corpus of the gauntlet, graded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from harness import sized

sys.path.append(str(Path(__file__).parents[1]))

from gauntlet.episode_course import EpisodeCourse, measured, read_episodes


def forged_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Gradings of forged and honest end states, forgeries with a reward above 0, and honest ones without 1."""
    chosen = read_episodes()[:: sized(options, 1, 20, 80)]
    with EpisodeCourse() as course:
        results = [result for entry in chosen for result in course.run(entry)]
    for result in results:
        if not result.is_well:
            print(f"{result.entry.family}/{result.entry.name} ({result.grader}): {result.value}, {result.message}")
    return measured(results)
