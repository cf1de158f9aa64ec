"""Typed settings of every package, and the loader. Imports `core` only; no torch, no ray."""

from autoclave.config.algorithm import AlgorithmConfig, GrpoConfig, GrpoPlusConfig
from autoclave.config.base import Config
from autoclave.config.health import HealthConfig
from autoclave.config.languages import BUILT_IN_PROFILES, CppConfig, ProfileConfig
from autoclave.config.load import Override, Resolved, dump, load, parse_override
from autoclave.config.model import EngineConfig, ModelConfig, SamplerConfig, TinyModelConfig, TransformersEngineConfig
from autoclave.config.problems import CurriculumConfig, ProblemFilesConfig, ProblemsConfig
from autoclave.config.sandbox import LEVELS, JudgeConfig, Level, SandboxConfig
from autoclave.config.task import JudgeRunConfig, TaskConfig
from autoclave.config.training import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    PoolConfig,
    ScheduleConfig,
    SftConfig,
    SynchronousConfig,
    TrainConfig,
)

__all__ = [
    "BUILT_IN_PROFILES",
    "LEVELS",
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "CppConfig",
    "CurriculumConfig",
    "EngineConfig",
    "EvaluationConfig",
    "GrpoConfig",
    "GrpoPlusConfig",
    "HealthConfig",
    "JudgeConfig",
    "JudgeRunConfig",
    "Level",
    "ModelConfig",
    "OptimizerConfig",
    "Override",
    "PoolConfig",
    "ProblemFilesConfig",
    "ProblemsConfig",
    "ProfileConfig",
    "Resolved",
    "SamplerConfig",
    "SandboxConfig",
    "ScheduleConfig",
    "SftConfig",
    "SynchronousConfig",
    "TaskConfig",
    "TinyModelConfig",
    "TrainConfig",
    "TransformersEngineConfig",
    "dump",
    "load",
    "parse_override",
]
