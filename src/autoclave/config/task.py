"""Settings: how problems become prompts, responses programs, and verdicts rewards; and the judging of files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config
from autoclave.config.sandbox import JudgeConfig, SandboxConfig

Extraction = Literal["last_fence", "lcb", "whole"]
TestChoice = Annotated[str, Field(pattern=r"^(all|longest:[1-9][0-9]*)$")]


class TaskConfig(Config):
    """How problems become prompts and verdicts become rewards."""

    template: Literal["plain", "code"] = "code"
    """`plain`: the statement alone, for the embedded model. `code`: with instructions, for general models."""

    extraction: Extraction = "last_fence"
    """Where the program stands in a response."""

    reward: Literal["binary", "fraction"] = "binary"
    """`binary`: 1 if every test passes, else 0. `fraction`: the share of tests that pass."""

    tests: TestChoice = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs (ties by index)."""


class JudgeRunConfig(Config):
    """Judging a file of programs."""

    judge: JudgeConfig = JudgeConfig()
    """Judging."""

    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""

    extraction: Extraction = "last_fence"
    """Where the program stands in a `response`; a `source` is taken as it is."""

    tests: TestChoice = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs (ties by index)."""

    stop_at_failure: bool = True
    """Whether the first failing test ends the judging of a program."""
