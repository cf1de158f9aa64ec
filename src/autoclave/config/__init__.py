"""Typed settings of every package, and the loader. Imports `core` only; no torch, no ray."""

from typing import TYPE_CHECKING

from autoclave.core.lazy import lazily

if TYPE_CHECKING:
    from autoclave.config.advantage import AdvantageSettings as AdvantageSettings
    from autoclave.config.advantage import DistillationAdvantageConfig as DistillationAdvantageConfig
    from autoclave.config.advantage import DrGrpoAdvantageConfig as DrGrpoAdvantageConfig
    from autoclave.config.advantage import GaeAdvantageConfig as GaeAdvantageConfig
    from autoclave.config.advantage import GaeSettings as GaeSettings
    from autoclave.config.advantage import GroupAdvantageSettings as GroupAdvantageSettings
    from autoclave.config.advantage import GrpoAdvantageConfig as GrpoAdvantageConfig
    from autoclave.config.advantage import MaxRlAdvantageConfig as MaxRlAdvantageConfig
    from autoclave.config.advantage import ReinforcePlusPlusAdvantageConfig as ReinforcePlusPlusAdvantageConfig
    from autoclave.config.advantage import (
        ReinforcePlusPlusBaselineAdvantageConfig as ReinforcePlusPlusBaselineAdvantageConfig,
    )
    from autoclave.config.advantage import RlooAdvantageConfig as RlooAdvantageConfig
    from autoclave.config.algorithm import AdaptiveKlConfig as AdaptiveKlConfig
    from autoclave.config.algorithm import AdvantageConfig as AdvantageConfig
    from autoclave.config.algorithm import AlgorithmSettings as AlgorithmSettings
    from autoclave.config.algorithm import CispoConfig as CispoConfig
    from autoclave.config.algorithm import DapoConfig as DapoConfig
    from autoclave.config.algorithm import DrGrpoConfig as DrGrpoConfig
    from autoclave.config.algorithm import ExchangeableAdvantage as ExchangeableAdvantage
    from autoclave.config.algorithm import FixedKlConfig as FixedKlConfig
    from autoclave.config.algorithm import GroupSettings as GroupSettings
    from autoclave.config.algorithm import GrpoConfig as GrpoConfig
    from autoclave.config.algorithm import GrpoPlusConfig as GrpoPlusConfig
    from autoclave.config.algorithm import GspoConfig as GspoConfig
    from autoclave.config.algorithm import MaskedCorrectionConfig as MaskedCorrectionConfig
    from autoclave.config.algorithm import NoCorrectionConfig as NoCorrectionConfig
    from autoclave.config.algorithm import PpoConfig as PpoConfig
    from autoclave.config.algorithm import ReinforcePlusPlusConfig as ReinforcePlusPlusConfig
    from autoclave.config.algorithm import RlooConfig as RlooConfig
    from autoclave.config.algorithm import TruncatedCorrectionConfig as TruncatedCorrectionConfig
    from autoclave.config.alignment import AlignmentConfig as AlignmentConfig
    from autoclave.config.alignment import AlignmentGrowthConfig as AlignmentGrowthConfig
    from autoclave.config.alignment import AlignmentLimitsConfig as AlignmentLimitsConfig
    from autoclave.config.base import Config as Config
    from autoclave.config.benchmark import BenchmarkConfig as BenchmarkConfig
    from autoclave.config.benchmark import EndpointConfig as EndpointConfig
    from autoclave.config.benchmark import EvaluatedModelConfig as EvaluatedModelConfig
    from autoclave.config.benchmark import RatingConfig as RatingConfig
    from autoclave.config.choices import AlgorithmConfig as AlgorithmConfig
    from autoclave.config.choices import EngineConfig as EngineConfig
    from autoclave.config.choices import ProblemsConfig as ProblemsConfig
    from autoclave.config.choices import TaskConfig as TaskConfig
    from autoclave.config.curation import CurateConfig as CurateConfig
    from autoclave.config.curation import DecontaminationConfig as DecontaminationConfig
    from autoclave.config.curation import DeduplicationConfig as DeduplicationConfig
    from autoclave.config.curation import DifficultyConfig as DifficultyConfig
    from autoclave.config.curation import SourceConfig as SourceConfig
    from autoclave.config.curation import StrengthConfig as StrengthConfig
    from autoclave.config.curation import VerificationConfig as VerificationConfig
    from autoclave.config.engine import EngineSettings as EngineSettings
    from autoclave.config.engine import OpenAiEngineConfig as OpenAiEngineConfig
    from autoclave.config.engine import RemoteEngineSettings as RemoteEngineSettings
    from autoclave.config.engine import SglangEngineConfig as SglangEngineConfig
    from autoclave.config.engine import TransformersEngineConfig as TransformersEngineConfig
    from autoclave.config.engine import VllmEngineConfig as VllmEngineConfig
    from autoclave.config.health import HealthActions as HealthActions
    from autoclave.config.health import HealthConfig as HealthConfig
    from autoclave.config.languages import BUILT_IN_PROFILES as BUILT_IN_PROFILES
    from autoclave.config.languages import CppConfig as CppConfig
    from autoclave.config.languages import ProfileConfig as ProfileConfig
    from autoclave.config.levels import LEVELS as LEVELS
    from autoclave.config.levels import Level as Level
    from autoclave.config.loader import Override as Override
    from autoclave.config.loader import Resolved as Resolved
    from autoclave.config.loader import dump as dump
    from autoclave.config.loader import load as load
    from autoclave.config.loader import parse_override as parse_override
    from autoclave.config.model import ModelConfig as ModelConfig
    from autoclave.config.model import SamplerConfig as SamplerConfig
    from autoclave.config.model import TinyModelConfig as TinyModelConfig
    from autoclave.config.problems import ArithmeticConfig as ArithmeticConfig
    from autoclave.config.problems import FunctionsConfig as FunctionsConfig
    from autoclave.config.problems import NoProblemsConfig as NoProblemsConfig
    from autoclave.config.problems import ProblemFilesConfig as ProblemFilesConfig
    from autoclave.config.problems import ProblemSettings as ProblemSettings
    from autoclave.config.problems import SyntheticConfig as SyntheticConfig
    from autoclave.config.remote import JobPriority as JobPriority
    from autoclave.config.remote import RemoteJudgeConfig as RemoteJudgeConfig
    from autoclave.config.sandbox import JudgeConfig as JudgeConfig
    from autoclave.config.sandbox import SandboxConfig as SandboxConfig
    from autoclave.config.schedule import AdvanceAtPlateauConfig as AdvanceAtPlateauConfig
    from autoclave.config.schedule import AdvanceAtStepsConfig as AdvanceAtStepsConfig
    from autoclave.config.schedule import AdvanceConfig as AdvanceConfig
    from autoclave.config.schedule import AsynchronousConfig as AsynchronousConfig
    from autoclave.config.schedule import LengthScheduleConfig as LengthScheduleConfig
    from autoclave.config.schedule import LengthStageConfig as LengthStageConfig
    from autoclave.config.schedule import MinibatchPipelineConfig as MinibatchPipelineConfig
    from autoclave.config.schedule import OneOffPipelineConfig as OneOffPipelineConfig
    from autoclave.config.schedule import ScheduleConfig as ScheduleConfig
    from autoclave.config.schedule import ScheduleSettings as ScheduleSettings
    from autoclave.config.schedule import SynchronousConfig as SynchronousConfig
    from autoclave.config.service import AdmissionConfig as AdmissionConfig
    from autoclave.config.service import AuditConfig as AuditConfig
    from autoclave.config.service import CompatibleConfig as CompatibleConfig
    from autoclave.config.service import Protocol as Protocol
    from autoclave.config.service import RayServeConfig as RayServeConfig
    from autoclave.config.service import ServeConfig as ServeConfig
    from autoclave.config.service import TlsConfig as TlsConfig
    from autoclave.config.task import CodeGenerationConfig as CodeGenerationConfig
    from autoclave.config.task import JudgeRunConfig as JudgeRunConfig
    from autoclave.config.task import MathematicsConfig as MathematicsConfig
    from autoclave.config.task import TaskSettings as TaskSettings
    from autoclave.config.trainer import CriticConfig as CriticConfig
    from autoclave.config.trainer import LoraConfig as LoraConfig
    from autoclave.config.trainer import OptimizerConfig as OptimizerConfig
    from autoclave.config.trainer import RewardModelConfig as RewardModelConfig
    from autoclave.config.trainer import TeacherConfig as TeacherConfig
    from autoclave.config.trainer import TrainerConfig as TrainerConfig
    from autoclave.config.training import CheckpointConfig as CheckpointConfig
    from autoclave.config.training import EvaluationConfig as EvaluationConfig
    from autoclave.config.training import SftConfig as SftConfig
    from autoclave.config.training import TrainConfig as TrainConfig
    from autoclave.config.workers import PoolConfig as PoolConfig
    from autoclave.config.workers import PublishConfig as PublishConfig
    from autoclave.config.workers import SyncCheckConfig as SyncCheckConfig
    from autoclave.config.workers import WorkersConfig as WorkersConfig

__getattr__ = lazily(__name__)
