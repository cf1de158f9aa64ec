"""A run with an adapter publishes the adapter alone, and samplers compute with it as the trainer does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autoclave.compose.engines import make_engine
from autoclave.config import LoraConfig, ModelConfig, PublishConfig, TinyModelConfig, TrainConfig, TrainerConfig
from autoclave.core import FaultError, InputError
from autoclave.models import Policy, build_tiny_policy, save_model, with_adapter
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.workers import Batch, ResourcePool, WorkerGroup
from autoclave.workers.sampler.worker import SamplerWorker
from autoclave.workers.trainer.sharding import hold
from autoclave.workers.weights.buffer_descriptor import Form
from autoclave.workers.weights.publisher import Publisher
from autoclave_testing.engines import request, sample
from tests.training_parts import tiny_policy
from tests.workers.weights.parts import Trainer, called

LORA = LoraConfig(rank=2)
ADAPTER = Form(adapter_only=True)
ASKED = [request(range(2, 5 + number), number, max_new_tokens=12) for number in range(4)]


def wide_policy() -> Policy:
    shape = TinyModelConfig(hidden_size=256, layers=2, heads=4, vocabulary=300, context=64)
    return build_tiny_policy(shape, ["Print 3."], seed=0, device="cpu")


class WideTrainer(Trainer):
    def __init__(self) -> None:
        super().__init__(lora=True)
        self._model = with_adapter(wide_policy().model, LORA, seed=0)
        hold(self._model, TrainerConfig(), torch.device("cpu"))


def engine_on(policy: Policy, kind: type[TransformersEngine] = TransformersEngine) -> SamplerWorker:
    return SamplerWorker(kind(policy, batch_size=8, lora=LORA))


@contextmanager
def publishing(trainer: WorkerGroup, sampler: SamplerWorker, form: Form = ADAPTER) -> Iterator[Publisher]:
    """A publisher that has published version 1 to `sampler`."""
    pool = ResourcePool("sampler")
    try:
        group = WorkerGroup(pool, lambda: sampler)
        publisher = Publisher(trainer, form, deadline_s=100.0)
        publisher.begin(1, [group])
        publisher.deliver(group, called(group))
        yield publisher
    finally:
        pool.close()


@contextmanager
def trained(make: Callable[[], Any]) -> Iterator[WorkerGroup]:
    pool = ResourcePool("trainer")
    try:
        yield WorkerGroup(pool, make)
    finally:
        pool.close()


def publish(publisher: Publisher, version: int) -> None:
    publisher.write(version)
    for reader in publisher._readers.values():
        publisher.deliver(reader.group, called(reader.group))


def gap(trainer: WorkerGroup, sampler: SamplerWorker) -> float:
    """The largest difference of log-probs, trainer against sampler, of tokens that the sampler draws."""
    found = sample(sampler._engine, ASKED)
    batch = Batch.from_sequences([(each.prompt_tokens, each.tokens) for each in found], rows={}, responses={})
    scored = trainer.log_probs(batch).result().responses["old_log_probs"]
    return float(np.abs(scored - np.concatenate([each.log_probs for each in found])).max())


def test_an_adapter_reaches_a_sampler_by_a_few_hundredths_of_the_bytes_and_gives_the_trainers_log_probs():
    sampler = engine_on(wide_policy())
    with trained(WideTrainer) as trainer, publishing(trainer, sampler) as publisher:
        before = gap(trainer, sampler)
        trainer.learn(1).result()
        assert gap(trainer, sampler) > 0.01  # it samples with the former version
        publish(publisher, 2)
        assert max(before, gap(trainer, sampler)) < 1e-5
        merged = sum(each.nbytes for each in wide_policy().model.parameters())
        assert publisher._descriptor
        assert 0 < publisher._descriptor.table.num_bytes < 0.03 * merged
        assert publisher._frozen is None  # nor were these sent
        assert publisher.unread == 0


def test_what_an_adapter_learnt_is_not_rounded_away_by_frozen_weights_in_bfloat16():
    """Added to weights, so small a change would leave most of them as they were."""
    sampler = engine_on(tiny_policy(dtype=torch.bfloat16))
    with (
        trained(partial(Trainer, lora=True, dtype=torch.bfloat16)) as trainer,
        publishing(trainer, sampler) as publisher,
    ):
        trainer.learn(1).result()
        publish(publisher, 2)
        engine: Any = sampler._engine
        held = dict(engine._policy.model.named_parameters())
        own = trainer.own_weights().result()
        matrices = [name for name in held if ".lora_" in name]
        assert len(matrices) == 28
        assert all(torch.equal(held[name], own[name]) for name in matrices)
        assert {held[name].dtype for name in matrices} == {torch.float32}


def test_frozen_weights_are_compared_in_the_number_format_of_the_sampler():
    sampler = engine_on(tiny_policy(dtype=torch.bfloat16))
    with (
        trained(partial(Trainer, lora=True)) as trainer,
        publishing(trainer, sampler, Form(torch.bfloat16, adapter_only=True)) as publisher,
    ):
        assert publisher.unread == 0


class OtherMatrix(TransformersEngine):
    """Keeps one matrix of the adapter that it began with."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        own = self._policy.model.get_parameter("model.layers.1.self_attn.v_proj.lora_B.default.weight")
        before = own.detach().clone()
        super().update_weights(version, weights)
        own.data = before if version > 1 else own.data


def test_a_matrix_that_an_engine_does_not_take_over_is_named():
    with (
        trained(partial(Trainer, lora=True)) as trainer,
        publishing(trainer, engine_on(tiny_policy(), OtherMatrix)) as publisher,
    ):
        trainer.learn(1).result()
        with pytest.raises(FaultError, match=r"1 of 28 weights \(model\.layers\.1\.self_attn\.v_proj\.lora_B"):
            publish(publisher, 2)


def test_frozen_weights_of_another_model_are_named_at_the_first_publish():
    with (
        trained(partial(Trainer, lora=True)) as trainer,
        pytest.raises(FaultError, match=r"of 21 weights \(.*\) under the adapter differ between sampler and tra"),
        publishing(trainer, engine_on(tiny_policy(seed=1))),
    ):
        pass


def test_a_sampler_with_another_rank_refuses_the_adapter_and_keeps_its_own():
    sampler = SamplerWorker(TransformersEngine(tiny_policy(), batch_size=8, lora=LoraConfig(rank=3)))
    with (
        trained(partial(Trainer, lora=True)) as trainer,
        pytest.raises(InputError, match=r"lora_A.default.weight': shape \(2, 32\), the sampler's model has \(3"),
        publishing(trainer, sampler),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"trainer": TrainerConfig(lora=LORA)}, True),
        ({"trainer": TrainerConfig(lora=LORA), "publish": PublishConfig(dtype="bfloat16")}, True),
        ({"trainer": TrainerConfig(lora=LORA), "publish": PublishConfig(content="weights")}, False),
    ],
)
def test_a_run_with_an_adapter_publishes_it_alone_unless_it_is_set_otherwise(settings, expected, tmp_path: Path):
    config = TrainConfig(model=ModelConfig(device="cpu"), **settings)
    assert config.publishes_adapter == expected
    save_model(tiny_policy(), tmp_path)
    engine: Any = make_engine(config, tmp_path)
    assert engine.holds_adapter == expected
