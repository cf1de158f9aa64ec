"""Blocks of settings that choose an algorithm, an engine or a task: built-in ones, and those of installed packages."""

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

if TYPE_CHECKING:
    AlgorithmConfig = AlgorithmSettings
    EngineConfig = EngineSettings | RemoteEngineSettings
    TaskConfig = TaskSettings
else:  # which classes there are is known only here
    AlgorithmConfig = with_plugins("autoclave.algorithm_settings", ALGORITHMS, AlgorithmSettings)
    EngineConfig = with_plugins("autoclave.engine_settings", ENGINES, EngineSettings, RemoteEngineSettings)
    TaskConfig = with_plugins("autoclave.task_settings", TASKS, TaskSettings)
