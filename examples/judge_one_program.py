"""Judge one program from Python: `python examples/judge_one_program.py`."""

from autoclave.core import Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge

PROBLEM = Problem(
    id="add",
    statement="Read two integers from one line and print their sum.",
    tests=StdinTests("stdin", [StdinCase("3 4\n", "7\n"), StdinCase("-5 5\n", "0\n")]),
)

if __name__ == "__main__":
    with LocalJudge() as judge:
        for source in ("print(sum(map(int, input().split())))", "print(7)"):
            verdict = judge.submit(JudgeJob(PROBLEM, Program(source))).result()
            print(f"{verdict.status:<14} reward {verdict.reward}  {verdict.message}")
