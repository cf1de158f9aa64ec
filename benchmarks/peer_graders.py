"""Graders of other projects, each from a checkout of its project and as that project calls it; see `peers.py`.

    python peer_graders.py NAME PATH_OR_URL [SERVER]

Runs with the interpreter of that project, so it needs the standard library alone. A line of JSON with cases comes in,
and a line with a boolean for each goes out, until the input ends. No code of these projects is here.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

Case = Mapping[str, Any]
"""`source`, `inputs` and `outputs` as text, and `fn_name` where a function is called; `number` is unique."""
Grader = Callable[[Case], bool]

MODULES = {
    "livecodebench": ("", "lcb_runner.evaluation.compute_code_generation_metrics"),
    "verl": ("", "verl.utils.reward_score.prime_code"),
    "open-r1": ("src", "open_r1.utils.competitive_programming.cf_scoring"),
    "sandbox-fusion": ("", "sandbox.server.server"),
    "prime-rl": ("src", "prime_rl.orchestrator.genesys.code"),
}
"""By project the folder that holds its packages, and the module with its grader."""
CALLS = {"livecodebench", "verl", "prime-rl"}
"""Projects whose graders call functions, too."""
TIME_LIMIT_S = 6
START_S = 120


def module_file(name: str, checkout: Path) -> Path:
    """Return the file of the grader.

    Raises:
        FileNotFoundError: the checkout does not have it; the message names the option.
    """
    folder, module = MODULES[name]
    path = checkout / folder / module.replace(".", "/")
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if found.is_file():
            return found
    raise FileNotFoundError(
        f"--{name} {checkout}: has no {path.relative_to(checkout)}.py. Fix: give the folder of a checkout of {name} "
        f"that has the module {module}"
    )


def imported(name: str, checkout: Path) -> ModuleType:
    """Import the grader, without the `__init__.py` of the packages above it, which need all of the project."""
    module_file(name, checkout)
    folder, module = MODULES[name]
    parts = module.split(".")
    for stop in range(1, len(parts)):
        package = sys.modules[".".join(parts[:stop])] = ModuleType(".".join(parts[:stop]))
        package.__path__ = [str(checkout.joinpath(folder, *parts[:stop]))]
    return importlib.import_module(module)


def tests_of(case: Case) -> dict[str, Any]:
    """Return the tests in the form of APPS."""
    return {name: case[name] for name in ("inputs", "outputs", "fn_name") if case.get(name) is not None}


def fenced(case: Case) -> str:
    return f"```python\n{case['source']}\n```"


def livecodebench(checkout: Path, _: str) -> Grader:
    grade = imported("livecodebench", checkout).evaluate_generations_by_problem

    def is_accepted(case: Case) -> bool:
        results, _ = grade(([case["source"]], {"input_output": json.dumps(tests_of(case))}, False, TIME_LIMIT_S))
        return all(each > 0 for each in results[0])

    return is_accepted


def verl(checkout: Path, _: str) -> Grader:
    score = imported("verl", checkout).compute_score
    return lambda case: score(fenced(case), tests_of(case), continuous=True)[0] == 1


def prime_rl(checkout: Path, _: str) -> Grader:
    evaluate = imported("prime-rl", checkout).evaluate_code
    return lambda case: evaluate(f"</think>{fenced(case)}", {"test_cases": json.dumps(tests_of(case))}) == 1


def open_r1(checkout: Path, server: str) -> Grader:
    """Its programs run on a Piston server."""
    scoring, loop = imported("open-r1", checkout), asyncio.new_event_loop()

    async def connected() -> Any:
        return sys.modules[scoring.PistonClient.__module__].PistonClient(f"{server}/api/v2")

    client = loop.run_until_complete(connected())
    limits = {"generated_checker": None, "time_limit": TIME_LIMIT_S, "memory_limit": 512.0, "input_mode": "stdio"}

    def is_accepted(case: Case) -> bool:
        tests = [{"input": i, "output": o} for i, o in zip(case["inputs"], case["outputs"], strict=True)]
        scored = scoring.score_submission(
            client,
            {"official_tests": tests, **limits},
            case["source"],
            scoring_mode="pass_fail",
            submission_language="python",
        )
        return loop.run_until_complete(scored) == 1.0

    return is_accepted


def sandbox_fusion(where: Path, server: str) -> Grader:
    """Its programs run on a SandboxFusion server, which is started from a checkout."""
    url = server or started(where)

    def is_accepted(case: Case) -> bool:
        pairs = zip(case["inputs"], case["outputs"], strict=True)
        tests = [{"input": {"stdin": given}, "output": {"stdout": expected}} for given, expected in pairs]
        row = {"id": case["number"], "content": "", "labels": {}, "test": tests}
        config = {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": row}
        config["run_timeout"] = TIME_LIMIT_S
        body = {"dataset": "peers", "id": case["number"], "completion": fenced(case), "config": config}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/submit", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=START_S) as response:
            return json.load(response)["accepted"]

    return is_accepted


def started(checkout: Path) -> str:
    """Start the server of a checkout; return its address."""
    module_file("sandbox-fusion", checkout)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "uvicorn", "sandbox.server.server:app", "--port", str(port)]
    process = subprocess.Popen(words, cwd=checkout, stdout=sys.stderr)
    atexit.register(process.kill)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/v1/ping", timeout=1).close()
            return url
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"{checkout}: its server does not respond")


GRADERS: dict[str, Callable[[Path, str], Grader]] = {
    "livecodebench": livecodebench,
    "verl": verl,
    "open-r1": open_r1,
    "sandbox-fusion": sandbox_fusion,
    "prime-rl": prime_rl,
}


def main() -> None:
    name, where, server = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # graders print
    is_accepted = GRADERS[name](Path(where), server)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps([bool(is_accepted(case)) for case in json.loads(line)]), file=answers, flush=True)


if __name__ == "__main__":
    main()
