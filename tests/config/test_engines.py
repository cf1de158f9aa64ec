"""Which engine samples, and its settings alone."""

from __future__ import annotations

import pytest

from autoclave.compose.engines import require_trainable
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import ConfigError


def config(*settings: str) -> TrainConfig:
    return load(TrainConfig, None, [parse_override(text) for text in settings]).config


@pytest.mark.parametrize("name", ["transformers", "vllm", "sglang", "openai"])
def test_naming_an_engine_brings_its_defaults_and_drops_the_settings_of_another(name):
    found = config("sampler.engine.batch_size=7", f"sampler.engine.name={name}").sampler.engine
    assert found == type(found)()
    assert found.name == name


@pytest.mark.parametrize(
    ("engine", "setting"),
    [("vllm", "concurrency=4"), ("transformers", "cache_mb=4"), ("openai", "weights_folder=x"), ("sglang", "model=x")],
)
def test_a_setting_of_another_engine_is_an_error(engine, setting):
    with pytest.raises(ConfigError, match=rf"sampler.engine.{setting.partition('=')[0]}: no such setting"):
        config(f"sampler.engine.name={engine}", f"sampler.engine.{setting}")


def test_the_address_of_a_server_has_a_scheme():
    with pytest.raises(ConfigError, match="must begin with http:// or https://"):
        config("sampler.engine.name=openai", "sampler.engine.url=host:8000")


def test_engines_that_cannot_take_weights_do_not_train():
    require_trainable(config("sampler.engine.name=vllm"))
    require_trainable(config("sampler.engine.name=sglang", "sampler.engine.weights_folder=/dev/shm"))
    with pytest.raises(ConfigError, match="takes no weights, so it can be evaluated and not trained"):
        require_trainable(config("sampler.engine.name=openai"))
    with pytest.raises(ConfigError, match=r"sampler.engine.weights_folder: name a folder"):
        require_trainable(config("sampler.engine.name=sglang"))


@pytest.mark.parametrize(
    ("settings", "repeatably"),
    [
        ((), True),
        (("schedule.name=asynchronous",), False),
        (("schedule.name=asynchronous", "schedule.max_staleness=0"), True),
        (("sampler.engine.name=vllm",), False),
        (("sampler.engine.name=sglang",), False),
    ],
)
def test_responses_do_not_depend_on_time_where_schedule_and_engine_keep_batches_apart(settings, repeatably):
    assert config(*settings).samples_repeatably == repeatably
