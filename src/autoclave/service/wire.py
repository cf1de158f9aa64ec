"""Bodies of requests and responses, from which FastAPI derives the OpenAPI description.

Verdicts and traces have the form of the files of the same name; see `core`.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from autoclave.core import Ended, Trace, Verdict

Digest = Annotated[
    str, Field(pattern="^[0-9a-f]{64}$", description="sha256, in hex, of the parts of a problem that decide verdicts.")
]
Identity = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
Wait = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
Keep = Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]

EXAMPLE_DIGEST = "3b1f6a0c5f6d4f2d9f8f4f0f7a6c1e2b3b1f6a0c5f6d4f2d9f8f4f0f7a6c1e2b"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


Source = Annotated[
    str, PlainValidator(_text), WithJsonSchema({"type": "string", "description": "Source of a program."})
]
"""Any string, lone surrogates included: the judge decides whether it is a program."""


def _well_formed(value: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("must be well-formed Unicode")
    return value


Label = Annotated[str, AfterValidator(_well_formed)]
"""A string that a response repeats."""

DEFAULT_PRIORITY = 4


class Request(BaseModel):
    """Base of request bodies; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Answer(BaseModel):
    """Base of response bodies."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ErrorDetail(Answer):
    """An error."""

    kind: str
    """A word for programs: input, unauthorized, forbidden, not_found, unknown_problem, too_large, busy, draining ..."""
    message: str
    """A sentence for users."""


class ErrorAnswer(Answer):
    """Body of every error."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"kind": "not_found", "message": "no such job"}}]}
    )
    error: ErrorDetail


class StoredProblem(Answer):
    """A stored problem without its expected answers."""

    digest: Digest
    id: str
    """The label that it was first uploaded with."""
    kind: str
    """Kind of tests: stdin, call, check or answer."""
    num_tests: int
    language: str
    profile: str
    time_limit_s: float | None
    memory_limit_mb: int | None
    source: str
    difficulty: str
    tags: list[str]
    size: int
    """Bytes of its JSON line."""
    created: float
    """Seconds since 1970."""
    statement: str | None = None
    """Null in lists."""


class ProblemList(Answer):
    """A page of problems."""

    problems: list[StoredProblem]
    next: str | None
    """Value of `after` for the next page; null at the end."""


class UploadedProblem(Answer):
    """One line of an upload."""

    digest: Digest
    id: str
    is_new: bool


class Uploaded(Answer):
    """Result of an upload."""

    problems: list[UploadedProblem]
    new: int
    """Number of problems that were not stored before."""


class ProblemNeed(Request):
    """A problem, and the language of the programs for it."""

    digest: Digest
    language: str = "python"


class Lookup(Request):
    """Problems to look up: whether they are stored and can be judged here."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"problems": [{"digest": EXAMPLE_DIGEST}]}]})
    problems: Annotated[list[ProblemNeed], Field(max_length=10_000, fail_fast=True)]


class RefusedProblem(Answer):
    """A stored problem that cannot be judged."""

    digest: Digest
    kind: Literal["input", "host"]
    """`host`: something is missing on the server's machine."""
    message: str


class LookupAnswer(Answer):
    """Result of a lookup; problems in neither list can be used."""

    unknown: list[Digest]
    refused: list[RefusedProblem]


class Job(Request):
    """A program to judge on the tests of a stored problem."""

    problem: Digest
    source: Source
    language: str = "python"
    id: Label = ""
    """The client's label; the verdict repeats it."""
    tests: Annotated[str, Field(pattern="^(all|longest:[1-9][0-9]{0,8})$")] = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs."""
    stop_at_failure: bool = True
    """End the job at the first failing test."""
    profile: str | None = None
    """Interpreter profile; the problem's by default."""
    time_limit_s: Seconds | None = None
    """CPU seconds per test, at most the server's; the problem's by default."""
    memory_limit_mb: Annotated[int, Field(gt=0)] | None = None
    """Memory in MiB, at most the server's; the problem's by default."""


class Options(Request):
    """Options for all jobs of a request."""

    priority: Annotated[int, Field(ge=0, le=9)] = DEFAULT_PRIORITY
    """9 goes first, 0 last. The default is lowered to the highest that the token may have."""
    deadline_s: Seconds | None = None
    """Seconds from now after which a job is not started any more; null: no deadline."""
    keep_s: Keep | None = None
    """Seconds that jobs stay queued after the client that waits for them disconnects; null: for ever. By default, a
    request that waits cancels its jobs at once."""


