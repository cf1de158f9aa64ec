"""Rewards under overload: correct programs that unmodified clients of other sandboxes score below 1.

    python benchmarks/reward_safety.py [--quick] [--open-r1 FOLDER] [--json FILE]

`false_zeros`: eight trainers, each with 64 requests at a time, send correct programs, of which some are slow, and
endless ones (10 %) to one server with two slots. The verl client is that of its wheel, which is fetched into the cache
(with --tiny, the client of the `sandbox-fusion` package). With `--open-r1`, half of the trainers use `cf_scoring.py`
and `piston_client.py` of that folder, `src/open_r1/utils/competitive_programming` of a checkout. The measurement ends
with the last correct program. `small_tenant_p99_ratio`: the 99th percentile of the latency of one client's short
programs, one after the other, while a trainer of another client keeps 64 requests under way, over that without it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
from harness import argument_parser, finish, print_environment, sized

from autoclave.compose.service import open_store
from autoclave.core.files import cache_folder
from autoclave.service.tokens import Scope, create_token
from service import served

VERL = "verl==0.9.1"
TRAINERS, REQUESTS, SLOTS, TIMEOUT_S = 8, 64, 2, 10
KINDS = {
    "right": "a, b = map(int, input().split())\nprint(a + b)\n",
    "slow": "import time\na, b = map(int, input().split())\nwhile time.process_time() < 3: pass\nprint(a + b)\n",
    "endless": "while True: pass\n",
}
MIX = ("endless", "right", "right", "right", "right", "right", "right", "right", "right", "right")
PATIENCE_S = 900
SCOPES = frozenset({Scope.JUDGE, Scope.PROBLEMS_WRITE})
Score = tuple[str, float]
Trainer = Callable[[str, Sequence[str], Any], None]


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--open-r1", type=Path, metavar="FOLDER", help="score with the client in FOLDER, too")
    options = parser.parse_args()
    print_environment()
    if not options.tiny:
        verl_client()  # fetched before the processes of the trainers ask for it
    trainers: list[Trainer] = [package_trainer if options.tiny else verl_trainer]
    if options.open_r1:
        trainers.append(lambda url, kinds, scores: open_r1_trainer(options.open_r1, url, kinds, scores))
    num_trainers, num_programs = sized(options, (TRAINERS, REQUESTS), (4, 16), (1, 2))
    figures = overload([trainers[i % len(trainers)] for i in range(num_trainers)], num_programs)
    figures |= small_client(trainers[0], sized(options, 1000, 200, 2))
    finish("reward_safety", figures, options.json)


def overload(trainers: Sequence[Trainer], num_programs: int) -> dict[str, float]:
    kinds = [MIX[number % len(MIX)] for number in range(num_programs)]
    kinds = ["slow" if number % 32 == 2 else kind for number, kind in enumerate(kinds)]
    num_right = len(trainers) * sum(kind != "endless" for kind in kinds)
    scores: Any = CONTEXT.Queue()
    false_zeros = 0
    with server() as address_of:
        begun = time.monotonic()
        with running([(trainer, address_of(f"trainer{i}"), kinds) for i, trainer in enumerate(trainers)], scores):
            seen = 0
            while seen < num_right:
                kind, score = scores.get(timeout=PATIENCE_S)
                seen += kind != "endless"
                false_zeros += kind != "endless" and score < 1
        seconds = time.monotonic() - begun
    print(f"{num_right} correct programs scored in {seconds:.1f} s, of them below 1: {false_zeros}")
    return {"false_zeros": false_zeros, "correct_programs": num_right, "seconds_to_last_correct_program": seconds}


def small_client(trainer: Trainer, count: int) -> dict[str, float]:
    with server() as address_of:
        small = address_of("small")
        latencies(small, count // 10)
        alone = latencies(small, count)
        flood = [(trainer, address_of("flood"), [*MIX] * 200)]
        with running(flood, CONTEXT.Queue()):
            time.sleep(3)
            under = latencies(small, count)
    p99 = [float(np.percentile(each, 99)) for each in (alone, under)]
    print(f"latency of a small client: p99 {1000 * p99[0]:.0f} ms, under a flood {1000 * p99[1]:.0f} ms")
    return {"small_tenant_p99_ratio": p99[1] / p99[0], "small_tenant_p99_s": p99[0]}


def latencies(url: str, count: int) -> list[float]:
    """Seconds for each of so many programs, one after the other."""
    found: list[float] = []
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        for number in range(count):
            begun = time.perf_counter()
            body = {"code": KINDS["right"], "language": "python", "stdin": f"{number} 1\n"}
            assert client.post("/run_code", json=body).json()["run_result"]["stdout"] == f"{number + 1}\n"
            found.append(time.perf_counter() - begun)
    return found


@contextmanager
def server() -> Iterator[Callable[[str], str]]:
    """A server with two slots; the function returns its address with a new token."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store.sqlite"
        protocols = "compatible.protocols=[sandbox_fusion,piston]"
        with served(f"store={store}", f"judge.workers={SLOTS}", "judge.time_limit_range=[1,12]", protocols) as (url, _):

            def address_of(label: str) -> str:
                text, record = create_token(label, SCOPES, time.time(), None)
                opened = open_store(store)
                opened.add_token(record)
                opened.close()
                return url.replace("://", f"://any:{text}@")

            yield address_of


