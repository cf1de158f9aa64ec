"""What goes over the wire: requests and answers, which are also what the description of the interface says.

Verdicts and traces have the form of the files of the same name; see `core`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from autoclave.core import Ended, Trace, Verdict

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="sha256 of what decides a verdict, in hex.")]
Identity = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
Wait = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
Keep = Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]

EXAMPLE_DIGEST = "3b1f6a0c5f6d4f2d9f8f4f0f7a6c1e2b3b1f6a0c5f6d4f2d9f8f4f0f7a6c1e2b"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


Source = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string", "description": "Text of a program."})]
"""Any text, half surrogate pairs too: whether it is a program is for the judge to say."""


def _well_formed(value: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("must be well-formed Unicode")
    return value


Label = Annotated[str, AfterValidator(_well_formed)]
"""Text that is told again."""


class Request(BaseModel):
    """What a client sends: no other fields."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Answer(BaseModel):
    """What a client gets."""

    model_config = ConfigDict(use_attribute_docstrings=True)


# --- Errors --------------------------------------------------------------------------------------------------------


class ErrorDetail(Answer):
    """What is wrong."""

    kind: str
    """A word for programs: input, unauthorized, forbidden, not_found, unknown_problem, too_large, busy, draining ..."""
    message: str
    """A sentence for people."""


class ErrorAnswer(Answer):
    """The one form of all errors."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"kind": "not_found", "message": "no such job"}}]}
    )
    error: ErrorDetail


# --- Problems ------------------------------------------------------------------------------------------------------


class ProblemAbout(Answer):
    """A stored problem, without its answers."""

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
    """Only where one problem is asked for."""


class ProblemList(Answer):
    """A page of problems."""

    problems: list[ProblemAbout]
    next: str | None
    """Give it as `after` for the next page; null at the end."""


class UploadedProblem(Answer):
    """One line of an upload."""

    digest: Digest
    id: str
    is_new: bool


class Uploaded(Answer):
    """What became of an upload."""

    problems: list[UploadedProblem]
    new: int
    """How many were not there before."""


class ProblemNeed(Request):
    """A problem that is going to be used for programs in a language."""

    digest: Digest
    language: str = "python"


class Lookup(Request):
    """Which problems are there, and can be judged here in that language?"""

    model_config = ConfigDict(json_schema_extra={"examples": [{"problems": [{"digest": EXAMPLE_DIGEST}]}]})
    problems: Annotated[list[ProblemNeed], Field(max_length=10_000)]


class RefusedProblem(Answer):
    """A problem that is there and cannot be judged."""

    digest: Digest
    kind: Literal["input", "host"]
    """`host`: the server's machine lacks something."""
    message: str


class LookupAnswer(Answer):
    """Those that are neither unknown nor refused can be used."""

    unknown: list[Digest]
    refused: list[RefusedProblem]


# --- Jobs ----------------------------------------------------------------------------------------------------------


class Job(Request):
    """One program, to be judged on the tests of a stored problem."""

    problem: Digest
    source: Source
    language: str = "python"
    id: Label = ""
    """A label of your own; it comes back in the verdict."""
    tests: Annotated[str, Field(pattern="^(all|longest:[1-9][0-9]{0,8})$")] = "all"
    """`all`, or `longest:N`: the N tests with the longest inputs."""
    stop_at_failure: bool = True
    """Whether the first failing test ends the job."""
    profile: str | None = None
    """Interpreter, in place of the problem's own."""
    time_limit_s: Seconds | None = None
    """CPU seconds per test, in place of the problem's own; not above the server's."""
    memory_limit_mb: Annotated[int, Field(gt=0)] | None = None
    """Memory, in place of the problem's own; not above the server's."""


