"""Growth of costs with size: stored problems, queued programs, rollouts of a step, and workers of a judge.

    python benchmarks/scale.py [--quick] [--only PART ...] [--json FILE]

Each part does the same work at three sizes. The growth exponent of a cost is the slope of log cost over log size: 1 is
linear, 2 quadratic, and a cost that does not grow has 0. It must be 1.1 at most. Costs are CPU seconds of this process
unless the line names another unit, so that other work of the machine hardly counts.

    problems   in the store of a server, and in a file: upload, memory, first verdict, upkeep, items of an iteration
    queue      of a server, in SQLite: batches of 64 programs of four clients are submitted, listed, claimed and ended
    rollouts   of a step, all of one length, on an engine and a trainer that compute nothing: collecting, learning,
               the files of run and checkpoint, and the page of `autoclave view`
    tokens     the same for 16 rollouts of growing length
    workers    of a judge, with four programs each: those that sleep let two cores stand for 64
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from harness import argument_parser, finish, print_environment, sized
from scale_rollouts import VERDICT, Costs, cpu, rollouts

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Program
from autoclave.core.json import to_plain
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.judge.files import ProblemIndex
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.store.records import Batch as StoredBatch
from autoclave.service.store.records import Bounds, JobSpec
from autoclave.service.store.sqlite import SqliteStore
from autoclave.training.learned import ShuffledItems
from judge import SOURCE, Measure, sum_problem
from service import memory_mb, problem_of

LIMIT = 1.1
"""Greatest exponent that counts as linear."""
AT_ONCE = 64
TOKENS = 32_768


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of log cost over log size."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-6)), 1)[0])


def main() -> None:
    parser = argument_parser(__doc__ or "")
    names = ("problems", "queue", "rollouts", "tokens", "workers")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names))
    options = parser.parse_args()
    print_environment()
    longest = sized(options, TOKENS, TOKENS // 8, 64)
    nap_s = sized(options, 1.0, 0.5, 0.01)
    parts: Mapping[str, tuple[Callable[[int], Costs], tuple[int, int, int]]] = {
        "problems": (
            partial(apart, problems),
            sized(options, (10_000, 100_000, 1_000_000), (2_000, 8_000, 32_000), (8, 16, 32)),
        ),
        "queue": (
            partial(apart, queue),
            sized(options, (1_000, 10_000, 100_000), (1_000, 4_000, 16_000), (8, 16, 32)),
        ),
        "rollouts": (lambda size: rollouts(size, longest), sized(options, (16, 64, 256), (16, 64, 256), (8, 16, 24))),
        "tokens": (lambda size: rollouts(16, size), (longest // 16, longest // 4, longest)),
        "workers": (lambda size: workers(size, nap_s), sized(options, (4, 16, 64), (4, 16, 64), (1, 2, 3))),
    }
    figures: Costs = {}
    for name in options.only:
        figures |= grown(name, *parts[name])
    finish("scale", figures, options.json)


def grown(part: str, measure: Callable[[int], Costs], sizes: tuple[int, int, int]) -> Costs:
    """Print the costs of a part, and return the exponent of each with its value at the largest size."""
    found = [measure(size) for size in sizes]
    print(f"\n{part:<24}" + "".join(f"{size:>14,}" for size in sizes) + "   exponent")
    figures: Costs = {}
    for name in found[0]:
        costs = [each[name] for each in found]
        slope = exponent(sizes, costs)
        print(f"  {name:<22}" + "".join(f"{cost:14.4g}" for cost in costs) + f"{slope:11.2f}{' !' * (slope > LIMIT)}")
        figures |= {f"{part}_{name}": costs[-1], f"{part}_{name}_exponent": slope}
    return figures


def apart(measure: Callable[[int], Costs], size: int) -> Costs:
    """Return what `measure` finds in a process of its own, whose memory has seen no other size."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(measure, size).result()


# --- Problems and queue --------------------------------------------------------------------------------------------


