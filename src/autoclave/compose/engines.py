"""The engine that settings describe."""

from collections.abc import Callable
from pathlib import Path

from autoclave.config import TrainConfig
from autoclave.config.engine import OpenAiEngineConfig, SglangEngineConfig, TransformersEngineConfig, VllmEngineConfig
from autoclave.core import ConfigError
from autoclave.core.plugins import find_plugin
from autoclave.models import load_policy
from autoclave.rollout import AdapterEngine, Engine
from autoclave.rollout.http_engine import openai_engine, sglang_engine
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.rollout.vllm_engine import VllmEngine

_MEMBERS = ("add", "step", "update_weights", "stats", "close")
_BUILT_IN = ("transformers", "vllm", "sglang", "openai")


def find_engine(name: str) -> Callable[[TrainConfig, Path], Engine]:
    """Return what another package makes the engine of this name with; called as `make_engine` is.

    Raises HostError: no installed package has it, or it cannot be loaded.
    """
    return find_plugin("autoclave.engines", name, "sampler.engine.name", _BUILT_IN)


def make_engine(config: TrainConfig, model_folder: Path) -> Engine:
    """The engine of `config`, with the policy in `model_folder`; called in the process that is to sample.

    Raises:
        ConfigError: a setting is missing, or the engine cannot run this model.
        HostError: a package is not installed, or does not work here; the message has the fix.
        EngineFault: a server does not answer.
    """
    lora = config.trainer.lora if config.publishes_adapter else None
    match config.sampler.engine:
        case TransformersEngineConfig() as settings:
            policy = load_policy(
                model_folder,
                dtype=config.sampling_dtype,
                device=config.model.device,
                chat_template=config.model.chat_template,
            )
            return TransformersEngine(
                policy, batch_size=settings.batch_size, mixes_batches=config.schedule.mixes_batches, lora=lora
            )
        case VllmEngineConfig() as settings:
            return VllmEngine(
                model_folder,
                settings,
                dtype=config.sampling_dtype,
                seed=config.seed % 2**31,
                lora=lora,
                shares_gpu=not config.sampler_is_alone,
            )
        case SglangEngineConfig() as settings:
            return sglang_engine(settings, model_folder)
        case OpenAiEngineConfig() as settings:
            return openai_engine(settings, model_folder)
        case settings:
            return _of_plugin(settings.name, config, model_folder)


def _of_plugin(name: str, config: TrainConfig, model_folder: Path) -> Engine:
    engine = find_engine(name)(config, model_folder)
    missing = [each for each in _MEMBERS if not hasattr(engine, each)]
    if missing:
        raise ConfigError(f"sampler.engine.name = {name}: {type(engine).__name__} lacks {', '.join(missing)}")
    if config.publishes_adapter and not (isinstance(engine, AdapterEngine) and engine.holds_adapter):
        raise ConfigError(
            f"sampler.engine.name = {name}: it holds no adapter, and trainer.lora sends it nothing else. "
            "Fix: publish.content=weights"
        )
    return engine


def require_trainable(config: TrainConfig) -> None:
    """Find out whether the engine exists and can take over weights, before anything is loaded.

    Raises ConfigError: it cannot. HostError: no installed package has it, or it cannot be loaded.
    """
    engine = config.sampler.engine
    if engine.name not in _BUILT_IN:
        find_engine(engine.name)
    if engine.name == "openai":
        raise ConfigError(
            "sampler.engine.name = openai: such a server takes no weights, so it can be evaluated and not trained; "
            "use transformers, vllm or sglang"
        )
    if isinstance(engine, SglangEngineConfig) and not engine.weights_folder:
        raise ConfigError(
            "sampler.engine.weights_folder: name a folder that this process can write and the server can read; new "
            "weights go through it"
        )
