"""Piston's protocol: one request is one run.

open-r1 uses it for verdicts too: a request with the files `grader_config`, `input.txt` and `correct_output.txt` is a
submission with one test. It becomes a job, so that the program cannot read the expected output, and the response has
what open-r1 reads: `1` on standard output for a pass.
"""

from __future__ import annotations

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

from autoclave.core import Ended, Outcome, Problem, Program, Status, StdinCase, StdinTests, Verdict
from autoclave.judge import RunOrder
from autoclave.service.access import Judging, LeasesDep, PartsDep
from autoclave.service.compatible.translation import (
    json_response,
    keep_problem,
    printed,
    route_class,
    verdict_of,
)
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, described_errors, validation_message
from autoclave.service.requests import run_queued
from autoclave.service.tokens import Client
from autoclave.service.wire import Job, Source

_NAMES: dict[str, tuple[str, ...]] = {
    "python": ("python", "py", "py3", "python3", "cf_python3"),
    "cpp": ("c++", "cpp", "g++", "c++17"),
}
_GRADER = {"grader_config", "input.txt", "correct_output.txt"}


def _http_error(error: Refused) -> Response:
    status = 400 if error.status_code == 422 else error.status_code
    return json_response({"message": error.detail}, status, error.headers)


def _validation_error(error: RequestValidationError) -> Response:
    return json_response({"message": validation_message(error)}, 400)


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
    route_class=route_class(_http_error, _validation_error, _require_json),
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
async def execute(
    body: ExecuteRequest, request: Request, parts: PartsDep, leases: LeasesDep, client: Judging
) -> ExecuteAnswer:
    """Run one program."""
    language, runtime = await asyncio.to_thread(_chosen, parts, body)
    contents = [_content(file) for file in body.files]
    names = [file.name or f"file{number}.code" for number, file in enumerate(body.files)]
    try:
        source = contents[0].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise bad_input("files.0: the program is not UTF-8") from None
    files = dict(zip(names[1:], contents[1:], strict=True))
    if set(files) >= _GRADER:
        verdict = await _graded(parts, leases, request, client, body, language, source, files)
        return _graded_answer(runtime, verdict)
    order = _order(parts, body, files)
    result = await run_queued(parts, lambda: parts.runner.run(Program(source, language), order))
    ended = result.outcome.ended.value
    parts.audit.note(client.id, "run", source=contents[0], language=language, ended=ended)
    stage = _stage(result.outcome)
    if language == "python":
        return ExecuteAnswer(language=runtime.language, version=runtime.version, run=stage)
    compiled = Stage(stdout="", stderr="", output="", code=0) if result.compile_error is None else stage
    return ExecuteAnswer(language=runtime.language, version=runtime.version, run=stage, compile=compiled)


def _order(parts: Parts, body: ExecuteRequest, files: dict[str, bytes]) -> RunOrder:
    greatest_ms = 1000 * parts.config.judge.time_limit_range[1]
    greatest_bytes = parts.config.sandbox.memory_limit_mb << 20
    for name, value, limit in (
        ("run_timeout", body.run_timeout, 3 * greatest_ms + 1000),
        ("run_cpu_time", body.run_cpu_time, greatest_ms),
        ("run_memory_limit", body.run_memory_limit, greatest_bytes),
    ):
        if value > limit:
            raise bad_input(f"{name} cannot exceed the configured limit of {limit:g}")
    stdin = body.stdin if body.stdin.endswith("\n") else f"{body.stdin}\n"
    return RunOrder(
        stdin.encode("utf-8", "surrogatepass"),
        files,
        profile=parts.config.compatible.profile,
        time_limit_s=body.run_cpu_time / 1000,
        wall_limit_s=body.run_timeout / 1000,
        memory_limit_mb=max(body.run_memory_limit >> 20, 1) if body.run_memory_limit > 0 else None,
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


# --- Runtimes ------------------------------------------------------------------------------------------------------


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


# --- Verdicts for open-r1 ------------------------------------------------------------------------------------------


async def _graded(
    parts: Parts,
    leases: LeasesDep,
    request: Request,
    client: Client,
    body: ExecuteRequest,
    language: str,
    source: str,
    files: dict[str, bytes],
) -> Verdict:
    """Return the verdict on the test in the request, or raise `Refused`."""
    if unknown := sorted(set(files) - _GRADER):
        raise bad_input(f"files: {unknown[0][:100]}: checkers in requests are not supported. Fix: leave it out")
    try:
        given, expected, text = (files[name].decode() for name in ("input.txt", "correct_output.txt", "grader_config"))
        settings = dict(line.split("=", 1) for line in text.splitlines() if line.strip())
        time_limit_s, memory_mb = float(settings.pop("TIME_LIMIT")), int(float(settings.pop("MEMORY_LIMIT")))
    except (ValueError, KeyError, OverflowError):
        raise bad_input("files: grader_config: must have lines TIME_LIMIT=seconds and MEMORY_LIMIT=MiB") from None
    if settings.pop("INPUT_MODE", "stdio") != "stdio" or settings:
        raise bad_input("files: grader_config: only INPUT_MODE=stdio beside TIME_LIMIT and MEMORY_LIMIT")
    if not 0 < time_limit_s < 1e9 or memory_mb <= 0:
        raise bad_input("files: grader_config: limits must be greater than 0")
    problem = Problem(
        "",
        StdinTests("stdin", [StdinCase(given, expected)]),
        time_limit_s=time_limit_s,
        memory_limit_mb=memory_mb,
        profile=parts.config.compatible.profile,
        language=language,
        source="piston",
    )
    await keep_problem(parts, client, problem)
    job = Job(problem=problem.digest, source=source, language=language)
    return await verdict_of(parts, leases, request, client, job)


def _graded_answer(runtime: Runtime, verdict: Verdict) -> ExecuteAnswer:
    """Return what open-r1 reads: 1 or 0 on standard output, and a result of the compiler for every language."""
    refused = verdict.status is Status.COMPILE_ERROR
    failed = Stage(stdout="", stderr=verdict.message, output=verdict.message, code=1, status="RE")
    compiled = failed if refused else Stage(stdout="", stderr="", output="", code=0)
    text = "1\n" if verdict.is_accepted else "0\n"
    message = verdict.status.value if verdict.status else None
    run = failed if refused else Stage(stdout=text, stderr="", output=text, code=0, message=message)
    return ExecuteAnswer(language=runtime.language, version=runtime.version, run=run, compile=compiled)
