"""The judges on this machine do what every judge must do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError
from autoclave.judge import LocalJudge, ProcessJudge
from tests.judge.judge_conformance import JudgeConformance, check_closing


def open_judge(kind: type[LocalJudge | ProcessJudge]) -> LocalJudge | ProcessJudge:
    try:
        return kind(SandboxConfig(), JudgeConfig(workers=2))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")


class TestLocalJudge(JudgeConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def judge(cls) -> Iterator[LocalJudge | ProcessJudge]:
        with open_judge(LocalJudge) as judge:
            yield judge


class TestProcessJudge(JudgeConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def judge(cls) -> Iterator[LocalJudge | ProcessJudge]:
        with open_judge(ProcessJudge) as judge:
            yield judge


@pytest.mark.parametrize("kind", [LocalJudge, ProcessJudge])
def test_closing(kind: type[LocalJudge | ProcessJudge]):
    check_closing(open_judge(kind))
