"""The table of limits, and that what is written or set elsewhere agrees with it."""

from __future__ import annotations

import dataclasses
import errno
import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import DataError, Ended, Problem, SandboxFault
from autoclave.core.outcome import LIMIT_OF_ERRNO, LIMITS, limit_named
from autoclave.judge.limits import sandbox_limits
from autoclave.sandbox import Limits
from autoclave.service.wire import RunAnswer

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "sandbox.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_of_each_limit_with_failed_calls_status_and_message():
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([A-Z, ]*?) ?\| `(\w+)`: (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (ended, ", ".join(errno.errorcode[number] for number in limit.errnos), *limit.failure)
        for ended, limit in LIMITS.items()
    ]


def test_each_limit_has_a_value_for_every_run_that_the_judge_makes(monkeypatch: pytest.MonkeyPatch):
    settings = {limit.setting for limit in LIMITS.values()}
    assert settings == {field.name for field in dataclasses.fields(Limits)} - {"given_back_s"}
    monkeypatch.setattr("autoclave.judge.limits.Limits", dict)  # without defaults in place of what is not given
    limits = sandbox_limits(SandboxConfig(), 1.0)
    assert limits.keys() == settings, "sandbox_limits in judge/limits.py must pass each of them"
    assert all(limits[setting] > 0 for setting in settings)


def test_an_error_a_signal_a_kernel_limit_or_a_setting_belongs_to_one_limit():
    limits = LIMITS.values()
    for names in (
        [number for limit in limits for number in limit.errnos],
        [limit.signal for limit in limits if limit.signal],
        [limit.kernel[0] for limit in limits if limit.kernel],
        [limit.setting for limit in limits],
        [limit.message for limit in limits],
    ):
        assert len(set(names)) == len(names) > 0


@pytest.mark.parametrize("ended", Ended)
def test_an_ending_is_its_name_wherever_it_is_sent(ended: Ended):
    assert Ended(json.loads(json.dumps(ended))) is ended
    assert f"{ended}" == ended.value == ended.name.lower()


@pytest.mark.parametrize("account", ["", "-", "- OSError 3"])
def test_an_account_may_name_no_limit(account: str):
    assert limit_named(account) is None


@pytest.mark.parametrize("name", sorted(set(LIMIT_OF_ERRNO.values())))
def test_an_account_names_a_limit_that_shows_as_a_failed_call(name: str):
    assert limit_named(f"{name} OSError 3") is Ended(name)


@pytest.mark.parametrize("name", ["no_such", "cpu_time", "exited", "Memory", "setting up"])
def test_no_other_name_is_a_limit_of_an_account(name: str):
    with pytest.raises(SandboxFault, match=f"names the limit {name.split()[0]!r}"):
        limit_named(f"{name} OSError 3")


def test_an_unknown_limit_is_an_error_in_settings_problems_and_answers_of_a_server():
    answer = dict.fromkeys(["stdout", "stderr", "detail", "level"], "") | dict.fromkeys(["exit_code", "signal"])
    answer |= dict.fromkeys(["stdout_cut", "stderr_cut", "cpu_s", "wall_s", "memory_mb", "value_cut"], 0)
    answer |= {"value": None, "files": {}}
    assert RunAnswer.model_validate({**answer, "ended": "open_files"}).ended is Ended.OPEN_FILES
    with pytest.raises(ValidationError, match="ended"):
        RunAnswer.model_validate({**answer, "ended": "no_such"})
    for config in (SandboxConfig, JudgeConfig):
        with pytest.raises(ValidationError, match="no_such_limit"):
            config.model_validate({"no_such_limit": 3})
    with pytest.raises(DataError, match="no_such_limit"):
        Problem.from_json({"format": "autoclave-problem/1", "statement": "s", "no_such_limit": 3})
