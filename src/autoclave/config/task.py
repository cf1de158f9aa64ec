"""Settings: how problems become prompts, responses submissions, and verdicts rewards; and the judging of files."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from autoclave.config.base import Config, Positive
from autoclave.config.sandbox import JudgeConfig, SandboxConfig, unused_isolation

Extraction = Literal["last_fence", "lcb", "whole"]
Answer = Literal["final", "boxed", "answer_line", "whole"]
TestChoice = Annotated[str, Field(pattern=r"^(all|longest:[1-9][0-9]{0,8})$")]


class TaskSettings(Config):
    """Settings that every task has. Settings of a task of another package derive from this."""

    name: Any
    """The task: in each a literal of its own."""
    template: Any = "plain"
    """Template of the prompt: `plain`, `code` or `math`."""
    asks_for_answers: ClassVar[bool] = False
    """Its problems have `answer` tests, and not tests of programs."""


class CodeGenerationConfig(TaskSettings):
    """Writing programs: how problems become prompts and verdicts become rewards."""

    name: Literal["code_generation"] = "code_generation"
    """Programs are written; tests that run them decide."""
    template: Literal["plain", "code"] = "code"
    """`plain`: the statement alone, for the embedded model. `code`: with instructions, for general models."""
    extraction: Extraction = "last_fence"
    """Rule that extracts the program from a response."""
    reward: Literal["binary", "fraction"] = "binary"
    """`binary`: 1 if every test passes, else 0. `fraction`: the share of tests that pass; with several turns, of hidden
    ones."""
    tests: TestChoice = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs (ties by index)."""
    turns: Positive = 1
    """Most turns of an episode. After a turn that fails public tests, the policy reads how it failed, and may answer
    again; all tests judge the last turn."""
    public_tests: Positive = 1
    """Number of the first tests of a problem that are public: what they find may be read by the policy."""

    def broken_rules(self) -> Iterator[str]:
        """Rules that the settings break together."""
        if self.turns > 1 and self.tests != "all":
            yield f"tests = {self.tests}: with turns above 1 all tests must judge, or it might be the public ones alone"
        if self.turns == 1 and self.public_tests != 1:
            yield f"public_tests = {self.public_tests}: only with turns above 1, when the policy reads what they find"


class MathematicsConfig(TaskSettings):
    """Solving mathematics: how problems become prompts, and where the final answer stands."""

    asks_for_answers: ClassVar[bool] = True
    name: Literal["mathematics"] = "mathematics"
    """Problems with `answer` tests are solved; the final answer decides. The reward is 1 or 0."""
    template: Literal["plain", "math"] = "math"
    """`plain`: the statement alone, for the embedded model. `math`: with instructions, for general models."""
    answer: Answer = "final"
    """Rule that extracts the final answer from a response."""


class JudgeRunConfig(Config):
    """Judging a file of programs."""

    judge: JudgeConfig = JudgeConfig()
    """Judging."""
    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""
    extraction: Extraction = "last_fence"
    """Rule that extracts the program from a `response`; a `source` is taken as it is."""
    answer: Answer = "final"
    """Rule that extracts the final answer from a `response`, for problems with `answer` tests."""
    tests: TestChoice = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs (ties by index)."""
    stop_at_failure: bool = True
    """Stop judging a program at its first failing test."""

    def broken_rules(self) -> Iterator[str]:
        yield from unused_isolation(self.judge, self.sandbox)
