"""Blocks of settings that choose an algorithm, engine, task or problems: built-in ones, and those of packages."""

from typing import TYPE_CHECKING

from autoclave.config.algorithm import (
    AlgorithmSettings,
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    GrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
)
from autoclave.config.engine import (
    EngineSettings,
    OpenAiEngineConfig,
    RemoteEngineSettings,
    SglangEngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
)
from autoclave.config.plugins import with_plugins
from autoclave.config.problems import (
    ArithmeticConfig,
    FunctionsConfig,
    NoProblemsConfig,
    ProblemFilesConfig,
    ProblemSettings,
    SyntheticConfig,
)
from autoclave.config.task import CodeGenerationConfig, MathematicsConfig, TaskSettings

ALGORITHMS = (
    PpoConfig,
    GrpoConfig,
    GrpoPlusConfig,
    DapoConfig,
    DrGrpoConfig,
    RlooConfig,
    ReinforcePlusPlusConfig,
    GspoConfig,
    CispoConfig,
)
ENGINES = (TransformersEngineConfig, VllmEngineConfig, SglangEngineConfig, OpenAiEngineConfig)
TASKS = (CodeGenerationConfig, MathematicsConfig)
PROBLEMS = (SyntheticConfig, ArithmeticConfig, FunctionsConfig, ProblemFilesConfig, NoProblemsConfig)

if TYPE_CHECKING:
    AlgorithmConfig = AlgorithmSettings
    EngineConfig = EngineSettings | RemoteEngineSettings
    TaskConfig = TaskSettings
    ProblemsConfig = ProblemSettings
else:  # which classes there are is known only here
    AlgorithmConfig = with_plugins("autoclave.algorithm_settings", ALGORITHMS, AlgorithmSettings)
    EngineConfig = with_plugins("autoclave.engine_settings", ENGINES, EngineSettings, RemoteEngineSettings)
    TaskConfig = with_plugins("autoclave.task_settings", TASKS, TaskSettings)
    ProblemsConfig = with_plugins("autoclave.problem_settings", PROBLEMS, ProblemSettings)
