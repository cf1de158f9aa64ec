"""Settings of curation: from public problem sets to a training set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from autoclave.config.base import Config, Fraction, NonNegative, Positive, Seed
from autoclave.config.curation import Day, DecontaminationConfig, DeduplicationConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig, unused_isolation


class SourceConfig(Config):
    """A public set: a copy on this machine, or its name on the Hugging Face hub."""

    set: str
    """The layout: `apps`, `taco`, `synthetic1`, `livecodebench` ... (docs/reference/readers.md)."""
    path: str = ""
    """File or folder."""
    hub: str = ""
    """In place of `path`: `OWNER/NAME`, `OWNER/NAME:CONFIG` or `OWNER/NAME:CONFIG:SPLIT`."""
    revision: str = ""
    """Commit of the set on the hub; empty: what is there now, and the manifest says which that was."""
    release: str = ""
    """Of sets that grow by files: `v1` to `v6` of LiveCodeBench; empty: all files there are."""
    name: str = ""
    """Name in reports; empty: the layout."""
    licence: str = ""
    """Its licence, for the manifest; empty: as published with the set."""
    released_from: Day | None = None
    """Only problems that were released on this day or later."""
    released_before: Day | None = None
    """Only problems that were released before this day."""
    difficulties: tuple[str, ...] = ()
    """Only problems of these difficulties, in the words of the set; empty: all."""
    profile: str = ""
    """Profile of its problems, such as `lcb_numpy` or one of `judge.profiles`; empty: as its layout has it."""
    needs_solutions: bool = True
    """Drop problems without official solutions, where solutions are verified."""

    @property
    def label(self) -> str:
        return self.name or self.set

    def broken_rules(self) -> Iterator[str]:
        if bool(self.path) == bool(self.hub):
            yield "give either path or hub"
        if self.revision and not self.hub:
            yield "revision is of a set on the hub; give hub"


class VerificationConfig(Config):
    """Official solutions on all tests."""

    rule: Literal["all", "any"] = "all"
    """`all`: a problem is dropped if one of its solutions fails. `any`: solutions that fail are dropped, and problems
    that are left with none."""
    repeats: Positive = 5
    """Number of times that a solution has to pass. One that fails every other time passes five times in 3 of 100
    cases."""
    special_judge_share: Fraction | None = 0.3
    """Problems are dropped as ones with several right answers where at least two solutions, and this share of them,
    print something else than expected on tests that others pass, or where any does and the statement says so. null:
    none is."""


class StrengthConfig(Config):
    """Strength of tests: they must tell right programs from wrong ones."""

    mutants: NonNegative = 12
    """Programs with one small change that are made of a solution."""
    minimum_killed: Fraction = 0.5
    """Share of the mutants that tests must fail. Some mutants do the same as the solution."""


class DifficultyConfig(Config):
    """Problems that a model solves neither always nor never."""

    pass_rates: str
    """JSON lines with `id` and `pass_rate`, a number from 0 to 1."""
    lowest: Fraction = 0.0
    """Below this a problem is too hard."""
    highest: Fraction = 1.0
    """Above this it is too easy."""


class CurateConfig(Config):
    """A training set from public sets."""

    name: str = "curated"
    """Name of the set in its report."""
    sources: tuple[SourceConfig, ...] = ()
    """Sets that problems come from. Of duplicates the one of the set that stands first is kept."""
    evaluation_sets: tuple[SourceConfig, ...] = ()
    """Sets that no problem may come from."""
    minimum_tests: Positive = 5
    """Fewest different tests of a problem."""
    prompt_tokens: Positive | None = 1024
    """Longest statement with starter code; null: any."""
    tokenizer: str = "words"
    """Tokenizer: `words` (words, numbers and single signs), or the folder of a model."""
    difficulty: DifficultyConfig | None = None
    """Selection by pass rates; null: none."""
    decontamination: DecontaminationConfig = DecontaminationConfig()
    """Decontamination against evaluation sets."""
    deduplication: DeduplicationConfig | None = DeduplicationConfig()
    """Deduplication; null: none."""
    verification: VerificationConfig | None = VerificationConfig()
    """null: solutions are not run."""
    strength: StrengthConfig | None = StrengthConfig()
    """null: tests are not tried on wrong programs."""
    heldout_share: Fraction = 0.02
    """Share of the problems that go to heldout.jsonl, at least one, and not to train.jsonl; 0: none."""
    seed: Seed = 0
    """Of the choice of these."""
    judge: JudgeConfig = JudgeConfig()
    """Judging."""
    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""

    def broken_rules(self) -> Iterator[str]:
        yield from unused_isolation(self.judge, self.sandbox)
