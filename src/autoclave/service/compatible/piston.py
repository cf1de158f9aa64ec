"""Piston's protocol: one request is one run.

open-r1 uses it for verdicts too. Such a request becomes a job, so that the program cannot read the expected output, and
the response has what open-r1 reads: `1` on standard output for a pass.
"""

import asyncio
import base64
import binascii
import signal
import sys
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from autoclave.core import Ended, Outcome, Program, Status, Verdict
from autoclave.judge import RunOrder
from autoclave.service.access import Judging, PartsDep
from autoclave.service.compatible import open_r1
from autoclave.service.compatible.translation import (
    SILENT_S,
    Clipped,
    json_response,
    keep_problem,
    printed,
    route_class,
    verdict_of,
)
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, described_errors, validation_message
from autoclave.service.requests import run_queued
from autoclave.service.wire import Job, Source

_NAMES: dict[str, tuple[str, ...]] = {
    "python": ("python", "py", "py3", "python3", "cf_python3"),
    "cpp": ("c++", "cpp", "g++", "c++17"),
}


def _http_error(error: Refused) -> Response:
    status = 400 if error.status_code == 422 else error.status_code
    return json_response({"message": error.detail}, status, error.headers)


def _validation_error(error: RequestValidationError) -> Response:
    return json_response({"message": validation_message(error)}, 400)


def _late_error(response: Response) -> object:
    """Return what open-r1 retries."""
    text = f"Resource temporarily unavailable: {bytes(response.body).decode()}"
    stage = {"stdout": "", "stderr": text, "output": text, "code": 1, "status": "XX"}
    return {"language": "", "version": "", "run": stage, "compile": stage}


def _require_json(request: Request) -> None:
    """Raise `Refused` for other types than JSON, as Piston does."""
    if (
        request.method == "POST"
        and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json"
    ):
        raise Refused(415, "input", "Content-Type: must be application/json")


class ErrorResponse(BaseModel):
    """An error."""

    message: str


