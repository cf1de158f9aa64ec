"""Requests and answers of SandboxFusion, with the names that its clients know. A field that is not here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from autoclave.service.wire import Label, Source

Language = Literal["python", "cpp"]
"""The languages of the protocol that are run here."""
Seconds = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Files = Annotated[dict[str, str | None], Field(max_length=1000)]
Paths = Annotated[list[str], Field(max_length=1000)]


class Asked(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Told(BaseModel):
    """What a client gets."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Complaint(Told):
    """One thing that is wrong with a request."""

    type: str
    loc: list[str | int]
    """The way to it."""
    msg: str


class Refusal(Told):
    """The form of errors."""

    detail: str | list[Complaint]
    """A sentence, or with status 422 what is wrong with the request."""


# --- Runs ----------------------------------------------------------------------------------------------------------


class RunCodeRequest(Asked):
    """One program."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"code": "print(input())", "language": "python"}]})
    code: Source
    language: Language
    stdin: Source | None = None
    compile_timeout: Seconds = 10.0
    """CPU seconds of the compiler; the server's own limit holds too."""
    run_timeout: Seconds = 10.0
    """CPU seconds; the wall clock allows half as much again, and one second. Not above the server's."""
    memory_limit_MB: Annotated[int, Field(ge=-1)] = -1  # noqa: N815
    """Not above the server's; -1: the server's."""
    files: Files = {}
    """Content (base64) by path. For Python, like `fetch_files`."""
    fetch_files: Paths = []
    args: Annotated[list[str], Field(max_length=0)] = []
    """None are passed on."""


class CommandRunResult(Told):
    """How one command ended."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    """Seconds by the wall clock."""
    cpu_time: float | None = None
    return_code: int | None = None
    """Negative: the signal that ended it; limits but that of time end with -9."""
    stdout: str | None = None
    stderr: str | None = None


RunStatus = Literal["Success", "Failed", "SandboxError"]


class RunCodeResponse(Told):
    """How a program ended."""

    status: RunStatus
    message: str = ""
    compile_result: CommandRunResult | None = None
    run_result: CommandRunResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class RunJupyterRequest(Asked):
    """Cells of a notebook, for one process."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cells": ["a = 123", "a"]}]})
    cells: Annotated[list[Source], Field(max_length=1000)]
    cell_timeout: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Only 0, no limit of its own for a cell."""
    total_timeout: Annotated[float, Field(gt=0, le=600)] = 45.0
    """Seconds by the wall clock; CPU seconds are as many, up to the server's limit."""
    memory_limit_MB: Annotated[int, Field(ge=-1)] = -1  # noqa: N815
    kernel: Literal["python3"] = "python3"
    files: Files = {}
    fetch_files: Paths = []


class CellRunResult(Told):
    """What became of a cell."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, Any]]


class RunJupyterResponse(Told):
    """What became of a notebook."""

    status: RunStatus
    message: str = ""
    driver: CommandRunResult | None = None
    cells: list[CellRunResult] = []
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


# --- Data sets -----------------------------------------------------------------------------------------------------


class Extra(Asked):
    """Options of one class of data sets."""

    run_all_cases: bool = False
    """Whether tests after the first that fails run too."""


class TestConfig(Asked):
    """How to judge. What would change a verdict in a way that we do not follow is refused."""

    __test__ = False
    dataset_type: Literal["CommonOJDataset"] | None = None
    """Only with `provided_data`."""
    language: Language | None = None
    locale: None = None
    is_fewshot: Literal[False] | None = None
    compile_timeout: Seconds | None = None
    """For Python, where nothing is compiled; for C++ the server's limit holds, and this is refused."""
    run_timeout: Seconds | None = None
    """CPU seconds per test, clipped to the server's range."""
    custom_extract_logic: None = None
    provided_data: dict[str, Any] | None = None
    """A row of a CommonOJDataset in place of a stored problem; needs the scope `problems:write`."""
    extra: Extra = Extra()


class DatasetRequest(Asked):
    """Which problems."""

    dataset: str
    config: TestConfig = TestConfig()
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=0)] = 1_000_000


class PromptRequest(Asked):
    """Which problem."""

    dataset: str
    id: int | str
    config: TestConfig = TestConfig()


class SubmitRequest(Asked):
    """A response of a model, to be judged."""

    dataset: Label
    id: int | Label
    completion: Source
    config: TestConfig = TestConfig()


class Prompt(Told):
    """What a problem asks."""

    id: int | str
    prompt: str
    labels: dict[str, Any] = {}


class EvalTestCase(Told):
    """One test. Neither its input nor what is expected is told."""

    passed: bool
    exec_info: RunCodeResponse
    test_info: None = None


class EvalResult(Told):
    """The verdict."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: str | None = None
    tests: list[EvalTestCase]
    extracted_type: Literal["fenced", "empty"] | None = None
    extra: dict[str, Any] | None = None
