"""A program that uses Autoclave as a library. It is run and type-checked where only the wheel is installed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from autoclave.config import GrpoConfig, JudgeConfig, Override, SandboxConfig, TrainConfig, load, parse_override
from autoclave.config.recipe import find_recipe
from autoclave.core import Problem, Program, StdinCase, StdinTests, Verdict
from autoclave.judge import Judge, JudgeJob, LocalJudge, stream

ADD = Problem(
    id="add",
    statement="Read two integers from one line and print their sum.",
    tests=StdinTests("stdin", [StdinCase("3 4\n", "7\n"), StdinCase("-5 5\n", "0\n")]),
)


def judged(judge: Judge, sources: Iterable[str]) -> list[Verdict]:
    jobs = (JudgeJob(ADD, Program(source)) for source in sources)
    return [verdict for _, verdict in stream(judge, jobs)]


def rewards() -> list[float | None]:
    with LocalJudge(SandboxConfig(minimum_level="restricted"), JudgeConfig(workers=1)) as judge:
        return [verdict.reward for verdict in judged(judge, ["print(sum(map(int, input().split())))", "print(7)"])]


def settings() -> tuple[TrainConfig, str]:
    found = load(TrainConfig, find_recipe("demo"), [parse_override("steps=3"), Override("seed", 7, "here")])
    config: TrainConfig = found.config.model_copy(update={"algorithm": GrpoConfig()})
    return config, found.origin("seed")


def acted(root: Path) -> tuple[str, str]:
    """Write a file by an action and undo it; the text after each. Needs the extra `runtime`."""
    from autoclave.runtime.opening import open_session
    from autoclave.runtime.policy import Grant

    note = root / "note.txt"
    note.write_text("before", encoding="utf-8")
    with open_session(root) as session:
        session.permissions.grant(Grant(resources=("files/**",), verbs=("*",)))
        proposal = session.propose({"do": "write", "path": "note.txt", "content": "after"}, by="consumer")
        session.run(proposal.action, proposal.plan.digest)
        written = note.read_text(encoding="utf-8")
        session.undo(proposal.action)
    return written, note.read_text(encoding="utf-8")


def main() -> int:
    config, origin = settings()
    sys.stdout.write(f"{rewards()} {config.steps} {config.seed} {config.algorithm.name} {origin}\n")
    if "act" not in sys.argv:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "home"
        root.mkdir()
        sys.stdout.write(" ".join(acted(root)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
