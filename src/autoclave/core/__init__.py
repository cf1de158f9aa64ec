"""The nouns, the errors, and atomic file I/O. Imports nothing of ours, and neither torch nor ray."""

from typing import TYPE_CHECKING

from autoclave.core.closing import Closing as Closing
from autoclave.core.errors import AutoclaveError as AutoclaveError
from autoclave.core.errors import CheckpointError as CheckpointError
from autoclave.core.errors import ConfigError as ConfigError
from autoclave.core.errors import DataError as DataError
from autoclave.core.errors import EngineFault as EngineFault
from autoclave.core.errors import ExhaustedFault as ExhaustedFault
from autoclave.core.errors import FaultError as FaultError
from autoclave.core.errors import HostError as HostError
from autoclave.core.errors import IncompleteError as IncompleteError
from autoclave.core.errors import InputError as InputError
from autoclave.core.errors import IsolationError as IsolationError
from autoclave.core.errors import JudgeFault as JudgeFault
from autoclave.core.errors import SandboxFault as SandboxFault
from autoclave.core.errors import StalledFault as StalledFault
from autoclave.core.errors import UsageError as UsageError
from autoclave.core.errors import WorkerDied as WorkerDied
from autoclave.core.errors import WorkerFault as WorkerFault
from autoclave.core.lazy import lazily

if TYPE_CHECKING:
    from autoclave.core.alignment_sample import AlignmentSample as AlignmentSample
    from autoclave.core.outcome import Ended as Ended
    from autoclave.core.outcome import Outcome as Outcome
    from autoclave.core.problem import AnswerTests as AnswerTests
    from autoclave.core.problem import CallCase as CallCase
    from autoclave.core.problem import CallTests as CallTests
    from autoclave.core.problem import CheckTests as CheckTests
    from autoclave.core.problem import CustomChecker as CustomChecker
    from autoclave.core.problem import FloatChecker as FloatChecker
    from autoclave.core.problem import Problem as Problem
    from autoclave.core.problem import StdinCase as StdinCase
    from autoclave.core.problem import StdinTests as StdinTests
    from autoclave.core.problem import StoredTests as StoredTests
    from autoclave.core.problem import Tests as Tests
    from autoclave.core.problem import read_problems as read_problems
    from autoclave.core.program import Program as Program
    from autoclave.core.program import Submission as Submission
    from autoclave.core.program import read_submissions as read_submissions
    from autoclave.core.rollout import Completion as Completion
    from autoclave.core.rollout import EndState as EndState
    from autoclave.core.rollout import FinishReason as FinishReason
    from autoclave.core.rollout import Group as Group
    from autoclave.core.rollout import MaskReason as MaskReason
    from autoclave.core.rollout import Observation as Observation
    from autoclave.core.rollout import Reward as Reward
    from autoclave.core.rollout import Rollout as Rollout
    from autoclave.core.rollout import TaskItem as TaskItem
    from autoclave.core.trace import MAIN_PROGRAM as MAIN_PROGRAM
    from autoclave.core.trace import Primitive as Primitive
    from autoclave.core.trace import Trace as Trace
    from autoclave.core.trace import TraceStatus as TraceStatus
    from autoclave.core.verdict import Fault as Fault
    from autoclave.core.verdict import Status as Status
    from autoclave.core.verdict import TestResult as TestResult
    from autoclave.core.verdict import Verdict as Verdict

__getattr__ = lazily(__name__)
