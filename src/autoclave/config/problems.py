"""Settings: which problems a run trains on and which it holds out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from autoclave.config.base import Config, Fraction, Positive, Seed


class ProblemSettings(Config):
    """Settings that every source of problems has. Those of a source of another package derive from this."""

    name: Any
    """The source: in each a literal of its own."""


class SyntheticConfig(ProblemSettings):
    """Small generated Python tasks, split by pairs of adjacent operations."""

    name: Literal["synthetic"] = "synthetic"
    """Problems are generated from a seed."""
    seed: Seed = 0
    """Seed of the problems and the demonstrations; not of training."""
    train: Positive = 4000
    """Problems for reinforcement learning."""
    validation: Positive = 200
    """Problems for tuning."""
    heldout: Annotated[int, Field(ge=200)] = 300
    """Problems for the figures reported; at least 200, or the intervals are too wide to mean much."""
    heldout_share: Fraction = 0.25
    """Share of the pairs of adjacent operations that occur in no training program."""
    domains: Annotated[tuple[Literal["list", "text", "integer"], ...], Field(min_length=1)] = (
        "list",
        "text",
        "integer",
    )
    """Task of the problems and demonstrations."""
    unsaid: Fraction = 0.0
    """Share of the statements that have `?` in place of the number or letter that is appended or prepended, which only
    the tests tell; for `task.turns` above 1."""

    def broken_rules(self) -> Iterator[str]:
        if self.unsaid and self.domains == ("integer",):
            yield f"unsaid = {self.unsaid}: nothing is appended to an integer; add list or text to domains"


class NoProblemsConfig(ProblemSettings):
    """No problems yet: the default of a pretrained model. Enough to plan a run, not to start it."""

    name: Literal["none"] = "none"
    """None."""


class FunctionsConfig(ProblemSettings):
    """Built-in problems for small pretrained models: Python functions of one line, asked for in words."""

    name: Literal["functions"] = "functions"
    """All functions of the table; the split is by function."""
    seed: Seed = 0
    """Seed of the split; not of training."""
    heldout_share: Fraction = 0.35
    """Share of the functions that occur in no training problem."""


class ProblemFilesConfig(ProblemSettings):
    """Problems from files in the `autoclave-problem/1` format."""

    name: Literal["files"] = "files"
    """Problems are read from files."""
    path: Path | None = None
    """One file with all problems; a share is held out. Setting it chooses `files`."""
    heldout_share: Fraction = 0.1
    """Of `path`: share of the problems that are held out to report on, at least one."""
    seed: Seed = 0
    """Of `path`: seed of that choice."""
    train: Path | None = None
    """In place of `path`: training problems."""
    heldout: Path | None = None
    """In place of `path`: problems to report on."""

    def broken_rules(self) -> Iterator[str]:
        if self.path and (self.train or self.heldout):
            yield "path is split; give it alone, or train and heldout"
        if not self.path and not (self.train and self.heldout):
            missing = "train" if not self.train else "heldout"
            yield f"{missing} is missing; give train and heldout, or path alone, which is split"


class ArithmeticConfig(ProblemSettings):
    """The built-in mathematics: generated arithmetic in several steps, split by pairs of operations in a row."""

    name: Literal["arithmetic"] = "arithmetic"
    """Problems are generated from a seed; for task.name=mathematics."""
    seed: Seed = 0
    """Seed of the problems and the demonstrations; not of training."""
    train: Positive = 4000
    """Problems for reinforcement learning."""
    heldout: Annotated[int, Field(ge=200)] = 300
    """Problems for the figures reported; at least 200, or the intervals are too wide to mean much."""
    heldout_share: Fraction = 0.25
    """Share of the pairs of operations in a row that occur in no training problem."""
    operations: tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(ge=2)]] = (2, 6)
    """Fewest and most operations of a problem. A response needs six to nine tokens for each: they set its length."""
    signs: Annotated[tuple[Literal["+", "-", "*", "mod"], ...], Field(min_length=1)] = ("+", "-", "*", "mod")
    """Signs of the operations."""
    highest: Annotated[int, Field(ge=9)] = 99
    """Largest intermediate number; the smallest is 1."""
    answer_alone_share: Fraction = 0.0
    """Share of the demonstrations that give the answer without its steps, which is too hard for a small policy."""

    @property
    def numbers(self) -> range:
        """Those that occur on the way."""
        return range(1, self.highest + 1)

    def broken_rules(self) -> Iterator[str]:
        fewest, most = self.operations
        if fewest > most:
            yield f"operations = [{fewest}, {most}]: the first number must not exceed the second"
