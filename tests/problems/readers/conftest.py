"""Rows that are made up, in the layouts of public sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoclave.problems.candidate import ProblemCandidate, SkippedRow
from autoclave.problems.readers import read_rows
from autoclave.problems.readers.row import RawRow

Read = Callable[..., ProblemCandidate | SkippedRow]


@pytest.fixture
def read() -> Read:
    """read("taco", question="...", ...): one row of a layout as a candidate, or why it is none."""

    def one(layout: str, **fields: Any) -> ProblemCandidate | SkippedRow:
        return next(iter(read_rows(layout, layout, [RawRow("made.jsonl:1", fields)])))

    return one
