"""Typed settings of every package, and the loader. Imports `core` only; no torch, no ray."""

from typing import TYPE_CHECKING

from autoclave.core.lazy import lazily

if TYPE_CHECKING:
    from autoclave.config.advantage import (
        AdvantageSettings,
        DrGrpoAdvantageConfig,
        GaeAdvantageConfig,
        GaeSettings,
        GroupAdvantageSettings,
        GrpoAdvantageConfig,
        ReinforcePlusPlusAdvantageConfig,
        ReinforcePlusPlusBaselineAdvantageConfig,
        RlooAdvantageConfig,
    )
    from autoclave.config.algorithm import (
        AdaptiveKlConfig,
        AdvantageConfig,
        AlgorithmSettings,
        CispoConfig,
        DapoConfig,
        DrGrpoConfig,
        ExchangeableAdvantage,
        FixedKlConfig,
        GroupSettings,
        GrpoConfig,
        GrpoPlusConfig,
        GspoConfig,
        MaskedCorrectionConfig,
        NoCorrectionConfig,
        PpoConfig,
        ReinforcePlusPlusConfig,
        RlooConfig,
        TruncatedCorrectionConfig,
    )
    from autoclave.config.alignment import AlignmentConfig, AlignmentGrowthConfig, AlignmentLimitsConfig
    from autoclave.config.base import Config
    from autoclave.config.benchmark import BenchmarkConfig, EndpointConfig, EvaluatedModelConfig, RatingConfig
    from autoclave.config.choices import AlgorithmConfig, EngineConfig, TaskConfig
    from autoclave.config.critic import CriticConfig, RewardModelConfig
    from autoclave.config.curate import CurateConfig, DifficultyConfig, SourceConfig, StrengthConfig, VerificationConfig
    from autoclave.config.curation import DecontaminationConfig, DeduplicationConfig
    from autoclave.config.engine import (
        EngineSettings,
        OpenAiEngineConfig,
        RemoteEngineSettings,
        SglangEngineConfig,
        TransformersEngineConfig,
        VllmEngineConfig,
    )
    from autoclave.config.health import HealthActions, HealthConfig
    from autoclave.config.languages import BUILT_IN_PROFILES, CppConfig, ProfileConfig
    from autoclave.config.length_schedule import (
        AdvanceAtPlateauConfig,
        AdvanceAtStepsConfig,
        AdvanceConfig,
        LengthScheduleConfig,
        LengthStageConfig,
    )
    from autoclave.config.levels import LEVELS, Level
    from autoclave.config.loader import Override, Resolved, dump, load, parse_override
    from autoclave.config.model import ModelConfig, SamplerConfig, TinyModelConfig
    from autoclave.config.optimizer import OptimizerConfig
    from autoclave.config.problems import (
        ArithmeticConfig,
        CurriculumConfig,
        FunctionsConfig,
        NoProblemsConfig,
        ProblemFilesConfig,
        ProblemsConfig,
    )
    from autoclave.config.publish import PublishConfig, SyncCheckConfig
    from autoclave.config.remote import JobPriority, RemoteJudgeConfig
    from autoclave.config.sandbox import JudgeConfig, SandboxConfig
    from autoclave.config.service import (
        AdmissionConfig,
        AuditConfig,
        CompatibleConfig,
        Protocol,
        RayServeConfig,
        ServeConfig,
        TlsConfig,
    )
    from autoclave.config.task import CodeGenerationConfig, JudgeRunConfig, MathematicsConfig, TaskSettings
    from autoclave.config.trainer import LoraConfig, TrainerConfig
    from autoclave.config.training import (
        AsynchronousConfig,
        CheckpointConfig,
        EvaluationConfig,
        MinibatchPipelineConfig,
        OneOffPipelineConfig,
        ScheduleConfig,
        ScheduleSettings,
        SftConfig,
        SynchronousConfig,
        TrainConfig,
    )
    from autoclave.config.workers import PoolConfig, WorkersConfig
