"""Weights that vLLM packs and spreads over ranks have the digests of those that were published.

Layers here have the attributes and the layout of vLLM's, which is not needed; `test_vllm_engine.py` asks the real one.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from autoclave.models import digests, joined_digests
from autoclave.rollout.vllm_layout import adapter_shards_of, shards_of


def published(kv_heads: int) -> dict[str, Tensor]:
    """The weights of a small Llama with tied embeddings, by their Hugging Face names."""
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=60, num_key_value_heads=kv_heads, tie_word_embeddings=True, **shape)
    )
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def layer(weight: Tensor, **attributes: object) -> nn.Module:
    made = nn.Module()
    made.weight = nn.Parameter(weight.clone())
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def packed(weights: dict[str, Tensor], rank: int, ranks: int, *, copies: int = 1) -> nn.Module:
    """The rank of a model of vLLM that holds `weights`; `copies` ranks share each head of keys and values."""
    split = {"tp_rank": rank, "tp_size": ranks}
    root = nn.Module()
    root.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}

    def place(path: str, module: nn.Module) -> None:
        at = root
        *parents, own = path.split(".")
        for part in parents:
            if part not in dict(at.named_children()):
                at.add_module(part, nn.Module())
            at = at.get_submodule(part)
        at.add_module(own, module)

    def rows(names: list[str], shares: list[int]) -> tuple[Tensor, list[int]]:
        parts = [weights[name].chunk(share)[rank * share // ranks] for name, share in zip(names, shares, strict=True)]
        return torch.cat(parts), [len(part) for part in parts]

    for number in range(2):
        at = f"model.layers.{number}"
        heads, sizes = rows(
            [f"{at}.self_attn.{n}_proj.weight" for n in "qkv"], [ranks, ranks // copies, ranks // copies]
        )
        place(
            f"{at}.self_attn.qkv_proj", layer(heads, output_partition_sizes=sizes, num_kv_head_replicas=copies, **split)
        )
        gates, sizes = rows([f"{at}.mlp.{n}_proj.weight" for n in ("gate", "up")], [ranks, ranks])
        place(f"{at}.mlp.gate_up_proj", layer(gates, output_partition_sizes=sizes, **split))
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            whole = weights[f"{at}.{name}.weight"]
            own = whole.chunk(ranks, dim=1)[rank]
            sizes = {"input_size": whole.shape[1], "input_size_per_partition": own.shape[1]}
            place(f"{at}.{name}", layer(own, output_partition_sizes=[len(whole)], **sizes, **split))
        for name in ("input_layernorm", "post_attention_layernorm"):
            place(f"{at}.{name}", layer(weights[f"{at}.{name}.weight"]))
    place("model.norm", layer(weights["model.norm.weight"]))
    share = weights["model.embed_tokens.weight"].chunk(ranks)[rank]
    start = rank * len(weights["model.embed_tokens.weight"].chunk(ranks)[0])
    indices = SimpleNamespace(org_vocab_start_index=start, org_vocab_end_index=start + len(share))
    padded = torch.cat([share, torch.full((64, share.shape[1]), 7.0)])
    root.model.add_module("embed_tokens", layer(padded, shard_indices=indices, **split))
    root.add_module("lm_head", root.model.embed_tokens)
    return root


@pytest.mark.parametrize(("ranks", "copies"), [(1, 1), (2, 1), (2, 2)])
def test_packed_weights_have_the_digests_of_the_published_ones(ranks: int, copies: int):
    weights = published(kv_heads=4 // copies)
    models = [packed(weights, rank, ranks, copies=copies) for rank in range(ranks)]
    found = joined_digests(digests(shards_of(model, rank)) for rank, model in enumerate(models))
    assert found == digests(weights)
    with torch.no_grad():
        models[-1].get_submodule("model.layers.1.mlp.gate_up_proj").weight[0, 0] += 0.5
    changed = joined_digests(digests(shards_of(model, rank)) for rank, model in enumerate(models))
    assert [name for name in weights if changed[name] != found[name]] == ["model.layers.1.mlp.gate_proj.weight"]


def test_a_weight_that_was_repacked_is_absent():
    weights = published(kv_heads=4)
    model = packed(weights, 0, 1)
    model.get_submodule("model.layers.0.self_attn.qkv_proj").weight = nn.Parameter(torch.empty(0))
    assert weights.keys() - shards_of(model, 0).keys() == {f"model.layers.0.self_attn.{n}_proj.weight" for n in "qkv"}


@pytest.mark.parametrize(("ranks", "copies"), [(1, 1), (2, 1), (2, 2)])
def test_an_adapter_has_the_digests_of_the_published_one(ranks: int, copies: int):
    """Held with room for larger ranks; the columns of A or the rows of B are spread over ranks."""
    shapes = {"q_proj": (32, 32), "k_proj": (32 // copies, 32), "v_proj": (32 // copies, 32), "o_proj": (32, 32)}
    draw = torch.Generator().manual_seed(0)
    weights: dict[str, Tensor] = {}
    for name, (rows, columns) in shapes.items():
        weights[f"attn.{name}.lora_A.default.weight"] = torch.randn(3, columns, generator=draw)
        weights[f"attn.{name}.lora_B.default.weight"] = torch.randn(rows, 3, generator=draw)

    def wrapped(names: list[str], rank: int, *, by_columns: bool = False) -> nn.Module:
        made, downs, ups = nn.Module(), [], []
        for place, name in enumerate(names):
            share = ranks // copies if place else ranks
            down, up = (weights[f"attn.{name}.lora_{kind}.default.weight"] for kind in "AB")
            down = down.chunk(ranks, dim=1)[rank] if by_columns else down
            up = up if by_columns else up.chunk(share)[rank * share // ranks]
            downs.append(torch.zeros(1, 1, 8, down.shape[1]))
            ups.append(torch.zeros(1, 1, len(up), 8))
            downs[-1][0, 0, :3], ups[-1][0, 0, :, :3] = down, up
        made.lora_a_stacked, made.lora_b_stacked, made.tp_size = tuple(downs), tuple(ups), ranks
        made.base_layer = layer(torch.zeros(1), input_size=32, num_kv_head_replicas=copies)
        if by_columns:
            made.base_layer.input_size_per_partition = 32 // ranks
        return made

    def model(rank: int) -> nn.Module:
        root = nn.Module()
        root.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
        root.attn = nn.Module()
        root.attn.qkv_proj = wrapped(["q_proj", "k_proj", "v_proj"], rank)
        root.attn.o_proj = wrapped(["o_proj"], rank, by_columns=True)
        return root

    parts = [adapter_shards_of(model(rank), rank, 3) for rank in range(ranks)]
    assert joined_digests(digests(part) for part in parts) == digests(weights)


def test_weights_under_an_adapter_have_the_names_of_those_without_one():
    root = nn.Module()
    root.norm, root.head = layer(torch.ones(3)), nn.Module()
    root.head.base_layer = layer(torch.ones(2, 3), output_partition_sizes=[2])
    assert set(shards_of(root, 0)) == {"norm.weight", "head.weight"}