class JobRequest(Job, Options):
    """One program."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"problem": EXAMPLE_DIGEST, "source": "print(7)", "wait_s": 30}]}
    )
    wait_s: Wait = 0.0
    """Seconds to wait for the verdict before answering."""


class BatchRequest(Options):
    """Many programs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"jobs": [{"problem": EXAMPLE_DIGEST, "source": "print(7)", "id": "first"}], "priority": 5}]
        }
    )
    jobs: Annotated[list[Job], Field(min_length=1, fail_fast=True)]


class JobAnswer(Answer):
    """State of a job."""

    job: Identity
    batch: Identity
    place: int
    """Index in the batch, from 0."""
    id: str
    """The client's label."""
    state: Literal["accepted", "running", "done", "cancelled"]
    sequence: int | None
    """Position in the order in which jobs ended; value of `after` to continue from here."""
    verdict: Verdict | None
    """Null until the job is done."""


class BatchAnswer(Answer):
    """State of a batch."""

    batch: Identity
    jobs: list[Identity]
    """In the order of the request."""
    counts: dict[str, int]
    """Number of jobs by state: accepted, running, done, cancelled."""


class Cancelled(Answer):
    """Result of a cancellation."""

    cancelled: int
    """Number of jobs that had not ended before."""


class RunRequest(Request):
    """One program without tests."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"source": "print(sum(map(int, input().split())))", "stdin": "3 4"},
                {
                    "source": "import json\njson.load(open('data.json'))['a'] + 1",
                    "files": {"data.json": "eyJhIjogNn0="},
                    "wants_value": True,
                },
            ]
        }
    )
    source: Source
    language: str = "python"
    stdin: str = ""
    files: Annotated[dict[str, str], Field(max_length=1000)] = {}
    """Files to create in the working folder: content (base64) by path. For Python programs, like `fetch_files` and
    `wants_value`."""
    fetch_files: Annotated[list[str], Field(max_length=1000)] = []
    """Paths of files to return after the run."""
    wants_value: bool = False
    """Return the value of the last statement, if that is an expression."""
    profile: str = "plain"
    time_limit_s: Seconds | None = None
    """CPU seconds, at most the server's, which is the default."""
    memory_limit_mb: Annotated[int, Field(gt=0)] | None = None
    """Memory in MiB, at most the server's, which is the default."""


class RunAnswer(Answer):
    """Result of a run. U+FFFD replaces output that is not UTF-8. Value and files come from the program's own process
    and are not verified.
    """

    ended: Ended
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    stdout_cut: int
    """Bytes cut off at the end."""
    stderr_cut: int
    cpu_s: float
    wall_s: float
    memory_mb: float
    detail: str
    level: str
    """Isolation level of the run."""
    value: str | None
    """`repr` of the last expression, up to 10,000 characters; null if there is none, it was not requested, or the
    program did not finish."""
    value_cut: int
    """Characters cut off at the end."""
    files: dict[str, str]
    """Content (base64) of the requested files that exist. Together at most half of the server's output limit; the rest
    is left out."""


class TraceRequest(Request):
    """Another run of a program on one test, to record the final values of its variables."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"problem": EXAMPLE_DIGEST, "source": "x = int(input())", "test": 0}]}
    )
    problem: Digest
    source: Source
    language: str = "python"
    id: Label = ""
    test: Annotated[int, Field(ge=0)] = 0
    """Index of the test."""
    check_only: bool = False
    """Only check that the program can be traced; the response has no trace."""


class TraceAnswer(Answer):
    """The trace; null with `check_only`."""

    trace: Trace | None


class ServerAnswer(Answer):
    """Properties and load of the server."""

    version: str
    level: str
    """Isolation level of every program."""
    slots: int
    """Programs judged at a time."""
    all_slots: int
    """Slots of all servers that share the store."""
    waiting: int
    """Queued programs; where several servers share a store, this one's share of them."""
    running: int
    per_s: float
    """Verdicts per second in the last 30 s."""
    is_draining: bool
    batch_limit: int
    """Most jobs in one request."""
    least_time_limit_s: float
    """Least CPU seconds per test, also where a problem gives less."""
    greatest_time_limit_s: float
    """Most CPU seconds per test."""
    memory_limit_mb: int


class Health(Answer):
    """Health of the server."""

    status: Literal["ok", "draining", "store", "failed"]
    """`store`: the database does not answer."""
