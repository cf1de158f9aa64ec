"""SandboxFusion's protocol: runs as those of `/v1/runs`, and submissions as jobs on stored problems.

Its data sets are the values of `source` of stored problems, its ids their digests. Its clients retry after every status
but 200, verl only after 504, which is therefore the status of a full server, a shutdown and a fault of the sandbox.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import TypeAdapter, ValidationError

from autoclave.core import DataError, Ended, Outcome, Problem, Program, Status, StdinCase, StdinTests
from autoclave.core.json import rule_of
from autoclave.core.verdict import TestResult
from autoclave.judge import EXTRACTION_RULES, RunOrder, RunResult
from autoclave.service.access import Judging, PartsDep
from autoclave.service.bodies import Values
from autoclave.service.compatible import sandbox_fusion_wire as wire
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
from autoclave.service.refusals import Refused, bad_input, described_errors
from autoclave.service.requests import decoded, encoded, run_queued
from autoclave.service.wire import Job, StoredProblem

_MARGIN_S = 10.0
"""verl gives up after both timeouts and this long without a byte; a third of it is for a busy machine."""
_MOST_PATIENCE_S = 40.0
"""Proxies give up after 60 s without a byte."""
_UNNAMED = "autoclave"
"""Data set of problems without a `source`."""
_PAGE = 1000
_MOST_VALUES = 100_000
"""Of a list of cases, which have two each."""
_PART = 1 << 16
_DIGEST = re.compile("[0-9a-f]{64}")
_MAY_RETRY = 504


def _http_error(error: Refused) -> Response:
    may_retry = error.status_code in (429, 503) or error.kind == "fault"
    status = _MAY_RETRY if may_retry else error.status_code
    detail: object = error.detail
    if status == 422:
        detail = [{"type": "value_error", "loc": ["body"], "msg": error.detail}]
    return json_response({"detail": detail}, status, error.headers)


def _validation_error(error: RequestValidationError) -> Response:
    """Return the errors in FastAPI's form, without the values."""
    found = [{"type": one["type"], "loc": list(one["loc"]), "msg": rule_of(one["msg"])} for one in error.errors()]
    return json_response({"detail": found}, 422)


def _late_error(response: Response) -> object:
    """Return what the `sandbox-fusion` package retries."""
    return {"status": "SandboxError", "message": bytes(response.body).decode()}


router = APIRouter(
    tags=["SandboxFusion"],
    route_class=route_class(_http_error, _validation_error, _late_error),
    responses=described_errors(
        wire.ErrorResponse, {_MAY_RETRY: "The queue is full, the server is shutting down, or a fault: retry."}
    ),
)


@router.get("/v1/ping")
async def ping() -> str:
    """Return pong."""
    return "pong"


@router.post("/run_code")
async def run_code(
    body: wire.RunCodeRequest, request: Request, parts: PartsDep, client: Judging
) -> wire.RunCodeResponse:
    """Run one program."""
    clipped = Clipped()
    limit_s = clipped.within("run_timeout", body.run_timeout, parts.config.judge.time_limit_range[1])
    order = RunOrder(
        (body.stdin or "").encode("utf-8", "surrogatepass"),
        decoded(body.files),
        body.fetch_files,
        profile=parts.config.compatible.profile,
        time_limit_s=limit_s,
        wall_limit_s=1.5 * limit_s + 1,
        memory_limit_mb=_memory(parts, clipped, body.memory_limit_MB),
        compile_limit_s=body.compile_timeout,
    )
    program = Program(body.code, body.language)
    patience_s = min((body.compile_timeout + body.run_timeout + _MARGIN_S) * 2 / 3, _MOST_PATIENCE_S)
    result = await run_queued(parts, client, request, program, order, patience_s=patience_s)
    return _run_response(result, body.language).model_copy(update={"message": clipped.message})


@router.post("/run_jupyter")
async def run_jupyter(
    body: wire.RunJupyterRequest, request: Request, parts: PartsDep, client: Judging
) -> wire.RunJupyterResponse:
    """Run the cells of a notebook in one process."""
    clipped = Clipped()
    order = RunOrder(
        files=decoded(body.files),
        fetch=body.fetch_files,
        profile=parts.config.compatible.profile,
        time_limit_s=min(body.total_timeout, parts.config.judge.time_limit_range[1]),
        wall_limit_s=body.total_timeout,
        memory_limit_mb=_memory(parts, clipped, body.memory_limit_MB),
    )
    result = await run_queued(parts, client, request, body.cells, order, patience_s=SILENT_S)
    driver = _command(result.outcome)
    if driver.return_code != 0 or len(result.cells) != len(body.cells):
        return wire.RunJupyterResponse(status="Failed", message=clipped.message, driver=driver)
    cells = [
        wire.CellRunResult(
            stdout=_well_formed(cell.stdout),
            stderr=_well_formed(cell.stderr),
            display=[] if cell.value is None else [{"text/plain": _well_formed(cell.value)}],
            error=[] if cell.error is None else [_error(*cell.error)],
        )
        for cell in result.cells
    ]
    return wire.RunJupyterResponse(
        status="Success", message=clipped.message, driver=driver, cells=cells, files=encoded(result.files)
    )