CONTEXT = multiprocessing.get_context("fork")


@contextmanager
def running(trainers: Sequence[tuple[Trainer, str, Sequence[str]]], scores: Any) -> Iterator[None]:
    """Trainers in processes of their own."""
    processes = [CONTEXT.Process(target=trainer, args=(url, kinds, scores)) for trainer, url, kinds in trainers]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


# --- Clients -------------------------------------------------------------------------------------------------------


def in_threads(score: Callable[[str, str], float], kinds: Sequence[str], scores: Any) -> None:
    """Score each program on a test of its own, 64 at a time."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        for number, kind in enumerate(kinds):
            pool.submit(lambda number=number, kind=kind: scores.put((kind, score(KINDS[kind], str(number)))))


def verl_trainer(url: str, kinds: Sequence[str], scores: Any) -> None:
    """Score with verl's `compute_score`."""
    logging.disable()
    compute_score, semaphore = verl_client().compute_score, threading.Semaphore(REQUESTS)

    def score(source: str, number: str) -> float:
        tests = {"inputs": [f"{number} 1\n"], "outputs": [f"{int(number) + 1}\n"]}
        return compute_score(f"{url}/run_code", semaphore, 1024, f"```python\n{source}```", tests, timeout=TIMEOUT_S)[0]

    in_threads(score, kinds, scores)


def verl_client() -> ModuleType:
    """`verl.utils.reward_score.sandbox_fusion`, without the rest of verl, which is large."""
    target = cache_folder() / VERL
    if not target.exists():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), VERL]
        subprocess.run(words, check=True)
    folder = target / "verl/utils/reward_score/sandbox_fusion"
    spec = importlib.util.spec_from_file_location("verl_client", folder / "__init__.py")
    assert spec
    assert spec.loader
    module = sys.modules["verl_client"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_r1_trainer(folder: Path, url: str, kinds: Sequence[str], scores: Any) -> None:
    """Score with open-r1's `score_submission`: a third of the problems with a checker, a third with files."""
    package = sys.modules["open_r1_client"] = ModuleType("open_r1_client")
    package.__path__ = [str(folder)]
    piston, scoring = (importlib.import_module(f"open_r1_client.{name}") for name in ("piston_client", "cf_scoring"))

    async def score_all() -> None:
        client = piston.PistonClient(f"{url}/api/v2", max_requests_per_endpoint=REQUESTS)

        async def score(kind: str, number: int) -> None:
            source, mode = KINDS[kind], ("stdio", "file", "stdio")[number % 3]
            if mode == "file":
                source = "import sys\nsys.stdin, sys.stdout = open('input.txt'), open('output.txt', 'w')\n" + source
            problem = {
                "official_tests": [{"input": f"{number} 1\n", "output": f"{number + 1}\n"}],
                "generated_checker": CHECKER if number % 3 == 2 else None,
                "time_limit": float(TIMEOUT_S),
                "memory_limit": 256.0,
                "input_mode": mode,
            }
            given = await scoring.score_submission(
                client, problem, source, scoring_mode="pass_fail", submission_language="python"
            )
            scores.put((kind, given))

        await asyncio.gather(*(score(kind, number) for number, kind in enumerate(kinds)))
        await client.session.close()

    asyncio.run(score_all())


CHECKER = """
import sys
given, correct, printed = (open(path).read().split() for path in sys.argv[1:4])
print(int(correct == printed))
"""


def package_trainer(url: str, kinds: Sequence[str], scores: Any) -> None:
    """Score with the client of the `sandbox-fusion` package."""
    import sandbox_fusion

    def score(source: str, number: str) -> float:
        body: dict[str, Any] = {"code": source, "stdin": f"{number} 1\n", "language": "python"}
        result = sandbox_fusion.run_code(sandbox_fusion.RunCodeRequest(**body), endpoint=url)
        return float(bool(result.run_result) and result.run_result.stdout == f"{int(number) + 1}\n")

    in_threads(score, kinds, scores)


if __name__ == "__main__":
    main()
