"""What imports and small commands cost in CPU time, over `python -c "import pydantic"`; bytecode is cached.

A cost is that of a fresh process with all that it starts, user and system time: the start of the interpreter, and the
cells of `autoclave judge`. `import_over_pydantic` is `import autoclave.judge`, which loads its modules as their names
are first used; `local_judge_over_pydantic` loads the local judge, `train_config_over_pydantic` settings of training.
`cli_over_pydantic` is the dearest of the help, the help of `autoclave judge`, and `autoclave judge` on a right program.

Usage: python benchmarks/imports.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness import arguments, compare, finish, print_environment, sized

CLI = "from autoclave.cli import main; main()"
COMMANDS: dict[str, Sequence[str]] = {
    "import_over_pydantic": ("import autoclave.judge",),
    "judge_protocol_over_pydantic": ("from autoclave.judge import Judge, JudgeJob",),
    "local_judge_over_pydantic": ("from autoclave.judge import LocalJudge",),
    "train_config_over_pydantic": ("from autoclave.config import TrainConfig",),
    "help_over_pydantic": (CLI, "--help"),
    "judge_help_over_pydantic": (CLI, "judge", "--help"),
    "judge_over_pydantic": (CLI, "judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl"),
}
OF_CLI = ("help_over_pydantic", "judge_help_over_pydantic", "judge_over_pydantic")
PROBLEM = {
    "format": "autoclave-problem/1",
    "id": "sum",
    "statement": "Add two numbers.",
    "tests": {"kind": "stdin", "cases": [{"input": "3 4\n", "output": "7\n"}]},
}
PROGRAM = {"problem_id": "sum", "source": "print(sum(map(int, input().split())))"}


def cpu_seconds(folder: str, *words: str) -> float:
    """Return the CPU seconds of `python -c WORDS...` in `folder`, with those of the processes that it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder, env=environment) as started:
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, command)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure every command in turn with the import of pydantic."""
    options = arguments(__doc__ or "")
    print_environment()
    rounds = sized(options, 31, 11, 1)
    figures: dict[str, float] = {}
    print(f"\n{'CPU over that of import pydantic':<60}{'median   [least .. most]':>24}")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("problems", PROBLEM), ("programs", PROGRAM)):
            Path(folder, f"{name}.jsonl").write_text(json.dumps(content) + "\n", encoding="utf-8")
        for name, words in COMMANDS.items():
            ours, theirs = partial(cpu_seconds, folder, *words), partial(cpu_seconds, folder, "import pydantic")
            found = compare(ours, theirs, rounds=rounds)
            print(f"{' '.join(words).replace(CLI, 'autoclave')[:60]:<60}{found}")
            figures[name] = found.median
    figures["cli_over_pydantic"] = max(figures[name] for name in OF_CLI)
    finish("imports", figures, options.json)


if __name__ == "__main__":
    main()
