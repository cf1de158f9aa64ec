"""Checks of whether learning rates, problems and a recipe suit the model; of the model only `config.json` is read."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.config.loader import Resolved
from autoclave.config.model import SamplerConfig
from autoclave.config.model_size import (
    EMBEDDED,
    HEAD_FACTOR,
    LORA_FACTOR,
    defaults_for,
    has_pretrained_size,
    parameters_of,
    rate_limit,
    size_in_words,
    value_at,
)
from autoclave.config.recipe import read_recipe
from autoclave.config.sandbox import JudgeConfig
from autoclave.config.training import TrainConfig
from autoclave.core.errors import ConfigError
from autoclave.core.json import shown

MEDIAN = 0.6745
"""Median of the absolute value of a normally distributed number, in standard deviations."""
INITIAL_DEVIATION = 0.02
"""`initializer_range` of most models, and of those whose `config.json` does not have it."""
FRACTION_BITS = {"bfloat16": 7}
"""Bits after the leading one of the formats that are too coarse for small updates."""


@dataclass(frozen=True, slots=True)
class _Rate:
    """A learning rate and the model that it is for."""

    setting: str
    value: float
    path: str
    trains_adapter: bool
    factor: int
    """Default of this rate over that of the policy with all weights."""


def _rates(config: TrainConfig, *, warm_start_alone: bool) -> Iterator[_Rate]:
    path, has_adapter = config.model.path, config.trainer.lora is not None
    adapter = LORA_FACTOR if has_adapter else 1
    if config.sft.is_on:
        yield _Rate("sft.optimizer.learning_rate", config.sft.optimizer.learning_rate, path, False, HEAD_FACTOR)
    if not warm_start_alone:
        yield _Rate("optimizer.learning_rate", config.optimizer.learning_rate, path, has_adapter, adapter)
        if config.algorithm.needs_critic:
            critic = config.critic
            rate, factor = critic.optimizer.learning_rate, HEAD_FACTOR * adapter
            yield _Rate("critic.optimizer.learning_rate", rate, critic.path or path, has_adapter, factor)


def require_rates_within_limits(
    config: TrainConfig, *, warm_start_alone: bool = False, count: Callable[[str], int | None] = parameters_of
) -> None:
    """Check that no learning rate is beyond what a pretrained model of this size survives; see `rate_limit`.

    Ten times as much is accepted for adapters, and for the warm start, which imitates.

    Args:
        config: the settings.
        warm_start_alone: nothing else is trained.
        count: the parameters of the model at a path.

    Raises:
        ConfigError: one is.
    """
    for rate in _rates(config, warm_start_alone=warm_start_alone):
        parameters = count(rate.path) if rate.path else None
        if parameters is None or parameters < EMBEDDED:
            continue
        is_wider = rate.trains_adapter or rate.setting.startswith("sft")
        limit = rate_limit(parameters) * (10 if is_wider else 1)
        if rate.value > limit:
            usual = defaults_for(parameters).rate(rate.factor)
            measure = "3.3 times" if is_wider else "a third of"
            raise ConfigError(
                f"{rate.setting} = {rate.value:g}: above {limit:.2g}, {measure} the peak rate at which models of "
                f"{size_in_words(parameters)} parameters are pretrained (GPT-3, table 2.1), so what the model knows is "
                f"lost. Fix: {rate.setting}={usual:g}"
            )


def require_rates_above_rounding(config: TrainConfig, *, warm_start_alone: bool = False) -> None:
    """Check that weights of low precision change when they are updated.

        rounding step of w = 2^(floor(log2 |w|) - fraction bits)

    AdamW changes a weight by about the learning rate, and what is less than half of the rounding step is lost. The rule
    is that of the median weight, 0.67 standard deviations: else most weights stay as they are. Adapters are in float32.

    Raises ConfigError: a rate is below.
    """
    bits = FRACTION_BITS.get(config.model.dtype)
    if bits is None:
        return
    for rate in _rates(config, warm_start_alone=warm_start_alone):
        median = MEDIAN * _initial_deviation(rate.path)
        least = 2.0 ** (math.floor(math.log2(median)) - bits) / 2
        if rate.value < least and not rate.trains_adapter:
            raise ConfigError(
                f"{rate.setting} = {rate.value:g}: below {least:.2g}, half the rounding step of the median weight "
                f"({median:.2g}) in model.dtype = {config.model.dtype}, so that most updates are lost. "
                "Fix: model.dtype=float32 trainer.mixed_precision=bfloat16"
            )


def _initial_deviation(path: str) -> float:
    try:
        found = json.loads((Path(path) / "config.json").read_text(encoding="utf-8")).get("initializer_range")
    except (OSError, ValueError, AttributeError):
        found = None
    return found if isinstance(found, float) and found > 0 else INITIAL_DEVIATION


def require_problems(config: TrainConfig) -> None:
    """Check that there are problems. Raises ConfigError: none were given."""
    if config.problems.name == "none":
        raise ConfigError(
            f"problems: model.path = {shown(config.model.path)} is a pretrained model, and no problems are given. "
            "Fix: problems.name=files problems.train=FILE problems.heldout=FILE (autoclave-problem/1, as `autoclave "
            "curate` writes them), or problems.name=synthetic for the generated ones"
        )


def require_recipe_of_model(resolved: Resolved[Any], recipe: Path) -> None:
    """Check that a pretrained model on the command line does not get what a recipe has for the embedded policy.

    Raises ConfigError: it does.
    """
    config = resolved.config
    if not isinstance(config, TrainConfig) or resolved.origins.get("model.path") == str(recipe):
        return
    path = config.model.path
    if not path or not has_pretrained_size(path) or value_at(read_recipe(recipe), "model.path"):
        return
    length = "length_schedule.stages" if config.length_schedule else "sampler.max_new_tokens"
    suits_embedded = {
        "problems.name": config.problems.name in ("synthetic", "arithmetic"),
        "task.template": config.task.template == "plain",
        "judge.time_limit_range": config.judge.time_limit_range[1] < JudgeConfig().time_limit_range[0],
        "optimizer.learning_rate": config.optimizer.learning_rate > rate_limit(parameters_of(path) or EMBEDDED),
        length: config.longest_trained <= SamplerConfig().max_new_tokens,
    }
    if inherited := [each for each, does in suits_embedded.items() if does and resolved.origin(each) == str(recipe)]:
        raise ConfigError(
            f"model.path = {shown(path)}: {recipe} is for the embedded policy, and its {', '.join(inherited)} do not "
            "suit a pretrained model. Fix: leave the recipe out, so that defaults follow the size of the model, or "
            "give these settings on the command line too"
        )