def problems(size: int) -> Costs:
    costs: Costs = {}
    with tempfile.TemporaryDirectory() as folder:
        path, lines = Path(folder, "store.sqlite"), Path(folder, "problems.jsonl")
        with closing(SqliteStore(path)) as store, lines.open("w", encoding="utf-8") as file:
            for start in range(0, size, AT_ONCE):
                made = [problem_of(number, 2, 3) for number in range(start, min(start + AT_ONCE, size))]
                with cpu(costs, "upload_s"):
                    store.put_problems(made)
                file.writelines(json.dumps(problem.to_json()) + "\n" for problem in made)
        before, last = memory_mb(os.getpid()), problem_of(size - 1, 2, 3)
        costs["first_verdict_wall_s"] = first_verdict_s(path, last.digest)
        with closing(SqliteStore(path)) as store:
            with cpu(costs, "page_of_list_s"):
                store.list_problems("", 100)
            with cpu(costs, "upkeep_s"):
                store.purge(0.0)
        costs["server_memory_mb"] = max(1.0, memory_mb(os.getpid()) - before)
        before = memory_mb(os.getpid())
        with cpu(costs, "file_first_problem_s"), ProblemIndex(lines) as index:
            assert index[last.id].digest == last.digest
            costs["file_memory_mb"] = max(1.0, memory_mb(os.getpid()) - before)
    items: Any = range(size)
    with cpu(costs, "items_of_iteration_s"):
        ShuffledItems(items, per_iteration=AT_ONCE, seed=0).at(0)
    return costs


def first_verdict_s(path: Path, digest: str) -> float:
    """Seconds from opening a store to the verdict of a program for one of its problems."""
    started = time.perf_counter()
    judge = LocalJudge(SandboxConfig(), JudgeConfig(workers=1))
    with closing(SqliteStore(path)) as store, judge:
        problem = ProblemCache(store, 512 << 20).get(JobSpec(digest, b""))
        assert problem
        assert judge.submit(JudgeJob(problem, Program(SOURCE))).result().is_accepted
        return time.perf_counter() - started


def queue(size: int) -> Costs:
    costs: Costs = {}
    verdict, spec, now = json.dumps(to_plain(VERDICT)), JobSpec("0" * 64, SOURCE.encode()), time.time()
    bounds = Bounds(2 * size, 2 * size)
    with tempfile.TemporaryDirectory() as folder, closing(SqliteStore(Path(folder, "store.sqlite"))) as store:
        batches = [f"batch-{number}" for number in range(-(-size // AT_ONCE))]
        for number, id in enumerate(batches):
            jobs = [(f"{id}-{place}", spec) for place in range(min(AT_ONCE, size - number * AT_ONCE))]
            with cpu(costs, "submit_s"):
                store.add_batch(StoredBatch(id, f"client-{number % 4}", id, "", 0, now, None, None), jobs, bounds)
        with cpu(costs, "list_s"):
            store.load()
            store.clients()
        with cpu(costs, "claim_and_end_s"):
            while claimed := store.claim(AT_ONCE, now):
                store.expire(now, verdict)
                store.finish([(job.id, verdict) for job in claimed])
        with cpu(costs, "read_verdicts_s"):
            assert sum(len(store.ended(id, 0)) for id in batches) == size
    return costs


# --- Workers -------------------------------------------------------------------------------------------------------


def workers(size: int, nap_s: float) -> Costs:
    """Costs of short programs, which contend for cores, and of sleeping ones, which do not."""
    costs: Costs = {}
    asleep = f"import time\ntime.sleep({nap_s})\n{SOURCE}"
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=size)) as judge:
        measure = Measure(judge)
        with cpu(costs, "start_s"):
            measure.accept(sum_problem(1), asleep, size)
        for name, source in (("short", SOURCE), ("asleep", asleep)):
            before, started = measure.cpu_s(), time.perf_counter()
            with cpu(costs, f"{name}_judge_s"):
                measure.accept(sum_problem(1), source, 4 * size)
            costs[f"{name}_wall_s"] = time.perf_counter() - started
            costs[f"{name}_cells_s"] = measure.cpu_s() - before - costs[f"{name}_judge_s"]
        costs["descriptors"] = len(os.listdir("/proc/self/fd"))
    return costs


if __name__ == "__main__":
    main()
