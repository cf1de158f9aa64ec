"""What it costs to have programs judged by a server: throughput against the local judge, latency, and bytes sent.

    python benchmarks/service.py [--quick] [--overload] [--json FILE]

Server, client and the judge beside them share this machine. Throughput: the same programs in turn, with as many workers
each as there are cores; once programs that pass all tests, once a mix as a policy writes it: right, wrong, that raise,
and endless. Latency: one program after another. Concurrency: more than a hundred cells at once in one
server, programs of all kinds, each verdict checked. Bytes: an iteration of 1024 problems with 8 programs each through a
proxy that counts, when problems are stored; the tests that a client without digests sends as well are counted as JSON
text, once per program. Overload: ten times as many programs are offered as can be judged, by clients that have a core
of their own, as if they were elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import httpx
import numpy as np
from harness import Comparison, argument_parser, compare, finish, on_cores, print_environment, sized

from autoclave.config import RemoteJudgeConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Problem, Program, StdinCase, StdinTests, Verdict
from autoclave.judge import Judge, JudgeJob, LocalJudge
from autoclave.service.client import RemoteJudge

NUM_TESTS = 15
CORES = len(os.sched_getaffinity(0))
*SERVERS_CORES, CLIENTS_CORE = sorted(os.sched_getaffinity(0))
CONCURRENT = 128
GROUP = 8
UNANSWERED = 256
"""Groups that overloading clients have under way at a time."""
SUM = "print(sum(map(int, input().split())))"
KINDS = {
    "accepted": SUM,
    "wrong_answer": "print(sum(map(int, input().split())) + 1)",
    "runtime_error": "raise SystemExit(3)",
    "time_limit": "while True: pass",
    "memory_limit": "numbers = bytearray(1 << 30)",
    "output_limit": "while True: print('flood ' * 1000)",
}
MIX = ("accepted",) * 16 + ("wrong_answer",) * 16 + ("runtime_error",) * 7 + ("time_limit",)


def problem_of(number: int, num_tests: int, numbers: int) -> Problem:
    """Add so many numbers."""
    draw = random.Random(number)
    inputs = [[draw.randrange(1000) for _ in range(numbers)] for _ in range(num_tests)]
    cases = [StdinCase(" ".join(map(str, each)) + "\n", f"{sum(each)}\n") for each in inputs]
    return Problem("Add.", StdinTests("stdin", cases), id=f"sum-{number}", time_limit_s=1.0, memory_limit_mb=256)


class Sources:
    """Programs that no judge has seen: a comment keeps verdicts from being remembered."""

    def __init__(self) -> None:
        self._count = 0

    def jobs(self, problems: Sequence[Problem], source: str, per_problem: int) -> list[JudgeJob]:
        found: list[JudgeJob] = []
        for problem in problems:
            for _ in range(per_problem):
                self._count += 1
                found.append(JudgeJob(problem, Program(f"{source}\n# {self._count}\n")))
        return found


def judged(judge: Judge, jobs: Sequence[JudgeJob]) -> list[Verdict]:
    return [future.result() for future in [judge.submit(job) for job in jobs]]


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--overload", action="store_true", help="the part on overload alone")
    options = parser.parse_args()
    print_environment()
    figures = {} if options.overload else without_overload(options)
    limits = ("admission.queue_limit=200", "admission.client_queue_limit=200")
    apart = on_cores(SERVERS_CORES or [CLIENTS_CORE]), on_cores([CLIENTS_CORE])
    with apart[0], served(*limits) as (url, pid), apart[1]:
        figures |= overload(url, pid, sized(options, 60.0, 8.0, 0.5), is_tiny=options.tiny)
    finish("service", figures, options.json)


def without_overload(options: argparse.Namespace) -> dict[str, float]:
    sources = Sources()
    with served(f"judge.workers={CORES}") as (url, _), remote(url) as far, local() as near:
        figures = throughput(near, far, sources, *sized(options, (200, 9), (40, 3), (2, 1)))
        figures |= mixed_throughput(near, far, sources, *sized(options, (200, 5), (40, 3), (len(MIX) - 1, 1)))
        figures |= latency(near, far, sources, sized(options, 300, 30, 1))
        figures |= wire(url, sources, *sized(options, (1024, 8), (64, 8), (1, 2)))
    cells = sized(options, CONCURRENT, CONCURRENT, 8)
    with served(f"judge.workers={cells}", "judge.time_limit_range=[1,12]") as (url, _), remote(url) as far:
        kinds = list(MIX[::16]) if options.tiny else list(KINDS)  # those that reach no limit
        figures |= concurrency(far, sources, cells, sized(options, 4, 1, 1), kinds)
    return figures


@contextmanager
def served(*settings: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; its address and process id."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "autoclave", "serve", "port=0", "store=store.sqlite", *settings]
        log = Path(folder, "log")
        with log.open("w") as errors:
            process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout
        try:
            line = process.stdout.readline()
            if not line.startswith("Serving at "):
                raise SystemExit(f"the server does not start: {log.read_text()}")
            yield line.removeprefix("Serving at ").strip(), process.pid
        finally:
            process.terminate()
            process.communicate()


def remote(url: str) -> RemoteJudge:
    return RemoteJudge(RemoteJudgeConfig(urls=(url,)))


def local() -> LocalJudge:
    return LocalJudge(SandboxConfig(), JudgeConfig(workers=CORES))


def throughput(near: Judge, far: Judge, sources: Sources, num_programs: int, rounds: int) -> dict[str, float]:
    """Programs of 15 tests per second, remote over local."""
    found, per_s = throughputs(near, far, sources, ("accepted",) * num_programs, rounds)
    print(f"throughput of the server / local        {found}")
    return {
        "throughput_ratio_vs_local": found.median,
        "programs_per_s_local": per_s[0],
        "programs_per_s_remote": per_s[1],
    }


def mixed_throughput(near: Judge, far: Judge, sources: Sources, num_programs: int, rounds: int) -> dict[str, float]:
    """The same of a mix of programs, most of which end at their first test."""
    found, per_s = throughputs(near, far, sources, (MIX * -(-num_programs // len(MIX)))[:num_programs], rounds)
    print(f"  of a mix of programs                  {found}")
    return {
        "mixed_throughput_ratio_vs_local": found.median,
        "mixed_programs_per_s_local": per_s[0],
        "mixed_programs_per_s_remote": per_s[1],
    }


def throughputs(
    near: Judge, far: Judge, sources: Sources, kinds: Sequence[str], rounds: int
) -> tuple[Comparison, tuple[float, float]]:
    """Remote over local, and what both judged per second."""
    kinds = random.Random(0).sample(kinds, len(kinds))
    problems = [problem_of(0, NUM_TESTS, 3)]

    def time_of(judge: Judge) -> Callable[[], float]:
        def once() -> float:
            jobs = [job for kind in kinds for job in sources.jobs(problems, KINDS[kind], 1)]
            started = time.perf_counter()
            verdicts = judged(judge, jobs)
            time_s = time.perf_counter() - started
            check(verdicts, kinds)
            times[judge].append(time_s)
            return time_s

        return once

    times: dict[Judge, list[float]] = {near: [], far: []}
    found = compare(time_of(near), time_of(far), rounds=rounds)
    return found, (len(kinds) / median(times[near]), len(kinds) / median(times[far]))


def latency(near: Judge, far: Judge, sources: Sources, num_programs: int) -> dict[str, float]:
    """Milliseconds from submission to verdict of a program with one test, one at a time, remote less local."""
    problems = [problem_of(1, 1, 3)]
    times: dict[str, list[float]] = {"local": [], "remote": []}
    for _ in range(num_programs):
        for name, judge in (("local", near), ("remote", far)):
            jobs = sources.jobs(problems, SUM, 1)
            started = time.perf_counter()
            check(judged(judge, jobs), ["accepted"])
            times[name].append(1000 * (time.perf_counter() - started))
    local_ms, remote_ms = (np.percentile(each, (50, 99)) for each in times.values())
    return {
        "latency_local_p50_ms": float(local_ms[0]),
        "added_latency_p50_ms": float(remote_ms[0] - local_ms[0]),
        "added_latency_p99_ms": float(remote_ms[1] - local_ms[1]),
    }


def concurrency(far: Judge, sources: Sources, cells: int, rounds: int, kinds: Sequence[str]) -> dict[str, float]:
    """Many cells at once, and not one verdict that is not what it should be."""
    problems = [problem_of(number, 1, 3) for number in range(cells // 8)]
    expected = [kind for kind in kinds for _ in range(rounds * len(problems))]
    jobs = [job for kind in kinds for job in sources.jobs(problems, KINDS[kind], rounds)]
    order = random.Random(0).sample(range(len(jobs)), len(jobs))
    started = time.perf_counter()
    verdicts = judged(far, [jobs[place] for place in order])
    time_s = time.perf_counter() - started
    check(verdicts, [expected[place] for place in order])
    print(f"{cells} cells at once: {len(jobs)} verdicts in {time_s:.1f} s, {dict(Counter(expected))}, none wrong")
    return {"concurrent_cells": cells, "concurrent_jobs": len(jobs), "wrong_verdicts": 0}


def overload(url: str, pid: int, time_s: float, *, is_tiny: bool = False) -> dict[str, float]:
    """Verdicts per second when ten times as many programs are offered as can be judged, over those at full load.

    Clients send groups of eight at a steady rate, whatever the server says, and do not wait for verdicts. At most
    `UNANSWERED` groups are under way at a time, those at the end are not waited for, and what was sent is printed.
    """
    with httpx.Client(base_url=url, trust_env=False) as client:
        problem = problem_of(2, 1, 3)
        reply = client.post("/v1/problems", content=json.dumps(problem.to_json())).raise_for_status()
        digest = reply.json()["problems"][0]["digest"]

    async def descriptor(per_s: float, time_s: float) -> Counter[int]:
        """The statuses of the answers."""
        limits = httpx.Limits(max_connections=32)
        answers = Counter[int]()

        def note(task: asyncio.Task[int]) -> None:
            tasks.discard(task)
            if not task.cancelled():
                answers[task.result()] += 1

        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=None, limits=limits) as client:
            started, tasks, number = time.monotonic(), set[asyncio.Task[int]](), 0
            while (now := time.monotonic() - started) < time_s:
                for _ in range(min(int(now * per_s / GROUP) - number, UNANSWERED - len(tasks))):
                    number += 1
                    tasks.add(task := asyncio.create_task(send(client, number)))
                    task.add_done_callback(note)
                await asyncio.sleep(0.005)
            for task in [*tasks]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return answers

    async def send(client: httpx.AsyncClient, number: int) -> int:
        sources = [f"{SUM}  # {time.monotonic_ns()} {number} {place}" for place in range(GROUP)]
        body = {"jobs": [{"problem": digest, "source": source} for source in sources]}
        return (await client.post("/v1/batches", json=body)).status_code

    def num_judged() -> int:
        text = httpx.get(f"{url}/v1/metrics", trust_env=False).text
        return sum(
            int(float(line.split()[1])) for line in text.splitlines() if line.startswith("autoclave_verdicts_total")
        )

    def judged_per_s(per_s: float) -> tuple[float, Counter[int]]:
        before, started = num_judged(), time.monotonic()
        answers = asyncio.run(descriptor(per_s, time_s))
        return (num_judged() - before) / (time.monotonic() - started), answers

    judged_per_s(100)  # warm up, and fill the queue
    capacity, _ = judged_per_s(400)
    peak = max(1.0, judged_per_s(1.3 * capacity)[0])
    before_mb = memory_mb(pid)
    goodput, answers = judged_per_s(10 * peak)
    sent_per_s = GROUP * answers.total() / time_s
    print(f"to be offered {10 * peak:.0f} programs per second, sent {sent_per_s:.0f}: answers {dict(answers)}")
    if set(answers) != {202, 429} and not is_tiny:  # so short a time may end before anything is refused
        raise SystemExit(f"expected 202 and 429 alone: {answers}")
    return {
        "peak_programs_per_s": peak,
        "overload_goodput_ratio": goodput / peak,
        "overload_sent_ratio": sent_per_s / peak,
        "overload_refused_share": answers[429] / max(1, answers.total()),
        "overload_memory_growth_mb": memory_mb(pid) - before_mb,
        "overload_memory_mb": memory_mb(pid),
    }


def memory_mb(pid: int) -> float:
    """What a process alone has of memory, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def wire(url: str, sources: Sources, num_problems: int, per_problem: int) -> dict[str, float]:
    """Bytes of one iteration in both directions, after one in which the problems were uploaded."""
    problems = [problem_of(100 + number, NUM_TESTS, 1000) for number in range(num_problems)]
    wrong = "print('no')"  # ends at the first test: bytes are counted, not time
    with counted(url) as (address, count), remote(address) as far:
        check(judged(far, sources.jobs(problems, wrong, 1)), ["wrong_answer"] * num_problems)
        first = count()
        jobs = sources.jobs(problems, wrong, per_problem)
        check(judged(far, jobs), ["wrong_answer"] * len(jobs))
        by_digest = count() - first
    tests = per_problem * sum(len(json.dumps(problem.to_json()["tests"])) for problem in problems)
    return {
        "wire_programs": len(jobs),
        "wire_tests_per_problem_kb": tests / len(jobs) / 1024,
        "wire_upload_once_mb": first / 2**20,
        "wire_by_digest_mb": by_digest / 2**20,
        "wire_with_tests_each_time_mb": (by_digest + tests) / 2**20,
        "wire_ratio": (by_digest + tests) / by_digest,
    }


@contextmanager
def counted(url: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """A proxy before a server: its address, and the bytes that went through it so far."""
    host, _, port = url.removeprefix("http://").partition(":")
    passed = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal passed
        with suppress(ConnectionError):
            while part := await reader.read(1 << 16):
                passed += len(part)
                writer.write(part)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection(host, int(port))
        await asyncio.gather(relay(reader, questions), relay(answers, writer))

    async def serve() -> None:
        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            address.set_result(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await asyncio.to_thread(ended.wait)
            await asyncio.sleep(0.1)  # the client hung up: what is left of connections ends

    address: Future[str] = Future()
    ended = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield address.result(), lambda: passed
    finally:
        ended.set()
        thread.join()


def check(verdicts: Sequence[Verdict], expected: Sequence[str]) -> None:
    """End with the first verdict that is not as expected."""
    for verdict, status in zip(verdicts, expected, strict=True):
        if verdict.status != status:
            raise SystemExit(f"expected {status}: {verdict}")


if __name__ == "__main__":
    main()
