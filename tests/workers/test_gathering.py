"""What ranks hold together leaves rank 0 weight by weight: to a publish, and to the folder of a run."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from autoclave.config import LoraConfig, TrainerConfig
from autoclave.core import HostError
from autoclave.models import load_policy, save_model, stored, with_adapter
from autoclave.workers.trainer import learner, sources
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.sharding import hold
from autoclave.workers.trainer.sources import Source, gathered_weights, sources_of, write_sources
from autoclave.workers.weights.table import WeightTable
from tests.training_parts import tiny_policy
from tests.workers.actor_conformance import Setup
from tests.workers.changing_actor import make_actor

SHARDED = TrainerConfig(mixed_precision="bfloat16")  # by FSDP2 also in one process
LARGEST = max(each.nbytes for each in tiny_policy().model.parameters())
WHOLE = sum(each.nbytes for each in tiny_policy().model.parameters())


class Gathered:
    """Bytes of gathered weights that are alive."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __call__(self, tensor: Tensor) -> Tensor:
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        memory = np.empty(whole.nbytes, dtype=np.uint8)  # lives as long as any view of it
        self.now += whole.nbytes
        self.most = max(self.most, self.now)
        weakref.finalize(memory, self._gone, whole.nbytes)
        return torch.from_numpy(memory).view(whole.dtype).view(whole.shape).copy_(whole)

    def _gone(self, size: int) -> None:
        self.now -= size


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> Gathered:
    counter = Gathered()
    monkeypatch.setattr(sources, "whole", counter)
    return counter


def actor(folder: Path) -> ActorWorker:
    save_model(tiny_policy(), folder)
    return make_actor(folder, Setup(), SHARDED)


def test_a_publish_gathers_one_weight_at_a_time(gathered: Gathered):
    model = tiny_policy().model
    hold(model, SHARDED, torch.device("cpu"))
    found = sources_of(model)
    table = WeightTable.of(source.weight for source in found)
    write_sources(found, table.views(torch.empty(table.num_bytes, dtype=torch.uint8)), gathers=True)
    assert 0 < gathered.most <= 2 * LARGEST < WHOLE


def test_a_policy_is_written_with_no_more_of_it_in_memory_than_a_file_takes(
    gathered: Gathered, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(stored, "FILE_BYTES", WHOLE // 8)
    trained = actor(tmp_path / "start")
    trained.export(tmp_path / "export")
    assert gathered.most <= WHOLE // 8 + 2 * LARGEST < WHOLE
    assert len(list((tmp_path / "export").glob("model-*.safetensors"))) > 4
    found = load_policy(tmp_path / "export", device="cpu")
    expected = tiny_policy().model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.model.state_dict().items())
    assert found.model.config.architectures == ["LlamaForCausalLM"]


def test_a_merged_policy_and_its_adapter_are_written_together(tmp_path: Path):
    policy = tiny_policy()
    with_adapter(policy.model, LoraConfig(rank=2), seed=0)
    for name, weights in policy.model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.constant_(weights, 0.1)
    setup = Setup()
    trained = ActorWorker(
        policy, setup.algorithm, setup.optimizer, total_steps=1, temperature=1.0, micro_batch_tokens=9, trainer=SHARDED
    )
    trained.export(tmp_path)
    expected = trained.export_weights()
    found = load_policy(tmp_path, device="cpu").model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_a_disk_that_fails_leaves_no_rank_waiting(tmp_path: Path, gathered: Gathered, monkeypatch):
    """The others take part in gathering each weight, so all are asked for, also after a failure."""
    monkeypatch.setattr(stored, "FILE_BYTES", WHOLE // 8)
    trained = actor(tmp_path / "start")
    asked: list[str] = []

    def counted(found: Iterable[Source]) -> Iterator[tuple[Sequence[str], Tensor]]:
        for names, tensor in gathered_weights(found):
            asked.append(names[0])
            yield names, tensor

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(learner, "gathered_weights", counted)
    monkeypatch.setattr(trained._policy.model, "save_pretrained", full)
    with pytest.raises(HostError, match="No space left"):
        trained.export(tmp_path / "export")
    assert len(asked) == len(dict(tiny_policy().model.named_parameters()))
