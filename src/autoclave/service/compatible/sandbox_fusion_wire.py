"""Bodies of requests and responses of SandboxFusion. Unknown fields are an error."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from autoclave.service.wire import Label, Source

Language = Literal["python", "cpp"]
"""Supported languages of the protocol."""
Seconds = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Files = Annotated[dict[str, str | None], Field(max_length=1000)]
Paths = Annotated[list[str], Field(max_length=1000)]


class Request(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Response(BaseModel):
    """Base of response bodies."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ErrorItem(Response):
    """One error of a request."""

    type: str
    loc: list[str | int]
    """Path of the field."""
    msg: str


class ErrorResponse(Response):
    """An error."""

    detail: str | list[ErrorItem]
    """A sentence, or with status 422 the errors of the request."""


class RunCodeRequest(Request):
    """One program."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"code": "print(input())", "language": "python"}]})
    code: Source
    language: Language
    stdin: Source | None = None
    compile_timeout: Seconds = 10.0
    """CPU seconds of the compiler; the server's limit applies too."""
    run_timeout: Seconds = 10.0
    """CPU seconds, clipped to the server's; the wall-clock limit is 1.5 times as much plus one second."""
    memory_limit_MB: Annotated[int, Field(ge=-1)] = -1  # noqa: N815
    """Clipped to the server's; -1: the server's."""
    files: Files = {}
    """Content (base64) by path. For Python, like `fetch_files`."""
    fetch_files: Paths = []
    args: Annotated[list[str], Field(max_length=0)] = []
    """Must be empty: arguments are not supported."""


class CommandRunResult(Response):
    """Result of one command."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    """Wall-clock seconds."""
    cpu_time: float | None = None
    return_code: int | None = None
    """Negative: a signal; -9 also for every limit but that of time."""
    stdout: str | None = None
    stderr: str | None = None


RunStatus = Literal["Success", "Failed", "SandboxError"]


class RunCodeResponse(Response):
    """Result of a program."""

    status: RunStatus
    message: str = ""
    """Names the limits that were clipped to the server's."""
    compile_result: CommandRunResult | None = None
    run_result: CommandRunResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class RunJupyterRequest(Request):
    """Cells of a notebook, which run in one process."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cells": ["a = 123", "a"]}]})
    cells: Annotated[list[Source], Field(max_length=1000)]
    cell_timeout: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Must be 0: cells have no limit of their own."""
    total_timeout: Annotated[float, Field(gt=0, le=600)] = 45.0
    """Wall-clock seconds; CPU seconds are as many, at most the server's limit."""
    memory_limit_MB: Annotated[int, Field(ge=-1)] = -1  # noqa: N815
    kernel: Literal["python3"] = "python3"
    files: Files = {}
    fetch_files: Paths = []


class CellRunResult(Response):
    """Result of a cell."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, Any]]


class RunJupyterResponse(Response):
    """Result of a notebook."""

    status: RunStatus
    message: str = ""
    driver: CommandRunResult | None = None
    cells: list[CellRunResult] = []
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class Extra(Request):
    """Options of one class of data sets."""

    run_all_cases: bool = False
    """Run the tests after the first failing one too."""


class TestConfig(Request):
    """Options of judging. Options that would change a verdict and are not supported are an error."""

    __test__ = False
    dataset_type: Literal["CommonOJDataset"] | None = None
    """Valid only with `provided_data`."""
    language: Language | None = None
    locale: None = None
    is_fewshot: Literal[False] | None = None
    compile_timeout: Seconds | None = None
    """Ignored for Python, an error for C++, where the server's limit applies."""
    run_timeout: Seconds | None = None
    """CPU seconds per test, clipped to the server's range."""
    custom_extract_logic: None = None
    provided_data: dict[str, Any] | None = None
    """A row of a CommonOJDataset in place of a stored problem; needs the scope `problems:write`."""
    extra: Extra = Extra()


class DatasetRequest(Request):
    """Problems of a data set."""

    dataset: str
    config: TestConfig = TestConfig()
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=0)] = 1_000_000


class PromptRequest(Request):
    """A problem of a data set."""

    dataset: str
    id: int | str
    config: TestConfig = TestConfig()


class SubmitRequest(Request):
    """A response of a model, to be judged."""

    dataset: Label
    id: int | Label
    completion: Source
    config: TestConfig = TestConfig()


class Prompt(Response):
    """Statement of a problem."""

    id: int | str
    prompt: str
    labels: dict[str, Any] = {}


class EvalTestCase(Response):
    """Result of one test, without its input and expected output."""

    passed: bool
    exec_info: RunCodeResponse
    test_info: None = None


class EvalResult(Response):
    """The verdict."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: str | None = None
    tests: list[EvalTestCase]
    extracted_type: Literal["fenced", "empty"] | None = None
    extra: dict[str, Any] | None = None
