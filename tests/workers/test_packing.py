"""Micro-batches that are packed or share prompts give what padded ones give, for each family of models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from autoclave.algorithms import build_algorithm
from autoclave.config import GrpoConfig, OptimizerConfig, TrainerConfig
from autoclave.core import ConfigError
from autoclave.models import Layout, Policy, layout_for, require_full_attention
from autoclave.workers import Batch
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.reference import ReferenceWorker
from autoclave.workers.trainer.scoring import Scoring, batch_log_probs
from tests.training_parts import tiny_policy

SHAPE = {
    "vocab_size": 200,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=8)),
}
LENGTHS = [(5, 7), (1, 1), (12, 20), (3, 2), (1, 9), (7, 1)]
PROMPTS = [0, 1, 2, 0, 2, 2]
"""Whose prompt each row has: 0 and 3 have the same, and 2, 4 and 5."""
OTHERS: list[Layout] = ["packed", "shared_prompts"]


def model_of(family: str) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FAMILIES[family]().eval()
        for weights in model.parameters():
            torch.nn.init.normal_(weights, std=0.3)
    return model


def laid_out(family: str, layout: Layout) -> PreTrainedModel:
    """The model with the attention that `layout` needs."""
    model, packing = model_of(family), {"padded": "never", "packed": "always"}.get(layout, layout)
    assert layout_for(model, packing, model.device, model.dtype) == layout  # pyright: ignore[reportArgumentType]
    return model


def rollouts() -> Batch:
    rng = np.random.default_rng(0)
    pairs = [tuple(rng.integers(0, 200, length) for length in pair) for pair in LENGTHS]
    pairs = [(pairs[place][0], response) for place, (_, response) in zip(PROMPTS, pairs, strict=True)]
    count = sum(response for _, response in LENGTHS)
    return Batch.from_sequences(
        pairs,
        rows={"minibatch": np.zeros(len(pairs), np.int64)},
        responses={
            "weights": np.full(count, 1 / count, np.float32),
            "advantages": rng.standard_normal(count).astype(np.float32),
            "old_log_probs": np.full(count, -5.0, np.float32),
        },
    )


def scored(family: str, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies of `rollouts`, and the gradient of a mixture of them."""
    model, rows = laid_out(family, layout), np.array([0, 3, 1, 2, 4, 5])  # those that share a prompt are neighbours
    batch, scoring = rollouts().select(rows), Scoring(0.8, 1000, 16, layout)
    found = torch.cat(batch_log_probs(model, batch, scoring, entropy_gradient=True))
    (found * torch.linspace(-1, 1, len(found))).mean().backward()
    return found.detach(), torch.cat([weights.grad.flatten() for weights in model.parameters()])


@pytest.mark.parametrize("layout", OTHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layout_gives_the_scores_and_gradients_of_padded_rows(family: str, layout: Layout):
    for found, padded in zip(scored(family, layout), scored(family, "padded"), strict=True):
        torch.testing.assert_close(found, padded, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", OTHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sequence_does_not_see_the_one_before_it(family: str, layout: Layout):
    model, scoring = laid_out(family, layout), Scoring(1.0, 1000, 1000, layout)
    batch = rollouts().select(np.array([0, 3, 1, 2, 4, 5]))
    last = batch.select(np.array([len(batch) - 1]))
    alone = batch_log_probs(model, last, scoring)[0]
    behind_all = batch_log_probs(model, batch, scoring)[0][-len(last.response_rows) :]
    torch.testing.assert_close(behind_all, alone, rtol=0, atol=1e-5)


def actor(packing: str, *, micro_batch_tokens: int) -> ActorWorker:
    return ActorWorker(
        Policy(model_of("llama"), tiny_policy().tokenizer),
        build_algorithm(GrpoConfig(kl_coefficient=0.0)),
        OptimizerConfig(learning_rate=1e-3, decay="none"),
        total_steps=10,
        temperature=0.8,
        micro_batch_tokens=micro_batch_tokens,
        trainer=TrainerConfig(packing=packing),
    )


@pytest.mark.parametrize("packing", ["always", "shared_prompts"])
@pytest.mark.parametrize("micro_batch_tokens", [1, 30, 1000])
def test_an_actor_that_packs_learns_what_one_learns_that_pads(micro_batch_tokens: int, packing: str):
    packs = actor(packing, micro_batch_tokens=micro_batch_tokens)
    pads = actor("never", micro_batch_tokens=1000)
    packed, padded = (worker.log_probs(rollouts()) for worker in (packs, pads))
    assert packed.responses["old_log_probs"] == pytest.approx(padded.responses["old_log_probs"], abs=1e-5)
    expected = pads.update(padded, 1)
    assert packs.update(packed, 1) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_reference_packs_as_well():
    policy = Policy(model_of("llama"), tiny_policy().tokenizer)
    columns = [
        ReferenceWorker(policy, temperature=1.0, micro_batch_tokens=40, trainer=TrainerConfig(packing=packing))
        .log_probs(rollouts())
        .responses["reference_log_probs"]
        for packing in ("always", "shared_prompts", "never")
    ]
    assert columns[0] == pytest.approx(columns[2], abs=1e-5)
    assert columns[1] == pytest.approx(columns[2], abs=1e-5)


def test_wide_models_share_prompts_by_default_on_the_cpu():
    cpu, gpu, wide = torch.device("cpu"), torch.device("cuda"), LlamaConfig(**SHAPE | {"hidden_size": 128})
    windowed = Qwen2Config(**SHAPE | {"hidden_size": 128}, layer_types=["full_attention", "sliding_attention"])
    for shape, packing, device, layout in (
        (wide, "auto", cpu, "shared_prompts"),
        (wide, "auto", gpu, "padded"),
        (wide, "never", cpu, "padded"),
        (wide, "always", cpu, "packed"),
        (windowed, "auto", cpu, "padded"),
        (LlamaConfig(**SHAPE), "auto", cpu, "padded"),
    ):
        model = AutoModelForCausalLM.from_config(shape)
        trainer = TrainerConfig(packing=packing)
        assert Scoring.of(model, trainer, device, temperature=1.0, micro_batch_tokens=10).layout == layout


def test_attention_for_shared_prompts_is_that_of_torch_where_none_is_shared():
    model, ids = laid_out("llama", "shared_prompts"), torch.arange(8).reshape(2, 4)
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    expected = model_of("llama")(input_ids=ids, attention_mask=mask).logits
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, expected)


@pytest.mark.parametrize(
    "architecture",
    [
        MistralConfig(sliding_window=16),
        Qwen2Config(num_hidden_layers=2, layer_types=["full_attention", "sliding_attention"], sliding_window=16),
    ],
)
def test_prompts_are_shared_with_full_attention_alone(architecture: PretrainedConfig):
    require_full_attention(Qwen2Config())
    with pytest.raises(ConfigError, match=r"needs full attention in every layer, .* use trainer"):
        require_full_attention(architecture)


def test_the_chunk_of_logits_follows_from_the_vocabulary_unless_it_is_set():
    assert TrainerConfig().chunk_for(151_936) == 883  # 512 MiB of float32
    assert TrainerConfig().chunk_for(10**9) == 1
    chunks = [
        Scoring.of(
            model_of("llama"),
            TrainerConfig(logits_chunk=size),
            torch.device("cpu"),
            temperature=1.0,
            micro_batch_tokens=1,
        )
        for size in (0, 7)
    ]
    assert [scoring.logits_chunk for scoring in chunks] == [(512 << 20) // (4 * 200), 7]