else:
    __getattr__ = lazily(
        __name__,
        {
            "advantage": (
                "AdvantageSettings DrGrpoAdvantageConfig GaeAdvantageConfig GaeSettings GroupAdvantageSettings "
                "GrpoAdvantageConfig ReinforcePlusPlusAdvantageConfig ReinforcePlusPlusBaselineAdvantageConfig "
                "RlooAdvantageConfig"
            ),
            "algorithm": (
                "AdaptiveKlConfig AdvantageConfig AlgorithmSettings CispoConfig DapoConfig DrGrpoConfig "
                "ExchangeableAdvantage FixedKlConfig GroupSettings GrpoConfig GrpoPlusConfig GspoConfig "
                "MaskedCorrectionConfig NoCorrectionConfig PpoConfig ReinforcePlusPlusConfig RlooConfig "
                "TruncatedCorrectionConfig"
            ),
            "alignment": "AlignmentConfig AlignmentGrowthConfig AlignmentLimitsConfig",
            "base": "Config",
            "benchmark": "BenchmarkConfig EndpointConfig EvaluatedModelConfig RatingConfig",
            "choices": "AlgorithmConfig EngineConfig TaskConfig",
            "critic": "CriticConfig RewardModelConfig",
            "curate": "CurateConfig DifficultyConfig SourceConfig StrengthConfig VerificationConfig",
            "curation": "DecontaminationConfig DeduplicationConfig",
            "engine": (
                "EngineSettings OpenAiEngineConfig RemoteEngineSettings SglangEngineConfig "
                "TransformersEngineConfig VllmEngineConfig"
            ),
            "health": "HealthActions HealthConfig",
            "languages": "BUILT_IN_PROFILES CppConfig ProfileConfig",
            "length_schedule": (
                "AdvanceAtPlateauConfig AdvanceAtStepsConfig AdvanceConfig LengthScheduleConfig LengthStageConfig"
            ),
            "levels": "LEVELS Level",
            "loader": "Override Resolved dump load parse_override",
            "model": "ModelConfig SamplerConfig TinyModelConfig",
            "optimizer": "OptimizerConfig",
            "problems": "ArithmeticConfig CurriculumConfig FunctionsConfig NoProblemsConfig ProblemFilesConfig "
            "ProblemsConfig",
            "publish": "SyncCheckConfig PublishConfig",
            "remote": "JobPriority RemoteJudgeConfig",
            "sandbox": "JudgeConfig SandboxConfig",
            "service": "AdmissionConfig AuditConfig CompatibleConfig Protocol RayServeConfig ServeConfig TlsConfig",
            "task": "CodeGenerationConfig JudgeRunConfig MathematicsConfig TaskSettings",
            "trainer": "LoraConfig TrainerConfig",
            "training": (
                "AsynchronousConfig CheckpointConfig EvaluationConfig MinibatchPipelineConfig "
                "OneOffPipelineConfig ScheduleConfig ScheduleSettings SftConfig SynchronousConfig TrainConfig"
            ),
            "workers": "PoolConfig WorkersConfig",
        },
    )

__all__ = [
    "BUILT_IN_PROFILES",
    "LEVELS",
    "AdaptiveKlConfig",
    "AdmissionConfig",
    "AdvanceAtPlateauConfig",
    "AdvanceAtStepsConfig",
    "AdvanceConfig",
    "AdvantageConfig",
    "AdvantageSettings",
    "AlgorithmConfig",
    "AlgorithmSettings",
    "AlignmentConfig",
    "AlignmentGrowthConfig",
    "AlignmentLimitsConfig",
    "ArithmeticConfig",
    "AsynchronousConfig",
    "AuditConfig",
    "BenchmarkConfig",
    "CheckpointConfig",
    "CispoConfig",
    "CodeGenerationConfig",
    "CompatibleConfig",
    "Config",
    "CppConfig",
    "CriticConfig",
    "CurateConfig",
    "CurriculumConfig",
    "DapoConfig",
    "DecontaminationConfig",
    "DeduplicationConfig",
    "DifficultyConfig",
    "DrGrpoAdvantageConfig",
    "DrGrpoConfig",
    "EndpointConfig",
    "EngineConfig",
    "EngineSettings",
    "EvaluatedModelConfig",
    "EvaluationConfig",
    "ExchangeableAdvantage",
    "FixedKlConfig",
    "FunctionsConfig",
    "GaeAdvantageConfig",
    "GaeSettings",
    "GroupAdvantageSettings",
    "GroupSettings",
    "GrpoAdvantageConfig",
    "GrpoConfig",
    "GrpoPlusConfig",
    "GspoConfig",
    "HealthActions",
    "HealthConfig",
    "JobPriority",
    "JudgeConfig",
    "JudgeRunConfig",
    "LengthScheduleConfig",
    "LengthStageConfig",
    "Level",
    "LoraConfig",
    "MaskedCorrectionConfig",
    "MathematicsConfig",
    "MinibatchPipelineConfig",
    "ModelConfig",
    "NoCorrectionConfig",
    "NoProblemsConfig",
    "OneOffPipelineConfig",
    "OpenAiEngineConfig",
    "OptimizerConfig",
    "Override",
    "PoolConfig",
    "PpoConfig",
    "ProblemFilesConfig",
    "ProblemsConfig",
    "ProfileConfig",
    "Protocol",
    "PublishConfig",
    "RatingConfig",
    "RayServeConfig",
    "ReinforcePlusPlusAdvantageConfig",
    "ReinforcePlusPlusBaselineAdvantageConfig",
    "ReinforcePlusPlusConfig",
    "RemoteEngineSettings",
    "RemoteJudgeConfig",
    "Resolved",
    "RewardModelConfig",
    "RlooAdvantageConfig",
    "RlooConfig",
    "SamplerConfig",
    "SandboxConfig",
    "ScheduleConfig",
    "ScheduleSettings",
    "ServeConfig",
    "SftConfig",
    "SglangEngineConfig",
    "SourceConfig",
    "StrengthConfig",
    "SyncCheckConfig",
    "SynchronousConfig",
    "TaskConfig",
    "TaskSettings",
    "TinyModelConfig",
    "TlsConfig",
    "TrainConfig",
    "TrainerConfig",
    "TransformersEngineConfig",
    "TruncatedCorrectionConfig",
    "VerificationConfig",
    "VllmEngineConfig",
    "WorkersConfig",
    "dump",
    "load",
    "parse_override",
]
