"""Our judge beside the graders of other projects, for a reader who has checkouts of them.

    python benchmarks/peers.py --livecodebench PATH --verl PATH --open-r1 PATH --sandbox-fusion URL_OR_PATH
                               [--prime-rl PATH] [--piston URL] [--quick] [--json FILE]

The same programs and cases go to our judge, with one worker, and to each grader, one program at a time. Answers are
compared first, on programs of every kind, and on those of LiveCodeBench's samples where AUTOCLAVE_DATA has them. Then,
in turn, programs that pass all 15 tests of a problem: `_over_ours` is what a grader takes per test over ours, in CPU
time of all its processes and in wall-clock time. CPU of a server that is elsewhere is not known and left out.

A grader runs with the interpreter of its checkout (`PATH/.venv/bin/python`), else with this one; it is imported from
there, and nothing of it is here (`peer_graders.py`). open-r1 needs a Piston server: without --piston it gets ours, so
that its column shows what its protocol adds. Training beside TRL is `trainers.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from harness import argument_parser, compare, finish, print_environment, sized
from peer_graders import CALLS, MODULES, Case, module_file

from autoclave.core import CallCase, CallTests, Problem, StdinCase, StdinTests
from judge import Measure, _below, _cpu_s_of, judging, records
from service import served

NUM_TESTS = 15
RIGHT = {
    "stdin": "numbers = list(map(int, input().split()))\nprint(sum(numbers))\n",
    "call": "def total(numbers, start):\n    return start + sum(numbers)\n",
}
KINDS = {
    "right": RIGHT["stdin"],
    "padded": RIGHT["stdin"].replace("print(sum(numbers))", "print('', sum(numbers), '')"),
    "as_float": RIGHT["stdin"].replace("sum(numbers)", "float(sum(numbers))"),
    "wrong": "print(7)\n",
    "silent": "pass\n",
    "raises": "print(int(input().split()[0]) // 0)\n",
    "ends_early": RIGHT["stdin"] + "raise SystemExit(3)\n",
    "does_not_compile": "print(\n",
    "endless": "while True: pass\n",
}


def main() -> None:
    parser = argument_parser(__doc__ or "")
    for name in MODULES:
        parser.add_argument(f"--{name}", metavar="PATH", help=f"folder of a checkout of {name}")
    parser.add_argument("--piston", metavar="URL", help="Piston server for open-r1, without /api/v2")
    options = parser.parse_args()
    given = {name: where for name in MODULES if (where := getattr(options, name.replace("-", "_")))}
    for name, where in given.items():
        if not is_url(where):
            try:
                module_file(name, Path(where))
            except FileNotFoundError as error:
                parser.error(str(error))
    print_environment()
    print(f"left out, for want of a path: {', '.join(sorted(MODULES.keys() - given)) or 'none'}\n")
    num_programs, rounds = sized(options, (60, 5), (20, 3), (1, 1))
    figures: dict[str, float] = {}
    with judging(workers=1) as measure:
        for kind in RIGHT:
            figures[f"ours_{kind}_cpu_ms_per_test"] = Ours(measure).ms_per_test(right(kind, num_programs))[0]
        for name, where in given.items():
            with opened(name, where, options.piston) as peer:
                figures |= disagreements(name, Ours(measure), peer, list(compared(options)))
                for kind in RIGHT if name in CALLS else ("stdin",):
                    figures |= costs(name, kind, Ours(measure), peer, right(kind, num_programs), rounds)
    finish("peers", figures, options.json)


# --- Cases ---------------------------------------------------------------------------------------------------------


def sums(source: str, number: int = 0) -> Case:
    """Add three numbers, from standard input."""
    inputs = [f"{place} {number} 3\n" for place in range(NUM_TESTS)]
    return {"source": source, "inputs": inputs, "outputs": [f"{place + number + 3}\n" for place in range(NUM_TESTS)]}


def right(kind: str, count: int) -> list[Case]:
    """Return programs that pass."""
    if kind == "stdin":
        return [sums(RIGHT[kind], number) for number in range(count)]
    inputs = [f"[1, {place}]\n3" for place in range(NUM_TESTS)]
    tests = {"inputs": inputs, "outputs": [str(place + 4) for place in range(NUM_TESTS)], "fn_name": "total"}
    return [{"source": RIGHT[kind], **tests}] * count


def compared(options: argparse.Namespace) -> Iterator[Case]:
    """Yield what answers are compared on."""
    for kind, source in KINDS.items():
        if kind != "endless":
            yield sums(source)
        elif not options.tiny:  # with one test: some graders wait for each
            yield {"source": source, "inputs": ["1 2 3\n"], "outputs": ["6\n"]}
    folder = os.environ.get("AUTOCLAVE_DATA")
    if not folder:
        print("programs of LiveCodeBench are left out: AUTOCLAVE_DATA is not set")
        return
    for record in records(Path(folder, "lcb_stdin_samples_o1mini.jsonl.gz"))[: sized(options, None, 20, 1)]:
        inputs, outputs = ([test[name] for test in record["sample_tests"]] for name in ("input", "output"))
        yield {"source": record["code"], "inputs": inputs, "outputs": outputs}


# --- Sides ---------------------------------------------------------------------------------------------------------


class Ours:
    """A judge in this process, which has seen no program before: a comment makes each another one."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.cpu_s = measure.cpu_s

    def accepted(self, cases: Sequence[Case]) -> list[bool]:
        return [self._measure.verdicts(problem_of(case), [case["source"]])[0].is_accepted for case in cases]

    def ms_per_test(self, cases: Sequence[Case]) -> tuple[float, float]:
        """Return CPU and wall-clock milliseconds per test of programs that must be accepted."""
        before, started = self.cpu_s(), time.perf_counter()
        if not all(self.accepted(cases)):
            raise SystemExit(f"{type(self).__name__.lower()}: a right program is refused")
        wall_s = time.perf_counter() - started
        per_test = 1000 / NUM_TESTS / len(cases)
        return per_test * (self.cpu_s() - before), per_test * wall_s


