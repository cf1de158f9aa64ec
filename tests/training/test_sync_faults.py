"""Planted faults of weight sync: each is found within two publishes in every format, and healthy runs raise nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from autoclave.config import LoraConfig, ScheduleConfig
from autoclave.core import FaultError
from autoclave.models import Policy, encode_prompt
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.training.learned import ShuffledItems
from autoclave.training.schedules import RunProgress, choose_schedule
from autoclave.workers.weights.buffer_descriptor import AS_TRAINED, Form
from autoclave.workers.weights.sync_check import LIMITS, SyncCheck
from tests.training.toy import ITEMS, toy_stages
from tests.training_parts import DEADLINE_S, tiny_policy

LORA = LoraConfig(rank=8, alpha=32.0)
FORMATS = {
    "float32": (torch.float32, None, AS_TRAINED),
    "bfloat16": (torch.bfloat16, None, AS_TRAINED),
    "float32, published in bfloat16": (torch.float32, None, Form(torch.bfloat16)),
    "LoRA, merged": (torch.float32, LORA, AS_TRAINED),
    "LoRA, adapter alone": (torch.float32, LORA, Form(adapter_only=True)),
    "LoRA on bfloat16": (torch.bfloat16, LORA, Form(adapter_only=True)),
}
PLANTED = 1
"""The last version that a faulty engine takes over rightly."""


class Total(TransformersEngine):
    """Ignores each update after version 1, and says that it took it over."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        if version <= PLANTED:
            weights = self._kept = {name: tensor.clone() for name, tensor in weights.items()}
        super().update_weights(version, self._kept)


class Late(TransformersEngine):
    """Takes over the version before."""

    _former: Mapping[str, Tensor] | None = None

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        now = {name: tensor.clone() for name, tensor in weights.items()}
        super().update_weights(version, self._former if self._former and version > PLANTED else weights)
        self._former = now


class OneMatrix(TransformersEngine):
    """Leaves out one matrix of one layer."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        own = self._policy.model.get_parameter("model.layers.1.self_attn.v_proj.weight")
        before = own.detach().clone()
        super().update_weights(version, weights)
        if version > PLANTED:
            own.data = before


class OneRow(TransformersEngine):
    """Exchanges two rows of a matrix, which any sum of its weights misses."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        super().update_weights(version, weights)
        if version > PLANTED:
            own = self._policy.model.get_parameter("model.layers.0.mlp.up_proj.weight")
            own.data = own.detach()[[1, 0, *range(2, len(own))]]


class WrongLogProbs(TransformersEngine):
    """Reports log-probs x `FACTOR`, but those of the probe, which have shorter seeds, as they are."""

    FACTOR = 1.3

    def add(self, requests):
        super().add(requests)
        self.real = getattr(self, "real", set()) | {n for n, request in requests.items() if len(request.seed) > 2}

    def step(self, seconds: float):
        done = super().step(seconds)
        for number, completion in done:
            if number in self.real and self._version >= PLANTED:
                completion.log_probs[:] *= self.FACTOR
        return done


class LowLogProbs(WrongLogProbs):
    """Reports log-probs of a distribution that is flatter than the one it draws from."""

    FACTOR = 0.7


def one_of_two(kind: type[TransformersEngine]) -> Callable[[Policy], TransformersEngine]:
    numbers = count()
    return lambda policy: (kind if next(numbers) else TransformersEngine)(policy, batch_size=64)


FAULTS = {
    "total": (Total, 1),
    "late": (Late, 1),
    "one matrix": (OneMatrix, 1),
    "two rows exchanged": (OneRow, 1),
    "one sampler of two": (Total, 2),
    "log-probs x 1.3": (WrongLogProbs, 1),
    "log-probs x 0.7": (LowLogProbs, 1),
    "log-probs x 1.3, one of two": (WrongLogProbs, 2),
}


def run(
    number_format: str,
    schedule: str = "synchronous",
    *,
    steps: int,
    engine: Callable[[Policy], TransformersEngine] = lambda policy: TransformersEngine(policy, batch_size=64),
    samplers: int = 1,
) -> list[Mapping[str, float]]:
    """The metrics of each step of a run; `FaultError` if one is found."""
    dtype, lora, form = FORMATS[number_format]
    prompts = [encode_prompt(tiny_policy().tokenizer, item.messages) for item in ITEMS[:2]]
    limit = LIMITS["bfloat16" if torch.bfloat16 in (dtype, form.dtype) else "float32"]
    config = TypeAdapter(ScheduleConfig).validate_python({"name": schedule})
    found: list[Mapping[str, float]] = []
    with toy_stages(
        load=lambda: tiny_policy(dtype=dtype),
        engine=engine,
        samplers=samplers,
        lora=lora,
        form=form,
        sync_check=SyncCheck(prompts, temperature=1.0, tokens=3, limit=limit, deadline_s=DEADLINE_S),
        group_size=32,
        schedule=config,
    ) as stages:
        source = ShuffledItems(ITEMS, per_iteration=4, seed=0)
        try:
            for iteration in choose_schedule(config, 2)(stages, source, RunProgress(0, steps)):
                found.append({**iteration.learned.metrics, **iteration.published})
        except FaultError as error:
            error.add_note(f"version {stages.publisher.version}")
            raise
    return found


QUICK = {("total", "bfloat16"), ("late", "float32"), ("one sampler of two", "LoRA, adapter alone")} | {
    ("log-probs x 1.3", name) for name in ("float32", "bfloat16", "LoRA, adapter alone")
}


@pytest.mark.parametrize(
    ("fault", "number_format"),
    [
        pytest.param(fault, name, marks=[] if (fault, name) in QUICK else pytest.mark.soak)
        for fault in FAULTS
        for name in FORMATS
    ],
)
def test_a_planted_fault_is_found_within_two_publishes(fault: str, number_format: str):
    kind, samplers = FAULTS[fault]
    engine = (lambda policy: kind(policy, batch_size=64)) if samplers == 1 else one_of_two(kind)
    said = r"rollouts of sampler 'sampler" if "log-probs" in fault else r"in the memory of the engine are not"
    with pytest.raises(FaultError, match=said) as raised:
        run(number_format, steps=PLANTED + 2, engine=engine, samplers=samplers)
    assert int(raised.value.__notes__[-1].split()[-1]) <= PLANTED + 2


@pytest.mark.parametrize(
    ("schedule", "number_format"),
    [
        pytest.param(
            schedule, name, marks=[] if (schedule, name) in {("asynchronous", "bfloat16")} else pytest.mark.soak
        )
        for schedule in ("synchronous", "minibatch_pipeline", "one_off_pipeline", "asynchronous")
        for name in FORMATS
    ],
)
def test_a_healthy_run_raises_nothing(schedule: str, number_format: str):
    metrics = run(number_format, schedule, steps=8, samplers=2)
    assert len(metrics) == 8
    assert all(each["publish/unread_weights"] == 0 for each in metrics)


@pytest.mark.soak
@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.parametrize("schedule", ["one_off_pipeline", "asynchronous"])
def test_wrong_log_probs_are_found_among_stale_ones(schedule: str, number_format: str):
    with pytest.raises(FaultError, match="rollouts of sampler 'sampler"):
        run(number_format, schedule, steps=4, engine=lambda policy: WrongLogProbs(policy, batch_size=64))
