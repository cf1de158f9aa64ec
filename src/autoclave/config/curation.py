"""Settings of curation: from public problem sets to a training set, without duplicates and evaluation problems."""

import datetime
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from autoclave.config.base import Config, Fraction, NonNegative, Positive, Seed
from autoclave.config.sandbox import JudgeConfig, SandboxConfig, unused_isolation


def _date(value: Any) -> Any:
    """YAML reads dates as dates; JSON and the command line give text."""
    return datetime.date.fromisoformat(value) if isinstance(value, str) else value


Day = Annotated[datetime.date, BeforeValidator(_date)]


Rule = Literal["identity", "title", "exact", "ngrams", "near", "tests", "date"]
RULES: tuple[Rule, ...] = ("identity", "title", "exact", "ngrams", "near", "tests", "date")


class DeduplicationConfig(Config):
    """Deduplication. Here precision counts: what is dropped wrongly is lost."""

    exact: bool = True
    """Drop a problem whose statement has the same words as another's, whatever the mark-up."""
    near: bool = True
    """Drop a problem whose statement is a reworded, renumbered or reformatted copy of another's."""
    behaviour: bool = True
    """Drop a problem with the tests of another; and, with a judge, one whose solutions pass each other's tests."""
    similarity: Fraction = 0.62
    """Share of words, rare ones counting more, that two statements have in common where tests cannot tell."""
    containment: Fraction = 0.93
    """Share of the words of one statement, found in the other, from which half of that similarity is enough."""
    similarity_of_different_tests: Fraction = 0.9
    """The same where both have tests, of one kind, and no input is in both."""
    similarity_of_same_tests: Fraction = 0.3
    """The same where both expect the same output for an input that both have, and never another."""
    shortest_statement: Positive = 25
    """Different words and numbers that a statement needs to be judged by its words; a shorter one needs the tests."""
    fewest_topic_words: Positive = 9
    """Different words of content that it needs for that; with fewer, all its words have to be as similar."""
    bucket_limit: Annotated[int, Field(ge=2)] = 64
    """Members of one bucket that are all compared with each other; in a larger one, each with its next ones."""
    judged_pairs: Annotated[int, Field(ge=0)] = 2000
    """Most pairs whose solutions are run on each other's tests; the most similar come first."""
    judged_tests: Positive = 12
    """Tests of each problem, the ones with the longest inputs, that the other's solution is run on."""


class DecontaminationConfig(Config):
    """Decontamination. Here recall counts: a doubtful problem is dropped."""

    ngram_words: Annotated[int, Field(ge=3, le=50)] = 10
    """Words in a row that are looked up; 8, 10 and 13 are usual."""
    ngram_share: Fraction = 0.2
    """Share of the evaluation statement's n-grams that is too much. What several of its problems say does not count."""
    longest_run: Positive = 30
    """Words in a row, made of n-grams that count, that are too many."""
    similarity: Fraction = 0.55
    """Share of words, rare ones counting more, that is too much."""
    containment: Fraction = 0.85
    """Share of the words of the evaluation statement, found in the other, from which half of that is too much."""
    similarity_of_same_tests: Fraction = 0.15
    """The same where both expect the same output for an input that both have."""
    shortest_statement: Positive = 10
    """Different words of content that both statements need to be compared by their words."""
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)] = RULES
    """Rules that are applied; a problem is dropped by the first of them, in this order."""
    shortest_title: Positive = 2
    """Words that a title needs to be compared; shorter and common ones name many problems."""
    released_from: Day | None = None
    """Training problems released before this day are dropped."""
    released_before: Day | None = None
    """Training problems released on or after this day are dropped. Undated ones are kept."""

    def broken_rules(self) -> Iterator[str]:
        if self.released_from and self.released_before and self.released_from >= self.released_before:
            yield f"released_from = {self.released_from}: must be before released_before, {self.released_before}"


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
    """Seed of that choice."""
    judge: JudgeConfig = JudgeConfig()
    """Judging."""
    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""

    def broken_rules(self) -> Iterator[str]:
        yield from unused_isolation(self.judge, self.sandbox)
