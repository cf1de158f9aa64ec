"""Settings of a benchmark: where its problems are, how they are asked, and how responses are graded and summed up."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, NonNegative, NonNegativeFloat, Positive, PositiveFloat, Seed
from autoclave.config.choices import EngineConfig
from autoclave.config.curation import SourceConfig
from autoclave.config.engine import TransformersEngineConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig, unused_isolation
from autoclave.config.task import TestChoice

Table = Literal["difficulty", "month", "source", "tag"]
SubmissionRule = Literal[
    "last_fence",
    "lcb",
    "whole",
    "completion",
    "continuation",
    "call_arguments",
    "final",
    "boxed",
    "answer_line",
    "value",
]


class EvaluatedModelConfig(Config):
    """The model that is evaluated, where it is a folder."""

    engine: EngineConfig = TransformersEngineConfig()
    """Engine that samples."""
    chat_template: str = ""
    """Chat template (Jinja) that makes a prompt of messages, in place of the tokenizer's own."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of weights and activations."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; `auto` is CUDA where there is a GPU."""
    seed: Seed = 0
    """Of sampling. The same seed and model give the same responses."""


class EndpointConfig(Config):
    """The model that is evaluated, where a server compatible with OpenAI has it."""

    model: str = ""
    """The model's name at the server; empty: the only one that it lists."""
    api_key_variable: str = ""
    """Environment variable that holds the key to the server; empty: none."""
    concurrency: Positive = 16
    """Requests that the server has at a time."""
    requests_per_minute: NonNegative = 0
    """Most requests per minute; 0: unlimited."""
    timeout_s: PositiveFloat = 600.0
    """Longest silence of the server, in seconds, before a request counts as failed."""
    retries: NonNegative = 8
    """Number of retries of a request after a refused, broken or damaged answer, status 429 or 5xx; the waits in
    between double from half a second, and follow Retry-After."""
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of the limit of new tokens in the server's API."""
    input_price: NonNegativeFloat = 0.0
    """Price of a million prompt tokens, in any currency, for the sum that is reported."""
    output_price: NonNegativeFloat = 0.0
    """Price of a million tokens of responses."""


class RatingConfig(Config):
    """A Codeforces rating."""

    standings: str
    """Folder with standings and rating changes of the contests, as Codeforces' API gives them, or a file of rounds."""
    histogram: str
    """JSON file with the number of users of each rating."""
    problem_ids: str = ""
    """JSON file with the contest and index of each problem of the set, such as `1971A`, in its order; for sets whose
    problems do not name them."""
    expectation: Literal["with_self", "as_printed"] = "with_self"
    """`with_self`: rank = 1 + sum, as Codeforces and CodeElo. `as_printed`: rank = sum, as DeepCoder's report."""
    attempts: Positive = 8
    """Responses to a problem that are its attempts, in order."""


class BenchmarkConfig(Config):
    """A benchmark, and how a model is evaluated on it."""

    name: str = "benchmark"
    """Name in reports."""
    source: SourceConfig | None = None
    """Files of its problems."""
    asks: Literal["problems", "trace_inference"] = "problems"
    """`problems`: each is asked as it is. `trace_inference`: what its solutions compute on its inputs, output and
    variables, is asked."""
    prompt: str = "code"
    """`plain`, `code`, `code_with_tests`, `completion`, `continuation`, `math`, `value` or `call_arguments`; or a text
    of your own in which {statement}, {starter_code}, {entry_point} and {tests} stand for those of a problem."""
    system: str | None = None
    """The system message; null: that of the prompt. Empty: none."""
    chat: bool = True
    """Send the prompt as a message to a chat model. false: as text that the response continues."""
    thinking_end: str = "</think>"
    """Separator of reasoning and answer: only what comes after it is graded. Empty: all of it."""
    thinking_opened: bool = False
    """True if the chat template of a server begins the reasoning (`<think>` is in the prompt, not in the response):
    then a response without its end is all reasoning. Of a model in a folder it is seen."""
    extraction: SubmissionRule = "last_fence"
    """Rule that extracts the program or the answer from a response."""
    score: Literal["all_tests", "share_of_tests"] = "all_tests"
    """Score of a response: 1 if all tests pass and else 0, or the share of tests that pass."""
    tests: TestChoice = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs (ties by index)."""
    profile: str = ""
    """Profile that programs are judged with; empty: that of each problem."""
    profile_with_numpy: str = ""
    """Profile of programs that name numpy, which other harnesses have; it takes time. Empty: that of the others."""
    time_limit_s: PositiveFloat | None = None
    """CPU seconds per test, in place of the problems' own limits; servers have their own range. null: theirs."""
    tags: tuple[str, ...] = ()
    """Only problems that have one of these tags; empty: all."""
    lazy_programs: bool = True
    """Count the problems whose tests accept programs that know nothing of them, such as `return []`: about 25 runs for
    each problem, whose verdicts are cached."""
    limit: NonNegative = 0
    """Most problems, drawn from all of them, the same for every model; 0: all."""
    runs_per_problem: Positive = 1
    """With `asks=trace_inference`: inputs of a problem that are requested."""
    samples: Positive = 1
    """Responses to each problem."""
    temperature: NonNegativeFloat = 0.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus: the smallest set of tokens with this much probability. 1 keeps all."""
    max_new_tokens: Positive = 2048
    """Most tokens of a response."""
    stops: tuple[str, ...] = ()
    """Strings that end a response; the text is cut before the first."""
    k: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1,)
    """For which k pass@k is reported."""
    tables: tuple[Table, ...] = ()
    """Tables of pass@1 by a property of problems."""
    rating: RatingConfig | None = None
    """Rating among the participants of contests; null: none."""
    model: EvaluatedModelConfig = EvaluatedModelConfig()
    """The model, where it is a folder."""
    endpoint: EndpointConfig = EndpointConfig()
    """The model, where a server has it."""
    judge: JudgeConfig = JudgeConfig()
    """Judging."""
    sandbox: SandboxConfig = SandboxConfig()
    """Isolation."""

    def broken_rules(self) -> Iterator[str]:
        yield from unused_isolation(self.judge, self.sandbox)
        if max(self.k) > self.samples:
            yield f"k = {list(self.k)}: must not exceed samples, {self.samples}"
        if self.samples > 1 and self.temperature == 0:
            yield f"samples = {self.samples} of temperature 0 are all the same; set temperature, or samples=1"
        if self.system and not self.chat:
            yield "system is ignored with chat=false; remove it"
