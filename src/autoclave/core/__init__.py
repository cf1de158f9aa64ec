"""The nouns, the errors, and atomic file I/O. Imports nothing of ours, and neither torch nor ray."""

from typing import TYPE_CHECKING

from autoclave.core.closing import Closing
from autoclave.core.errors import (
    AutoclaveError,
    CheckpointError,
    ConfigError,
    DataError,
    EngineFault,
    ExhaustedFault,
    FaultError,
    HostError,
    IncompleteError,
    InputError,
    IsolationError,
    JudgeFault,
    SandboxFault,
    StalledFault,
    WorkerDied,
    WorkerFault,
)
from autoclave.core.lazy import lazily

if TYPE_CHECKING:
    from autoclave.core.alignment_sample import AlignmentSample
    from autoclave.core.outcome import Ended, Outcome
    from autoclave.core.problem import (
        AnswerTests,
        CallCase,
        CallTests,
        CheckTests,
        CustomChecker,
        FloatChecker,
        Problem,
        StdinCase,
        StdinTests,
        StoredTests,
        Tests,
        read_problems,
    )
    from autoclave.core.program import Program, Submission, read_submissions
    from autoclave.core.rollout import Completion, FinishReason, Group, MaskReason, Reward, Rollout, TaskItem
    from autoclave.core.trace import MAIN_PROGRAM, Primitive, Trace, TraceStatus
    from autoclave.core.verdict import Fault, Status, TestResult, Verdict
else:
    __getattr__ = lazily(
        __name__,
        {
            "alignment_sample": "AlignmentSample",
            "outcome": "Ended Outcome",
            "problem": (
                "AnswerTests CallCase CallTests CheckTests CustomChecker FloatChecker Problem StdinCase StdinTests "
                "StoredTests Tests read_problems"
            ),
            "program": "Program Submission read_submissions",
            "rollout": "Completion FinishReason Group MaskReason Reward Rollout TaskItem",
            "trace": "MAIN_PROGRAM Primitive Trace TraceStatus",
            "verdict": "Fault Status TestResult Verdict",
        },
    )

__all__ = [
    "MAIN_PROGRAM",
    "AlignmentSample",
    "AnswerTests",
    "AutoclaveError",
    "CallCase",
    "CallTests",
    "CheckTests",
    "CheckpointError",
    "Closing",
    "Completion",
    "ConfigError",
    "CustomChecker",
    "DataError",
    "Ended",
    "EngineFault",
    "ExhaustedFault",
    "Fault",
    "FaultError",
    "FinishReason",
    "FloatChecker",
    "Group",
    "HostError",
    "IncompleteError",
    "InputError",
    "IsolationError",
    "JudgeFault",
    "MaskReason",
    "Outcome",
    "Primitive",
    "Problem",
    "Program",
    "Reward",
    "Rollout",
    "SandboxFault",
    "StalledFault",
    "Status",
    "StdinCase",
    "StdinTests",
    "StoredTests",
    "Submission",
    "TaskItem",
    "TestResult",
    "Tests",
    "Trace",
    "TraceStatus",
    "Verdict",
    "WorkerDied",
    "WorkerFault",
    "read_problems",
    "read_submissions",
]