def _memory(parts: Parts, clipped: Clipped, wanted_mb: int) -> int | None:
    greatest_mb = parts.config.sandbox.memory_limit_mb
    return int(clipped.within("memory_limit_MB", wanted_mb, greatest_mb)) if wanted_mb > 0 else None


def _run_response(result: RunResult, language: str) -> wire.RunCodeResponse:
    command = _command(result.outcome)
    if language == "python":  # nothing is compiled; a syntax error is an error of the run
        return _response(None, command, encoded(result.files))
    if result.compile_error is None:
        return _response(wire.CommandRunResult(status="Finished", return_code=0, stdout="", stderr=""), command, {})
    if result.compile_error.is_time_limit:
        command = wire.CommandRunResult(status="TimeLimitExceeded", stdout="", stderr=command.stderr)
    return _response(command, None, {})


def _response(
    compiled: wire.CommandRunResult | None, ran: wire.CommandRunResult | None, files: dict[str, str]
) -> wire.RunCodeResponse:
    is_good = all(one is None or one.return_code == 0 for one in (compiled, ran))
    return wire.RunCodeResponse(
        status="Success" if is_good else "Failed", compile_result=compiled, run_result=ran, files=files
    )


def _command(outcome: Outcome) -> wire.CommandRunResult:
    stdout, stderr = printed(outcome)
    code: int | None = -9
    if outcome.ended is Ended.EXITED:
        code = outcome.exit_code
    elif outcome.ended is Ended.SIGNALLED:
        code = -(outcome.signal or 9)
    elif outcome.ended.limit and outcome.ended.limit.status is Status.TIME_LIMIT:
        code = None
    else:
        stderr += f"\n{outcome.ended} limit exceeded\n"
    return wire.CommandRunResult(
        status="Finished" if code is not None else "TimeLimitExceeded",
        execution_time=outcome.wall_s,
        cpu_time=outcome.cpu_s,
        return_code=code,
        stdout=stdout,
        stderr=stderr,
    )


def _error(name: str, text: str, lines: list[str]) -> dict[str, Any]:
    return {
        "ename": _well_formed(name),
        "evalue": _well_formed(text),
        "traceback": [_well_formed(line) for line in lines],
    }


