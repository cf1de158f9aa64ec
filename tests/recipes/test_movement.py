"""The trainer settings of each recipe let its weights move: 100 optimizer steps on a small model of random weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import Qwen2Config, Qwen2ForCausalLM

from autoclave.compose.workers import make_actor
from autoclave.config import ModelConfig, OptimizerConfig, TrainConfig, TrainerConfig, load
from autoclave.models import Policy, save_model
from autoclave.workers.batch import Batch
from benchmarks.recipes import ON_GPUS
from tests.training_parts import tiny_policy

STEPS = 100


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 of random weights, as large as those of a real one."""
    tokenizer = tiny_policy().tokenizer
    shape = Qwen2Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("qwen2")
    save_model(Policy(Qwen2ForCausalLM(shape), tokenizer), folder)
    return folder


@cache
def _batches() -> list[Batch]:
    draw = np.random.default_rng(0)
    batches = []
    for _ in range(STEPS):
        rows = [(draw.integers(3, 300, 4), draw.integers(3, 300, 6)) for _ in range(4)]
        advantages = np.repeat(draw.normal(size=4), 6).astype(np.float32)
        batches.append(
            Batch.from_sequences(
                rows,
                rows={"minibatch": np.zeros(4, dtype=int), "group": np.zeros(4, dtype=int)},
                responses={"weights": np.full(24, 1 / 24, dtype=np.float32), "advantages": advantages},
            )
        )
    return batches


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


@cache
def moved_share(model: Path, dtype: str, steps: int, optimizer: OptimizerConfig, trainer: TrainerConfig) -> float:
    """Share of the weights that ever have a gradient in `STEPS` steps which end elsewhere than they began."""
    settings = {"optimizer": optimizer, "trainer": trainer, "steps": steps}
    config = TrainConfig().model_copy(update=settings | {"model": ModelConfig(dtype=dtype, device="cpu", threads=1)})
    actor = make_actor(config, model)
    learning = [weights for weights in actor._model.parameters() if weights.requires_grad]
    before = [_local(weights).clone() for weights in learning]
    has_gradient = [torch.zeros_like(weights, dtype=torch.bool) for weights in before]

    def observe(*_: object) -> None:
        for found, weights in zip(has_gradient, learning, strict=True):
            found |= _local(weights.grad) != 0

    hook = register_optimizer_step_pre_hook(observe)
    try:
        for batch in _batches():
            actor.update(batch, 1)
    finally:
        hook.remove()
    moved = [(_local(now) != was)[found] for now, was, found in zip(learning, before, has_gradient, strict=True)]
    return torch.cat(moved).double().mean().item()


def share_of(recipe: Path, model: Path, *, dtype: str = "", precision: str = "") -> float:
    """Recipes with the same dtype, optimizer and trainer share a measurement."""
    config = load(TrainConfig, recipe).config
    here = {"cpu_offload": False, "mixed_precision": precision or config.trainer.mixed_precision}
    trainer = config.trainer.model_copy(update=here)
    steps = 1 if config.optimizer.decay == "none" else config.steps
    return moved_share(model, dtype or config.model.dtype, steps, config.optimizer, trainer)


@pytest.mark.parametrize("recipe", ON_GPUS, ids=lambda path: path.stem)
def test_most_weights_of_a_recipe_move_in_100_steps(recipe: Path, model: Path):
    assert share_of(recipe, model) >= 0.5


def test_weights_in_bfloat16_at_a_rate_of_1e_6_hardly_move(model: Path):
    recipe = next(path for path in ON_GPUS if path.stem == "deepcoder-14b")
    assert share_of(recipe, model, dtype="bfloat16", precision="none") < 0.05