class Options(Request):
    """What holds for all jobs of a request."""

    priority: Annotated[int, Field(ge=0, le=9)] = 4
    """9 goes first, 0 last."""
    deadline_s: Seconds | None = None
    """Seconds from now after which it is too late to begin; null: never."""
    keep_s: Keep | None = None
    """Seconds for which jobs outlive a client that was waiting for them and is gone; null: for ever. A request that
    waits and does not say cancels its jobs at once."""


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
    jobs: Annotated[list[Job], Field(min_length=1)]


class JobAnswer(Answer):
    """Where a job stands."""

    job: Identity
    batch: Identity
    place: int
    """Its place in the batch, from 0."""
    id: str
    """The label that the client gave."""
    state: Literal["accepted", "running", "done", "cancelled"]
    sequence: int | None
    """Orders what has ended; give it as `after` to go on behind it."""
    verdict: Verdict | None
    """Once it is done."""


class BatchAnswer(Answer):
    """Where a batch stands."""

    batch: Identity
    jobs: list[Identity]
    """In the order of the request."""
    counts: dict[str, int]
    """How many are accepted, running, done and cancelled."""


class Cancelled(Answer):
    """What became of a request to cancel."""

    cancelled: int
    """How many jobs had not ended before."""


# --- Runs and traces -----------------------------------------------------------------------------------------------


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
    """Files that are there when it begins: content (base64) by path in its working folder. For Python programs, like
    `fetch_files` and `wants_value`."""
    fetch_files: Annotated[list[str], Field(max_length=1000)] = []
    """Paths of files that are wanted once it has ended."""
    wants_value: bool = False
    """Whether to tell the value of the last statement, if that is an expression."""
    profile: str = "plain"
    time_limit_s: Seconds | None = None
    """CPU seconds; not above the server's, which is also the default."""
    memory_limit_mb: Annotated[int, Field(gt=0)] | None = None
    """Memory; not above the server's, which is also the default."""


class RunAnswer(Answer):
    """How a run ended. Output that is not UTF-8 has U+FFFD in its place. Value and files are what the program's own
    process says: text that nobody vouches for.
    """

    ended: Ended
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    stdout_cut: int
    """Bytes that are left out at the end."""
    stderr_cut: int
    cpu_s: float
    wall_s: float
    memory_mb: float
    detail: str
    level: str
    """Isolation that it ran under."""
    value: str | None
    """The last expression as Python shows it, up to 10,000 characters; null if there is none, it was not asked for, or
    the program did not come to its end."""
    value_cut: int
    """Characters that are left out at the end."""
    files: dict[str, str]
    """Content (base64) of the files that were asked for and found. All together have at most half of the server's limit
    of output; what is beyond is left out."""


class TraceRequest(Request):
    """One more run of a program on a test, for the final values of its variables."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"problem": EXAMPLE_DIGEST, "source": "x = int(input())", "test": 0}]}
    )
    problem: Digest
    source: Source
    language: str = "python"
    id: Label = ""
    test: Annotated[int, Field(ge=0)] = 0
    """Index of the test."""
    is_rehearsal: bool = False
    """Only find out whether it can be traced."""


class TraceAnswer(Answer):
    """The trace; null for a rehearsal."""

    trace: Trace | None


# --- The server ----------------------------------------------------------------------------------------------------


class ServerAnswer(Answer):
    """What the server is, and how much it has to do."""

    version: str
    level: str
    """Isolation that every program runs under."""
    slots: int
    """Programs judged at a time."""
    all_slots: int
    """Those of all servers that share its store."""
    waiting: int
    """Programs that wait; where several servers share a store, this one's share of them."""
    running: int
    per_s: float
    """Verdicts per second of late."""
    is_draining: bool
    batch_limit: int
    """Most jobs in one request."""
    least_time_limit_s: float
    """CPU seconds per test, also where a problem gives less."""
    greatest_time_limit_s: float
    """Most CPU seconds per test."""
    memory_limit_mb: int


class Health(Answer):
    """Whether it is well."""

    status: Literal["ok", "draining", "store", "failed"]
    """`store`: the database does not answer."""
