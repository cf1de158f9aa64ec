"""What grading by a benchmark costs beside the bare judge: 164 problems in HumanEval's layout, 10 ready programs each.

    python benchmarks/evaluation.py [--quick] [--json FILE]

One side reads problems and responses from files, takes the programs out of them, grades, and writes result and page;
the other gives the same programs to a judge. Both make their judge, and alternate. The problems are HumanEval itself
where AUTOCLAVE_DATA names a folder that has it, with its solutions and changed ones; else functions of our own.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import arguments, compare, finish, print_environment, seconds, sized

from autoclave.compose.benchmark import definition_of, evaluate_benchmark
from autoclave.compose.host import build_judge
from autoclave.config import BenchmarkConfig, JudgeConfig, Override, SandboxConfig, load
from autoclave.core import Program
from autoclave.judge import JudgeJob
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.readers import raw_files, read_rows

SAMPLES = 10


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = list(problems())[: sized(options, None, 30, 1)]
        write(folder / "problems.jsonl", rows)
        programs = [(row, program) for row in rows for program in variants(row)]
        said = [{"task_id": row["task_id"], "response": f"So:\n```python\n{code}\n```"} for row, code in programs]
        write(folder / "responses.jsonl", said)
        config = load(BenchmarkConfig, definition_of("humaneval"), overrides(folder)).config
        found = {
            row.problem.id: row.problem
            for row in read_rows("humaneval", "humaneval", raw_files(folder / "problems.jsonl", ()).rows())
            if isinstance(row, ProblemCandidate)
        }
        jobs = [JudgeJob(found[row["task_id"]], Program(code)) for row, code in programs]
        right: dict[str, int] = {}

        def graded() -> None:
            result = evaluate_benchmark(
                config,
                str(folder / "responses.jsonl"),
                out=folder / "out",
            )
            right["graded"] = sum(sample.is_right for sample in result.samples)

        def judged() -> None:
            with build_judge(JudgeConfig(), SandboxConfig()) as judge:
                verdicts = [future.result() for future in [judge.submit(job) for job in jobs]]
            right["judged"] = sum(verdict.is_accepted for verdict in verdicts)

        times: list[float] = []

        def grading_time() -> float:
            times.append(seconds(graded))
            return times[-1]

        ratio = compare(lambda: seconds(judged), grading_time, rounds=sized(options, 5, 3, 1))
    if right["graded"] != right["judged"]:
        raise SystemExit(f"grades differ from verdicts: {right}")
    print(f"grading rate / rate of the judge   {ratio}")
    figures: dict[str, Any] = {
        "problems": len(rows),
        "programs": len(programs),
        "right": right["graded"],
        "grading_rate_ratio": ratio.median,
        "programs_per_s_graded": len(programs) / sorted(times)[len(times) // 2],
    }
    finish("evaluation", figures, options.json)


def overrides(folder: Path) -> list[Override]:
    settings: dict[str, Any] = {"source.path": str(folder / "problems.jsonl"), "source.hub": "", "time_limit_s": None}
    return [Override(path, value, "benchmark") for path, value in settings.items()]


def problems() -> Iterator[dict[str, Any]]:
    """HumanEval, or as many functions of our own."""
    real = Path(os.environ.get("AUTOCLAVE_DATA", "."), "humaneval.jsonl.gz")
    if real.is_file():
        print(f"problems: {real.name}")
        with gzip.open(real, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)
        return
    print("problems: functions of our own")
    for number in range(164):
        yield {
            "task_id": f"HumanEval/{number}",
            "prompt": f"def add(values):\n    '''The sum of the values and {number}.'''\n",
            "entry_point": "add",
            "canonical_solution": f"    return sum(values) + {number}\n",
            "test": f"def check(candidate):\n    for n in range(8):\n"
            f"        assert candidate([n, 2]) == n + 2 + {number}\n",
        }


def variants(row: dict[str, Any]) -> Iterator[str]:
    """Programs, all different: every other one returns nothing."""
    whole = row["prompt"] + row["canonical_solution"]
    for place in range(SAMPLES):
        wrong = f"\n\ndef {row['entry_point']}(*arguments):\n    return None\n" if place % 2 else ""
        yield f"{whole}{wrong}\n# {place}"


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
