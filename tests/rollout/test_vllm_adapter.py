"""What vLLM is handed of an adapter is what `peft` reads as the trainer's; `test_vllm_engine.py` asks vLLM itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor

from autoclave.config import LoraConfig
from autoclave.core import ConfigError, InputError
from autoclave.models import Digest, digests, is_of_adapter, with_adapter
from autoclave.rollout.vllm_adapter import HotAdapter
from autoclave.workers.weights.table import Weight, WeightTable
from tests.training_parts import tiny_policy

LORA = LoraConfig(rank=3, alpha=7.0)
IDS = torch.arange(2, 20)[None]


@dataclass
class Named:
    """In place of vLLM's request, which it is like."""

    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool = False


class Reading:
    """Reads adapters by `peft`, and reports them as vLLM would, in its layout's number format."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.logits = torch.zeros(0)
        self.held: dict[str, Tensor] = {}
        self.bytes = 0

    def add_lora(self, request: Named) -> None:
        assert request.load_inplace
        folder = Path(request.lora_path)
        self.bytes = sum(path.stat().st_size for path in folder.iterdir())
        with torch.no_grad():
            self.logits = PeftModel.from_pretrained(tiny_policy().model, str(folder))(IDS).logits
        stored = load_file(folder / "adapter_model.safetensors")
        plain = {name.removeprefix("base_model.model."): tensor for name, tensor in stored.items()}
        self.held = {n.replace(".weight", ".default.weight"): t.to(self.dtype) for n, t in plain.items()}

    def collective_rpc(self, method: str, args: tuple[int]) -> list[dict[str, Digest]]:
        assert (method, args) == ("adapter_digests", (3,))
        return [digests(self.held)]


@pytest.fixture(autouse=True)
def vllm_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vllm", "vllm.lora", "vllm.lora.request"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["vllm.lora.request"], "LoRARequest", Named, raising=False)


def learnt() -> tuple[Tensor, dict[str, Tensor]]:
    """The trainer's logits, and its matrices as they lie in the memory of a publish."""
    model: Any = with_adapter(tiny_policy().model, LORA, seed=0)
    generator = torch.Generator().manual_seed(1)
    matrices = {name: each for name, each in model.named_parameters() if is_of_adapter(name)}
    table = WeightTable.of(Weight((name,), each.dtype, tuple(each.shape)) for name, each in matrices.items())
    places = table.views(torch.empty(table.num_bytes, dtype=torch.uint8))
    with torch.no_grad():
        for name, matrix in matrices.items():
            matrix.add_(torch.randn(matrix.shape, generator=generator) * 0.1)
            places[name].copy_(matrix)
        return model(IDS).logits, places


def test_an_adapter_that_is_read_gives_the_logits_of_the_trainer_and_the_digests_that_it_published():
    engine, adapter = Reading(), HotAdapter(tiny_policy().model.config, LORA)
    adapter.start(engine)
    with torch.no_grad():
        assert torch.equal(engine.logits, tiny_policy().model(IDS).logits)  # it changes nothing yet
    expected, matrices = learnt()
    adapter.require_names(4, matrices)
    adapter.load(engine, 4, matrices)
    assert (engine.logits - expected).abs().max() < 1e-5
    assert adapter.digests(engine) == digests(matrices)
    assert adapter.request == Named("policy", 1, "version-4")
    assert not list(Path("/dev/shm").glob("autoclave-adapter-*"))


def test_an_adapter_that_is_held_in_bfloat16_is_proven_and_another_one_is_not():
    engine, adapter = Reading(torch.bfloat16), HotAdapter(tiny_policy().model.config, LORA)
    _, matrices = learnt()
    adapter.load(engine, 1, matrices)
    assert adapter.digests(engine) == digests(matrices)
    name = "model.layers.1.self_attn.v_proj.lora_B.default.weight"
    engine.held[name][0, 0] += 1
    found = adapter.digests(engine)
    assert [each for each in matrices if found[each] != digests(matrices)[each]] == [name]


@pytest.mark.parametrize("change", ["missing", "unknown", "shape"])
def test_matrices_of_another_adapter_are_refused(change: str):
    _, matrices = learnt()
    name = next(iter(matrices))
    other = {
        "missing": {key: each for key, each in matrices.items() if key != name},
        "unknown": {**matrices, "extra.lora_A.default.weight": torch.zeros(1)},
        "shape": {**matrices, name: torch.zeros(1, 2)},
    }[change]
    with pytest.raises(InputError, match=r"weights of version 2 are not those of this model's adapter: \["):
        HotAdapter(tiny_policy().model.config, LORA).require_names(2, other)


def test_a_rank_that_vllm_does_not_have_is_an_error_and_others_get_the_next_size():
    config = tiny_policy().model.config
    sizes = {rank: HotAdapter(config, LoraConfig(rank=rank)).arguments()["max_lora_rank"] for rank in (1, 3, 16, 65)}
    assert sizes == {1: 1, 3: 8, 16: 16, 65: 128}
    with pytest.raises(ConfigError, match=r"trainer\.lora\.rank = 600: vLLM holds ranks up to 512"):
        HotAdapter(config, LoraConfig(rank=600))


@pytest.mark.parametrize("free", [10, 1 << 40])
def test_an_adapter_goes_into_the_memory_of_the_host_where_that_has_room(free: int, monkeypatch: pytest.MonkeyPatch):
    folders: list[Path] = []
    engine = Reading()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    monkeypatch.setattr(engine, "add_lora", lambda request: folders.append(Path(request.lora_path)))
    HotAdapter(tiny_policy().model.config, LORA).start(engine)
    assert (folders[0].parent == Path("/dev/shm")) == (free > 10)