def _well_formed(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@router.get("/list_datasets")
async def list_datasets(parts: PartsDep, client: Judging) -> list[str]:
    """List the sources of stored problems."""
    return await asyncio.to_thread(lambda: sorted({_dataset(record) for record in _records(parts)}))


@router.post("/list_ids")
async def list_ids(body: wire.DatasetRequest, parts: PartsDep, client: Judging) -> list[int | str]:
    """List the digests of the problems of a data set."""
    return [record.digest for record in await asyncio.to_thread(_chosen, parts, body)]


@router.post("/get_prompts")
async def get_prompts(body: wire.DatasetRequest, parts: PartsDep, client: Judging) -> list[wire.Prompt]:
    """Return the statements of the problems of a data set."""

    def prompts() -> list[wire.Prompt]:
        digests = [record.digest for record in _chosen(parts, body)]
        found: dict[str, StoredProblem] = {}
        for start in range(0, len(digests), _PAGE):
            found |= {one.digest: one for one in parts.store.problem_records(digests[start : start + _PAGE])}
        return [_prompt(found[digest]) for digest in digests if digest in found]

    return await asyncio.to_thread(prompts)


@router.post("/get_prompt_by_id")
async def get_prompt_by_id(body: wire.PromptRequest, parts: PartsDep, client: Judging) -> wire.Prompt:
    """Return the statement of a problem."""
    return _prompt(await asyncio.to_thread(_record, parts, body.id))


@router.post("/submit")
async def submit(body: wire.SubmitRequest, request: Request, parts: PartsDep, client: Judging) -> wire.EvalResult:
    """Judge the program in a response of a model."""
    config = body.config
    if config.provided_data is not None:
        problem = await asyncio.to_thread(_provided, parts, body)
        digest, language = await keep_problem(parts, client, problem), problem.language
    else:
        if config.dataset_type is not None:
            raise bad_input("config.dataset_type: is only valid with config.provided_data. Fix: leave it out")
        record = await asyncio.to_thread(_record, parts, body.id)
        digest, language = record.digest, config.language or record.language
    if config.compile_timeout is not None and language != "python":
        raise bad_input("config.compile_timeout: the server's limit applies. Fix: leave it out")
    clipped = Clipped()
    limit_s = config.run_timeout
    if limit_s is not None:
        limit_s = clipped.within("config.run_timeout", limit_s, parts.config.judge.time_limit_range[1])
    source = EXTRACTION_RULES["last_fence"](body.completion)
    if source is None:
        return wire.EvalResult(id=body.id, accepted=False, extracted_code="", tests=[], extracted_type="empty")
    job = Job(
        problem=digest,
        source=source,
        language=language,
        time_limit_s=limit_s,
        stop_at_failure=not config.extra.run_all_cases,
    )
    verdict = await verdict_of(parts, request, client, job)
    return wire.EvalResult(
        id=body.id,
        accepted=verdict.is_accepted,
        extracted_code=_well_formed(source),
        tests=[_test(test) for test in verdict.tests],
        extracted_type="fenced",
        extra={
            "status": verdict.status and verdict.status.value,
            "message": verdict.message,
            "level": verdict.level,
            **({"clipped": clipped.message} if clipped.message else {}),
        },
    )


def _test(test: TestResult) -> wire.EvalTestCase:
    is_late = test.status is Status.TIME_LIMIT
    ran = test.status in (Status.ACCEPTED, Status.WRONG_ANSWER)
    command = wire.CommandRunResult(
        status="TimeLimitExceeded" if is_late else "Finished",
        execution_time=test.wall_s,
        cpu_time=test.cpu_s,
        return_code=None if is_late else 0 if ran else 1,
        stderr="" if ran else test.status.value,
    )
    info = wire.RunCodeResponse(status="Success" if ran else "Failed", run_result=command)
    return wire.EvalTestCase(passed=test.status is Status.ACCEPTED, exec_info=info)


def _provided(parts: Parts, body: wire.SubmitRequest) -> Problem:
    """Return the row in a submission as a problem, or raise `Refused`."""
    config = body.config
    if config.dataset_type is None:
        raise bad_input('config.dataset_type: must be "CommonOJDataset" with config.provided_data')
    row = config.provided_data or {}
    try:
        given = row.get("test")
        text = given if isinstance(given, str) else ""  # its values were not counted as those of the request
        values = Values(_MOST_VALUES, "config.provided_data.test")
        for start in range(0, len(text), _PART):
            values.add(text[start : start + _PART].encode("utf-8", "surrogatepass"))
        cases = _CASES.validate_json(text) if text else _CASES.validate_python(given)
    except ValidationError:
        cases = []
    if not cases or any(set(one) != {"input", "output"} for one in cases):
        raise bad_input("config.provided_data.test: must be a list of {input: {stdin}, output: {stdout}}")
    if any(set(one["input"]) != {"stdin"} or set(one["output"]) != {"stdout"} for one in cases):
        raise bad_input("config.provided_data.test: only stdin and stdout are supported, no files")
    tests = StdinTests("stdin", [StdinCase(one["input"]["stdin"], one["output"]["stdout"]) for one in cases])
    problem = Problem(
        str(row.get("content", "")),
        tests,
        id=str(row.get("id", body.id)),
        source=body.dataset,
        profile=parts.config.compatible.profile,
        language=config.language or "python",
    )
    try:
        return Problem.from_json(problem.to_json(), "config.provided_data")
    except DataError as error:
        raise bad_input(str(error)) from None


_CASES: TypeAdapter[list[dict[str, dict[str, str]]]] = TypeAdapter(list[dict[str, dict[str, str]]])


def _dataset(record: StoredProblem) -> str:
    return record.source or _UNNAMED


def _records(parts: Parts) -> Iterator[StoredProblem]:
    after = ""
    while page := parts.store.list_problems(after, _PAGE):
        yield from page
        after = page[-1].digest


def _chosen(parts: Parts, body: wire.DatasetRequest) -> list[StoredProblem]:
    """Return the problems of a data set by digest, or raise `Refused`."""
    found = [record for record in _records(parts) if _dataset(record) == body.dataset]
    if not found:
        raise Refused(400, "input", "no such dataset")
    if (language := body.config.language) is not None:
        found = [record for record in found if record.language == language]
    return found[body.offset : body.offset + body.limit]


def _record(parts: Parts, id: int | str) -> StoredProblem:
    """Return the problem with a digest, in any data set, or raise `Refused`."""
    found = parts.store.problem_records([id]) if isinstance(id, str) and _DIGEST.fullmatch(id) else []
    if not found:
        raise Refused(400, "input", "no such problem; ids are digests, see /list_ids")
    return found[0]


def _prompt(record: StoredProblem) -> wire.Prompt:
    labels: dict[str, Any] = {"id": record.id, "kind": record.kind, "num_tests": record.num_tests}
    labels |= {"language": record.language, "difficulty": record.difficulty, "tags": record.tags}
    return wire.Prompt(id=record.digest, prompt=record.statement or "", labels=labels)