router = APIRouter(
    prefix="/api/v2",
    tags=["Piston"],
    route_class=route_class(_http_error, _validation_error, _late_error, _require_json),
    responses=described_errors(ErrorResponse),
)
Milliseconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class _Piston(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class File(_Piston):
    """A file; the first one is the program."""

    name: str | None = None
    content: Source
    encoding: Literal["utf8", "base64", "hex"] = "utf8"


class ExecuteRequest(_Piston):
    """One program."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"language": "python", "version": "*", "files": [{"content": "print(input())"}], "stdin": "7"}]
        }
    )
    language: str
    version: str
    """`*`, or the version of a runtime."""
    files: Annotated[list[File], Field(min_length=1, max_length=1000)]
    stdin: Source = ""
    args: Annotated[list[str], Field(max_length=0)] = []
    """Must be empty: arguments are not supported."""
    run_timeout: Milliseconds = 3000
    """Wall-clock time."""
    compile_timeout: Milliseconds = 10_000
    run_cpu_time: Milliseconds = 3000
    compile_cpu_time: Milliseconds = 10_000
    run_memory_limit: Annotated[int, Field(ge=-1)] = -1
    """Bytes; -1: the server's limit."""
    compile_memory_limit: Annotated[int, Field(ge=-1, le=-1)] = -1
    """Only -1: the server's limit."""


class Runtime(BaseModel):
    """A supported language."""

    language: str
    version: str
    aliases: list[str]
    runtime: str | None = None


class Stage(BaseModel):
    """Result of the compiler or the program."""

    stdout: str
    stderr: str
    output: str
    """Standard output, then standard error."""
    code: int | None
    signal: str | None = None
    message: str | None = None
    status: Literal["RE", "SG", "TO", "OL", "EL", "XX"] | None = None
    cpu_time: int | None = None
    wall_time: int | None = None
    memory: int | None = None


class ExecuteAnswer(BaseModel):
    """Result of a program."""

    language: str
    version: str
    run: Stage
    compile: Stage | None = None


@router.get("/runtimes", response_model_exclude_none=True)
async def runtimes(parts: PartsDep, client: Judging) -> list[Runtime]:
    """List the supported languages."""
    return [_runtime(language, version) for language, version in await asyncio.to_thread(_versions, parts)]


@router.post("/execute", response_model_exclude_unset=True)
async def execute(body: ExecuteRequest, request: Request, parts: PartsDep, client: Judging) -> ExecuteAnswer:
    """Run one program."""
    language, runtime = await asyncio.to_thread(_chosen, parts, body)
    contents = [_content(file) for file in body.files]
    names = [file.name or f"file{number}.code" for number, file in enumerate(body.files)]
    try:
        source = contents[0].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise bad_input("files.0: the program is not UTF-8") from None
    files = dict(zip(names[1:], contents[1:], strict=True))
    if files.keys() >= open_r1.FILES:
        problem, program = open_r1.problem_and_program(source, language, files, parts.config.compatible.profile)
        job = Job(problem=await keep_problem(parts, client, problem), source=program, language=language)
        return _graded_answer(runtime, await verdict_of(parts, request, client, job))
    order, program = _order(parts, body, files, clipped := Clipped()), Program(source, language)
    result = await run_queued(parts, client, request, program, order, patience_s=SILENT_S)
    stage = _stage(result.outcome)
    stage.message = "; ".join(filter(None, (stage.message, *clipped.notes))) or None
    if language == "python":
        return ExecuteAnswer(language=runtime.language, version=runtime.version, run=stage)
    compiled = Stage(stdout="", stderr="", output="", code=0) if result.compile_error is None else stage
    return ExecuteAnswer(language=runtime.language, version=runtime.version, run=stage, compile=compiled)


def _order(parts: Parts, body: ExecuteRequest, files: dict[str, bytes], clipped: Clipped) -> RunOrder:
    greatest_ms = 1000 * parts.config.judge.time_limit_range[1]
    memory = clipped.within("run_memory_limit", body.run_memory_limit, parts.config.sandbox.memory_limit_mb << 20)
    stdin = body.stdin if body.stdin.endswith("\n") else f"{body.stdin}\n"
    return RunOrder(
        stdin.encode("utf-8", "surrogatepass"),
        files,
        profile=parts.config.compatible.profile,
        time_limit_s=clipped.within("run_cpu_time", body.run_cpu_time, greatest_ms) / 1000,
        wall_limit_s=clipped.within("run_timeout", body.run_timeout, 3 * greatest_ms + 1000) / 1000,
        memory_limit_mb=max(int(memory) >> 20, 1) if memory > 0 else None,
        compile_limit_s=min(body.compile_timeout, body.compile_cpu_time) / 1000,
    )


def _content(file: File) -> bytes:
    try:
        if file.encoding == "base64":
            return base64.b64decode(file.content, validate=True)
        if file.encoding == "hex":
            return bytes.fromhex(file.content)
        return file.content.encode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        raise bad_input(f"files: a content is not {file.encoding}, the encoding given") from None


def _stage(outcome: Outcome) -> Stage:
    out, err = printed(outcome)
    stage = Stage(
        stdout=out,
        stderr=err,
        output=out + err,
        code=outcome.exit_code,
        signal=None,
        message=None,
        status=None,
        cpu_time=round(1000 * outcome.cpu_s),
        wall_time=round(1000 * outcome.wall_s),
        memory=round(outcome.memory_mb * 2**20),
    )
    if limit := outcome.ended.limit:
        stage.status = "TO" if limit.status is Status.TIME_LIMIT else "SG"
        if limit.status is Status.OUTPUT_LIMIT:
            stage.status = "OL" if len(outcome.stdout) >= len(outcome.stderr) else "EL"
        stage.code, stage.signal, stage.message = None, "SIGKILL", f"{outcome.ended} limit exceeded"
    elif outcome.ended is Ended.SIGNALLED:
        stage.status, stage.code, stage.message = "SG", None, "ended by a signal"
        stage.signal = signal.Signals(outcome.signal).name if outcome.signal in set(signal.Signals) else "SIGKILL"
    elif outcome.exit_code != 0:
        stage.status = "RE"
    return stage


def _versions(parts: Parts) -> list[tuple[str, str]]:
    found = [("python", ".".join(map(str, sys.version_info[:3])))]
    version = parts.runner.cpp_version()
    return found if version is None else [*found, ("cpp", version)]


def _runtime(language: str, version: str) -> Runtime:
    first, *aliases = _NAMES[language]
    return Runtime(language=first, version=version, aliases=aliases, runtime="gcc" if language == "cpp" else None)


def _chosen(parts: Parts, body: ExecuteRequest) -> tuple[str, Runtime]:
    """Return the requested language and its runtime, or raise `Refused`."""
    for language, version in _versions(parts):
        if body.language in _NAMES[language] and body.version in ("*", version):
            return language, _runtime(language, version)
    raise Refused(400, "input", f"{body.language[:100]}-{body.version[:100]} runtime is unknown")


def _graded_answer(runtime: Runtime, verdict: Verdict) -> ExecuteAnswer:
    """Return what open-r1 reads: 1 or 0 on standard output, and a result of the compiler for every language."""
    refused = verdict.status is Status.COMPILE_ERROR
    failed = Stage(stdout="", stderr=verdict.message, output=verdict.message, code=1, status="RE")
    compiled = failed if refused else Stage(stdout="", stderr="", output="", code=0)
    text = "1\n" if verdict.is_accepted else "0\n"
    message = verdict.status.value if verdict.status else None
    run = failed if refused else Stage(stdout=text, stderr="", output=text, code=0, message=message)
    return ExecuteAnswer(language=runtime.language, version=runtime.version, run=run, compile=compiled)
