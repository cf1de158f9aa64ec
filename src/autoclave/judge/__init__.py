"""A program and the tests of a problem in, a verdict out. Imports `core`, `config` and `sandbox`; free of torch."""

from typing import TYPE_CHECKING

from autoclave.core.lazy import lazily

if TYPE_CHECKING:
    from autoclave.judge.environments import validate_languages as validate_languages
    from autoclave.judge.extraction import EXTRACTION_RULES as EXTRACTION_RULES
    from autoclave.judge.files import judge_file as judge_file
    from autoclave.judge.final_answer import ANSWER_RULES as ANSWER_RULES
    from autoclave.judge.interface import Judge as Judge
    from autoclave.judge.interface import JudgeJob as JudgeJob
    from autoclave.judge.local import LocalJudge as LocalJudge
    from autoclave.judge.plain_run import NotebookCell as NotebookCell
    from autoclave.judge.plain_run import PlainRunner as PlainRunner
    from autoclave.judge.plain_run import RunOrder as RunOrder
    from autoclave.judge.plain_run import RunResult as RunResult
    from autoclave.judge.plain_run import run_program as run_program
    from autoclave.judge.process import ProcessJudge as ProcessJudge
    from autoclave.judge.streaming import stream as stream
    from autoclave.judge.trace_files import trace_file as trace_file
    from autoclave.sandbox import used_by_thread as used_by_thread

__getattr__ = lazily(__name__)
