"""What an import costs in CPU time, over `import pydantic`, each in a fresh interpreter with its bytecode cached.

`import_over_pydantic` is `import autoclave.judge`, which loads its modules as their names are first used. The others
load them: the protocol of a judge, the local judge, all settings of training, and the list of commands.

Usage: python benchmarks/imports.py
"""

from __future__ import annotations

import os
import subprocess
import sys

from harness import arguments, compare, finish, print_environment, sized

IMPORTS = {
    "import_over_pydantic": "import autoclave.judge",
    "judge_protocol_over_pydantic": "from autoclave.judge import Judge, JudgeJob",
    "local_judge_over_pydantic": "from autoclave.judge import LocalJudge",
    "train_config_over_pydantic": "from autoclave.config import TrainConfig",
    "help_over_pydantic": "from autoclave.cli.main import cli; cli(['--help'], standalone_mode=False)",
}


def cpu_seconds(code: str) -> float:
    """Return the CPU seconds of `code` in a new process, without those of starting the interpreter."""
    script = f"import sys, time; t = time.process_time()\n{code}\nprint(time.process_time() - t, file=sys.stderr)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return float(ended.stderr)


def main() -> None:
    """Measure every import in turn with pydantic."""
    options = arguments(__doc__ or "")
    print_environment()
    rounds = sized(options, 41, 11, 1)
    figures = {}
    print(f"\n{'CPU over that of import pydantic':<60}{'median   [least .. most]':>24}")
    for name, code in IMPORTS.items():
        found = compare(lambda code=code: cpu_seconds(code), lambda: cpu_seconds("import pydantic"), rounds=rounds)
        print(f"{code[:60]:<60}{found}")
        figures[name] = found.median
    finish("imports", figures, options.json)


if __name__ == "__main__":
    main()
