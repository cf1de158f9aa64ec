"""The judge on this machine does what every judge must do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError
from autoclave.judge import LocalJudge
from autoclave.judge.conformance import JudgeConformance, check_closing


def open_judge() -> LocalJudge:
    try:
        return LocalJudge(SandboxConfig(), JudgeConfig(workers=2))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")


class TestLocalJudge(JudgeConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def judge(cls) -> Iterator[LocalJudge]:
        with open_judge() as judge:
            yield judge


def test_closing():
    check_closing(open_judge())
