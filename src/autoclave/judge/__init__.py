"""A program and the tests of a problem in, a verdict out. Imports `core`, `config` and `sandbox`; free of torch."""

from typing import TYPE_CHECKING

from autoclave.core.lazy import lazily

if TYPE_CHECKING:
    from autoclave.judge.environments import validate_languages
    from autoclave.judge.extraction import EXTRACTION_RULES
    from autoclave.judge.files import judge_file
    from autoclave.judge.final_answer import ANSWER_RULES
    from autoclave.judge.interface import Judge, JudgeJob
    from autoclave.judge.local import LocalJudge
    from autoclave.judge.plain_run import NotebookCell, PlainRunner, RunOrder, RunResult, run_program
    from autoclave.judge.process import ProcessJudge
    from autoclave.judge.streaming import stream
    from autoclave.judge.trace_files import trace_file
else:
    __getattr__ = lazily(
        __name__,
        {
            "environments": "validate_languages",
            "extraction": "EXTRACTION_RULES",
            "files": "judge_file",
            "final_answer": "ANSWER_RULES",
            "interface": "Judge JudgeJob",
            "local": "LocalJudge",
            "plain_run": "NotebookCell PlainRunner RunOrder RunResult run_program",
            "process": "ProcessJudge",
            "streaming": "stream",
            "trace_files": "trace_file",
        },
    )

__all__ = [
    "ANSWER_RULES",
    "EXTRACTION_RULES",
    "Judge",
    "JudgeJob",
    "LocalJudge",
    "NotebookCell",
    "PlainRunner",
    "ProcessJudge",
    "RunOrder",
    "RunResult",
    "judge_file",
    "run_program",
    "stream",
    "trace_file",
    "validate_languages",
]
