"""What a verdict costs: CPU per test against a naive fork and against starting an interpreter, and verdicts per second.

    python benchmarks/judge.py [--quick] [--json FILE]
    python benchmarks/judge.py --budget     where the CPU time of a test goes

All alternatives run the same two-line program on the same 15 tests, in turn, in one run of this file. The fork floor is
what a loop without any isolation pays: the base interpreter with the same modules imported forks, executes the compiled
program between two pipes, and exits. A new interpreter starts for each test, isolated from its user's settings,
and imports what LiveCodeBench's preamble imports. CPU counts everything: judge, zygote, cells, tests.

`cpu_ratio_vs_fork_floor` is of programs with 15 tests, `cpu_ratio_single_test` of programs with one;
`cpu_ratio_marginal` is of one more test in a cell: the slope between 15 and 150 tests. `assert_ms` is the CPU time of
an assert, 15 in a program; `call_over_unsealed` is a call test, 15 in a program, over a grader that forks for each
case, calls the function, compares the result, and exits. `scaling_2_workers` is how much faster two workers on two
cores are than one on one; `floor_scaling_2` is that of two loops of naive forks, which share nothing but the kernel
and the host's cores.

With AUTOCLAVE_DATA set, real programs of public benchmarks are judged as well.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import budget
from forks import floor_ms, floor_s, interpreter_ms, unsealed_calls_ms
from harness import Comparison, argument_parser, compare, finish, on_cores, print_environment, seconds, sized

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import (
    CallCase,
    CallTests,
    CheckTests,
    HostError,
    Problem,
    Program,
    StdinCase,
    StdinTests,
    Verdict,
)
from autoclave.integrations import Scorer
from autoclave.integrations.recorded import read_scored
from autoclave.integrations.rejudging import problem_finder, rejudge_rows
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.problems.readers.raw_files import raw_files
from autoclave.sandbox.pool import ZygotePool

NUM_TESTS = 15
SOURCE = "numbers = list(map(int, input().split()))\nprint(sum(numbers))\n"


def sum_problem(num_tests: int) -> Problem:
    """Add three numbers; so many tests."""
    cases = [StdinCase(f"{n} 2 3\n", f"{n + 5}\n") for n in range(num_tests)]
    return Problem(statement="Sum.", tests=StdinTests("stdin", cases), id=f"sum-{num_tests}")


STDIN = sum_problem(NUM_TESTS)
ASSERTS = Problem(
    statement="Scale.",
    tests=CheckTests(
        "check",
        "scale",
        "def check(candidate):\n"
        + "".join(f"    assert candidate([1, 2, {n}], 3) == [3, 6, {3 * n}]\n" for n in range(NUM_TESTS)),
        "check(candidate)",
    ),
    id="scale",
)
SCALE = "def scale(numbers, factor):\n    return [number * factor for number in numbers]\n"
CALLS = [([[1, 2, n], 3], [3, 6, 3 * n]) for n in range(NUM_TESTS)]
CPP = {
    "accepted": "#include <iostream>\nint main() { long a, b, c; std::cin >> a >> b >> c; std::cout << a + b + c; }\n",
    "wrong_answer": '#include <cstdio>\nint main() { puts("4"); }\n',
    "runtime_error": "#include <cstdlib>\nint main() { abort(); }\n",
    "compile_error": "int main() { return x; }\n",
    "time_limit": "int main() { for (volatile int i = 0;; i = i + 1) {} }\n",
    "memory_limit": "#include <cstring>\n#include <cstdlib>\n"
    "int main() { for (;;) memset(malloc(1 << 20), 1, 1 << 20); }\n",
    "output_limit": '#include <cstdio>\nint main() { for (;;) puts("flood"); }\n',
}


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--budget", action="store_true", help="only show where the CPU time of a test goes")
    options = parser.parse_args()
    print_environment()
    num_programs, rounds = sized(options, (60, 9), (20, 3), (1, 1))
    cores = os.sched_getaffinity(0)
    if options.budget:
        with on_cores({max(cores)}), judging(workers=1) as measure:
            return show_budget(measure, num_programs * NUM_TESTS)
    figures: dict[str, float] = {"first_verdict_ms": first_verdict_ms(), "idle_cell_mb": idle_cell_mb()}
    with on_cores({max(cores)}), judging(workers=1) as measure:  # one core: work is compared, not wake-ups across cores
        figures |= ratios(measure, num_programs * NUM_TESTS, rounds)
        interpreter = compare(
            lambda: interpreter_ms(SOURCE, sized(options, 8, 8, 1)),
            measure.repeatedly(STDIN, SOURCE, num_programs),
            rounds=sized(options, 3, 3, 1),
        )
        print(f"CPU of an interpreter / per stdin test  {interpreter}")
        figures |= {
            "speedup_vs_interpreter_per_test": interpreter.median,
            "assert_ms": measure.repeatedly(ASSERTS, SCALE, num_programs)(),
            "tests_per_s_one_core": tests_per_s(measure, STDIN, SOURCE, num_programs),
            "asserts_per_s_one_core": tests_per_s(measure, ASSERTS, SCALE, num_programs),
        }
        figures |= call_figures(measure, num_programs, rounds)
        if len(cores) > 1:
            figures |= scaling(measure, sorted(cores)[-2:], 2 * num_programs, rounds)
    with judging(workers=0) as measure:
        figures["tests_per_s"] = tests_per_s(measure, STDIN, SOURCE, 2 * num_programs)
        figures["asserts_per_s"] = tests_per_s(measure, ASSERTS, SCALE, 2 * num_programs)
        again = compare(
            lambda: judging_s(measure, 5 * num_programs), lambda: rejudging_s(measure, 5 * num_programs), rounds=rounds
        )
        print(f"rate of rejudging a dump of verl / judging  {again}")
        figures["rejudge_rate_ratio"] = again.median
        show_cpp(measure, list(CPP)[: sized(options, None, None, 1)])
        figures |= real_programs(measure, sized(options, None, None, 3))
    finish("judge", figures, options.json)


def ratios(measure: Measure, num_tests: int, rounds: int) -> dict[str, float]:
    """CPU per stdin test over the fork floor, for programs with one, 15 and 150 tests, measured in turn."""
    ways = {
        "floor": lambda: sum(floor_ms(SOURCE, num_tests)),
        **{size: measure.repeatedly(sum_problem(size), SOURCE, max(1, num_tests // size)) for size in (1, 15, 150)},
    }
    costs: list[dict[str | int, float]] = []
    for number in range(rounds):
        order = [*ways] if number % 2 == 0 else [*reversed(ways)]
        costs.append({way: ways[way]() for way in order})
    floor = [cost["floor"] for cost in costs]
    marginal = [(150 * cost[150] - 15 * cost[15]) / (150 - 15) for cost in costs]
    figures = {"cpu_ms_per_test": median(cost[15] for cost in costs), "fork_floor_ms": median(floor)}
    for name, ours in (
        ("cpu_ratio_vs_fork_floor", [cost[15] for cost in costs]),
        ("cpu_ratio_marginal", marginal),
        ("cpu_ratio_single_test", [cost[1] for cost in costs]),
    ):
        ratio = Comparison(tuple(one / other for one, other in zip(ours, floor, strict=True)))
        print(f"{name:<40}{ratio}")
        figures[name] = ratio.median
    return figures


def call_figures(measure: Measure, num_programs: int, rounds: int) -> dict[str, float]:
    """CPU of a call test, also over that of a grader that forks for each case and isolates nothing."""
    tests = CallTests("call", "scale", [CallCase(*case) for case in CALLS])
    calls = measure.repeatedly(Problem("Scale.", tests, id="scale-calls"), SCALE, num_programs)
    ratio = compare(calls, lambda: unsealed_calls_ms(SCALE, "scale", CALLS, num_programs), rounds=rounds)
    print(f"{'call_over_unsealed':<40}{ratio}")
    return {"call_over_unsealed": ratio.median, "cpu_ms_per_call": calls()}


def show_budget(measure: Measure, num_tests: int) -> None:
    """Where the CPU time of a test and of a program goes."""
    plain, writing = (
        budget.budget(measure, sum_problem, source, num_tests)
        for source in (SOURCE, f'open("file", "w").close()\n{SOURCE}')
    )
    parent_ms, child_ms = floor_ms(SOURCE, num_tests)
    scratch_us = writing[budget.FIRST_PROCESS] - plain[budget.FIRST_PROCESS]
    budget.show(plain, (parent_ms * 1000, child_ms * 1000), scratch_us)


def scaling(one: Measure, cores: Sequence[int], num_programs: int, rounds: int) -> dict[str, float]:
    """The rate of two workers on two cores over that of `one` worker, which is on one."""

    def one_s() -> float:
        with on_cores({cores[-1]}):
            return judging_s(one, num_programs)

    with on_cores(cores), judging(workers=2) as two:
        faster = compare(one_s, lambda: judging_s(two, num_programs), rounds=rounds)
    rounds_of_floor = 10 * num_programs
    floor = compare(
        lambda: floor_s(SOURCE, rounds_of_floor, cores[-1:]),
        lambda: floor_s(SOURCE, rounds_of_floor, cores),
        rounds=rounds,
    )
    figures = {"scaling_2_workers": faster.median, "floor_scaling_2": floor.median}
    figures["scaling_2_workers_over_floor"] = faster.median / floor.median
    print(f"{'scaling_2_workers':<40}{faster}")
    print(f"{'floor_scaling_2':<40}{floor}")
    return figures


class Measure:
    """A judge, and what it and all its processes use."""

    def __init__(self, judge: LocalJudge) -> None:
        self.judge = judge
        self._count = 0

    def verdicts(self, problem: Problem, sources: Sequence[str]) -> list[Verdict]:
        """Every program judged again: a comment keeps verdicts from being reused."""
        jobs = []
        for source in sources:
            self._count += 1
            comment = "//" if problem.language == "cpp" else "#"
            jobs.append(JudgeJob(problem, Program(f"{source}\n{comment} {self._count}\n", problem.language)))
        return [future.result() for future in [self.judge.submit(job) for job in jobs]]

    def accept(self, problem: Problem, source: str, num_programs: int) -> None:
        refused = [verdict for verdict in self.verdicts(problem, [source] * num_programs) if not verdict.is_accepted]
        if refused:
            raise SystemExit(f"not accepted: {refused[0]}")

    def repeatedly(self, problem: Problem, source: str, num_programs: int) -> Callable[[], float]:
        """CPU milliseconds per test, or per assert, as a function to be called again and again."""

        def cpu_ms() -> float:
            before = self.cpu_s()
            self.accept(problem, source, num_programs)
            num_tests = num_programs * (
                len(tests.cases) if isinstance(tests := problem.tests, StdinTests) else NUM_TESTS
            )
            return (self.cpu_s() - before) / num_tests * 1000

        return cpu_ms

    def cpu_s(self) -> float:
        """CPU seconds of this process and of all below it, once every cell that the judge has closed is gone.

        The kernel takes a cell down after its verdict is known, which is a good part of what it costs; until then that
        time is on no account.
        """
        for sandbox in self.judge._sandboxes:
            assert isinstance(sandbox, ZygotePool)
            for zygote in sandbox._idle:
                zygote.settle()
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_cpu_s_of, _below(os.getpid())))


@contextmanager
def judging(workers: int) -> Iterator[Measure]:
    """A warm judge."""
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=workers)) as judge:
        measure = Measure(judge)
        for problem, source in ((STDIN, SOURCE), (ASSERTS, SCALE)):
            measure.accept(problem, source, 8)
        yield measure


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _below(pid: int) -> list[int]:
    """The children of a process, and theirs: zygotes, and the cells of checks that stay open."""
    return [each for child in _children(pid) for each in (child, *_below(child))]


def _cpu_s_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def first_verdict_ms() -> float:
    """From nothing to the verdict of one program with one test."""
    problem = Problem(statement="Sum.", tests=StdinTests("stdin", [StdinCase("1 2 3\n", "6\n")]), id="one")
    started = time.perf_counter()
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=1)) as judge:
        judge.submit(JudgeJob(problem, Program(SOURCE))).result()
        return (time.perf_counter() - started) * 1000


def idle_cell_mb() -> float:
    """Memory of a warm zygote that waits for a program, shared pages split, in MiB."""
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=1)) as judge:
        judge.submit(JudgeJob(STDIN, Program(SOURCE))).result()
        rollups = [Path(f"/proc/{child}/smaps_rollup").read_text() for child in _children(os.getpid())]
    return sum(int(line.split()[1]) for text in rollups for line in text.splitlines() if line.startswith("Pss:")) / 1024


def tests_per_s(measure: Measure, problem: Problem, source: str, num_programs: int) -> float:
    """Tests, or asserts, per second of wall-clock time."""
    return num_programs * NUM_TESTS / seconds(lambda: measure.accept(problem, source, num_programs))


def judging_s(measure: Measure, num_programs: int) -> float:
    """Seconds of judging so many programs."""
    return seconds(lambda: measure.accept(STDIN, SOURCE, num_programs))


def rejudging_s(measure: Measure, num_programs: int) -> float:
    """Seconds of reading a dump of so many programs from a file, judging them and comparing the scores."""
    truth = STDIN.to_json()
    with tempfile.TemporaryDirectory() as folder, Scorer(judge=measure.judge) as scorer:
        rows = [
            {"step": 1, "input": f"Sum {number // 8}.", "output": f"```\n{SOURCE}# {time.time_ns()}\n```", "gts": truth}
            for number in range(num_programs)
        ]
        (Path(folder) / "1.jsonl").write_text("".join(json.dumps(row | {"score": 1.0}) + "\n" for row in rows))
        started = time.perf_counter()
        found = rejudge_rows(read_scored(raw_files(Path(folder))), problem_finder(None, None, None), scorer)
        if found.unchanged != num_programs:
            raise SystemExit(f"scores change: {found}")
        return time.perf_counter() - started


def show_cpp(measure: Measure, kinds: Sequence[str]) -> None:
    """The status of one C++ program of each kind."""
    problem = Problem(statement="Sum.", tests=STDIN.tests, id="sum-cpp", language="cpp")
    try:
        measure.judge.check(problem)
    except HostError as error:
        print(f"C++ is not measured: {error}")
        return
    for expected in kinds:
        verdict = measure.verdicts(problem, [CPP[expected]])[0]
        print(f"C++ {expected:<16}{verdict.status or verdict.fault!s:<16}{verdict.message}")


def real_programs(measure: Measure, most: int | None) -> dict[str, float]:
    """Programs of public benchmarks: CPU per program and test, judge and program together."""
    folder = os.environ.get("AUTOCLAVE_DATA")
    if not folder:
        print("Real programs are not measured: AUTOCLAVE_DATA is not set")
        return {}
    figures: dict[str, float] = {}
    for name, jobs in (("lcb_stdin", lcb_samples(Path(folder))), ("humaneval", human_eval(Path(folder)))):
        jobs = jobs[:most]
        before, started = measure.cpu_s(), time.perf_counter()
        verdicts = [future.result() for future in [measure.judge.submit(job) for job in jobs]]
        time_s = time.perf_counter() - started
        num_tests = sum(len(verdict.tests) for verdict in verdicts)
        num_accepted = sum(verdict.is_accepted for verdict in verdicts)
        print(f"{name}: {num_accepted} of {len(jobs)} programs accepted, {num_tests} tests")
        figures |= {
            f"{name}_cpu_ms_per_test": (measure.cpu_s() - before) / num_tests * 1000,
            f"{name}_programs_per_s": len(jobs) / time_s,
        }
    return figures


def lcb_samples(folder: Path) -> list[JudgeJob]:
    """Model programs for stdin problems with the samples of their statements; graded right on hidden tests."""
    jobs: list[JudgeJob] = []
    for record in records(folder / "lcb_stdin_samples_o1mini.jsonl.gz"):
        if record["graded"]:
            cases = [StdinCase(case["input"], case["output"]) for case in record["sample_tests"]]
            problem = Problem("", StdinTests("stdin", cases), id=record["question_id"])
            jobs.append(JudgeJob(problem, Program(record["code"])))
    return jobs


def human_eval(folder: Path) -> list[JudgeJob]:
    """Reference solutions with their checks."""
    jobs: list[JudgeJob] = []
    for record in records(folder / "humaneval.jsonl.gz"):
        name = record["entry_point"]
        preamble = record["prompt"].partition(f"def {name}(")[0]
        tests = CheckTests("check", name, record["test"], f"check({name})", preamble)
        program = Program(record["prompt"] + record["canonical_solution"])
        jobs.append(JudgeJob(Problem("", tests, id=record["task_id"], profile="plain"), program))
    return jobs


def records(path: Path) -> list[dict[str, Any]]:
    """The records of a data file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


if __name__ == "__main__":
    main()