class Peer(Ours):
    """A grader in a process of its own."""

    def __init__(self, name: str, where: str, server: str, *, server_pid: int | None) -> None:
        checkout = Path() if is_url(where) else Path(where).resolve()
        python = next((path for path in (checkout / ".venv/bin/python",) if path.is_file()), sys.executable)
        script, self._log = Path(__file__).with_name("peer_graders.py"), tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, script, name, checkout, server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._pids = [self._process.pid, *([server_pid] if server_pid else [])]
        self.has_far_server = bool(server) and not server_pid
        self._name = name
        self._answer()

    def cpu_s(self) -> float:
        return sum(_cpu_s_of(each) for pid in self._pids for each in (pid, *_below(pid)))

    def accepted(self, cases: Sequence[Case]) -> list[bool]:
        assert self._process.stdin
        numbered = [{**case, "number": number} for number, case in enumerate(cases)]
        print(json.dumps(numbered), file=self._process.stdin, flush=True)
        return json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout
        if line := self._process.stdout.readline():
            return line
        self._log.seek(0)
        last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        self.close()
        raise SystemExit(f"the grader of {self._name} has ended: {' '.join(last)}")

    def close(self) -> None:
        self._process.communicate()
        self._log.close()


@contextmanager
def opened(name: str, where: str, piston: str | None) -> Iterator[Peer]:
    """Start a grader, and for open-r1 a server if none is given."""
    with ExitStack() as stack:
        server, pid = where if is_url(where) else "", None
        if name == "open-r1" and piston:
            server = piston
        elif name == "open-r1":
            server, pid = stack.enter_context(served("judge.workers=1", "compatible.protocols=[piston]"))
        peer = Peer(name, where, server.rstrip("/"), server_pid=pid)
        stack.callback(peer.close)
        yield peer


def is_url(where: str) -> bool:
    return where.startswith(("http://", "https://"))


def problem_of(case: Case) -> Problem:
    if "fn_name" not in case:
        pairs = zip(case["inputs"], case["outputs"], strict=True)
        return Problem("", StdinTests("stdin", [StdinCase(*pair) for pair in pairs]), id="peers")
    pairs = zip(case["inputs"], case["outputs"], strict=True)
    cases = [CallCase([*map(json.loads, given.split("\n"))], json.loads(expected)) for given, expected in pairs]
    return Problem("", CallTests("call", case["fn_name"], cases), id="peers")


# --- Figures -------------------------------------------------------------------------------------------------------


def disagreements(name: str, ours: Ours, theirs: Peer, cases: Sequence[Case]) -> dict[str, float]:
    """Print answers by count, and the first program of each disagreement."""
    answers = list(zip(ours.accepted(cases), theirs.accepted(cases), strict=True))
    words = {True: "accepted", False: "refused"}
    print(f"{name}: {len(cases)} programs")
    for (own, other), count in sorted(Counter(answers).items(), key=lambda each: -each[1]):
        first = "" if own == other else f"   first: {cases[answers.index((own, other))]['source'][:50]!r}"
        print(f"  ours {words[own]:<9} theirs {words[other]:<9}{count:6}{first}")
    return {f"{name}_programs": len(cases), f"{name}_disagreements": sum(own != other for own, other in answers)}


def costs(name: str, kind: str, ours: Ours, theirs: Peer, cases: list[Case], rounds: int) -> dict[str, float]:
    spent: dict[Ours, list[tuple[float, float]]] = {ours: [], theirs: []}

    def cpu_ms(side: Ours) -> float:
        spent[side].append(side.ms_per_test(cases))
        return max(spent[side][-1][0], 1e-9)

    ratio = compare(lambda: cpu_ms(theirs), lambda: cpu_ms(ours), rounds=rounds)
    (own_cpu, own_wall), (cpu, wall) = (
        [median(each[place] for each in spent[side]) for place in (0, 1)] for side in (ours, theirs)
    )
    print(f"  {kind:<6} ms per test   CPU {cpu:8.2f} over ours {own_cpu:6.2f}: {ratio}")
    print(f"                       wall {wall:8.2f} over ours {own_wall:6.2f}: {wall / own_wall:6.3f}")
    figures: dict[str, Any] = {f"{name}_{kind}_wall_over_ours": wall / own_wall}
    return figures if theirs.has_far_server else figures | {f"{name}_{kind}_cpu_over_ours": ratio.median}


if __name__ == "__main__":
    main()
