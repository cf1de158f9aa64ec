"""What is saved of a model goes on exactly, on another number of ranks too; what is lost or foreign is named."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
import torch
import torch.distributed
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from autoclave.core import CheckpointError, HostError
from autoclave.core.files import check_manifest
from autoclave.workers import Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.spawn_executor import SpawnExecutor
from autoclave.workers.trainer import saved_state
from autoclave.workers.trainer.saved_state import StateWriter, load_state, state_of

WIDTH = 24


def model_of(width: int = WIDTH, layers: int = 2, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=width,
            intermediate_size=20,
            num_hidden_layers=layers,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
    )


class Learner:
    """A Llama that learns a fixed batch: whole on one rank, or sharded by FSDP2 over all ranks of its group."""

    def __init__(self, seed: int = 0, width: int = WIDTH, layers: int = 2) -> None:
        self.model = model_of(width, layers, seed)
        if torch.distributed.is_initialized():
            mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
            for layer in (*self.model.model.layers, self.model):
                fully_shard(layer, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.writer, self.steps = StateWriter(), 0

    @register(Dispatch.ONE_TO_ALL)
    def train(self, steps: int) -> dict[str, Tensor]:
        """Take some steps and return the whole weights."""
        for _ in range(steps):
            ids = torch.randint(0, 40, (4, 12), generator=torch.Generator().manual_seed(self.steps))
            self.optimizer.zero_grad()
            self.model(input_ids=ids, labels=ids).loss.backward()
            self.optimizer.step()
            self.steps += 1
        return {name: _whole(tensor.detach()).clone() for name, tensor in self.model.state_dict().items()}

    @register(Dispatch.ONE_TO_ALL)
    def look(self) -> None:
        """A forward pass without a backward one, after which FSDP2 keeps the outer weights whole."""
        with torch.no_grad():
            self.model(input_ids=torch.zeros(1, 3, dtype=torch.int64))

    @register(Dispatch.ONE_TO_ALL)
    def limit_files(self, rank: int, size: int) -> None:
        """No file that `rank` writes can grow above `size` bytes."""
        if torch.distributed.get_rank() == rank:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    @register(Dispatch.ONE_TO_ALL)
    def begin_save(self, folder: Path) -> None:
        self.writer.begin(state_of(self.model, self.optimizer, self.steps), folder)

    @register(Dispatch.ONE_TO_ALL)
    def save(self, folder: Path) -> None:
        self.begin_save(folder)
        assert self.writer.finish(wait=True)

    @register(Dispatch.ONE_TO_ALL)
    def load(self, folder: Path) -> dict[str, Tensor]:
        self.steps = load_state(self.model, self.optimizer, folder, self.writer.process_group())
        return self.train(0)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def distance(weights: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    assert weights.keys() == others.keys()
    return max(float((weights[name] - others[name]).abs().max()) for name in weights)


# --- In one process ------------------------------------------------------------------------------------------------


def test_what_was_saved_goes_on_bit_for_bit(tmp_path: Path):
    learner = Learner()
    learner.train(3)
    learner.save(tmp_path)
    expected = learner.train(3)
    resumed = Learner(seed=1)
    resumed.load(tmp_path)
    assert distance(resumed.train(3), expected) == 0
    assert resumed.steps == 6


def test_what_is_written_is_the_state_at_the_beginning_of_the_save(tmp_path: Path):
    learner = Learner()
    saved = learner.train(2)
    learner.begin_save(tmp_path)
    later = learner.train(2)
    learner.writer.finish(wait=True)
    assert distance(Learner(seed=1).load(tmp_path), saved) == 0
    assert distance(later, saved) > 1e-3


def test_before_the_first_step_there_is_nothing_of_the_optimizer_to_save(tmp_path: Path):
    learner = Learner()
    learner.save(tmp_path)
    expected = learner.train(2)
    resumed = Learner(seed=1)
    resumed.load(tmp_path)
    assert not resumed.optimizer.state
    assert distance(resumed.train(2), expected) == 0


def test_weights_that_do_not_train_are_not_written(tmp_path: Path):
    learner = Learner()
    learner.model.model.embed_tokens.requires_grad_(False)
    names = state_of(learner.model, learner.optimizer, 0).keys()
    assert "model.model.norm.weight" in names
    assert not any("embed_tokens" in name or "lm_head" in name for name in names)


def test_tensors_are_spread_over_files_of_a_size(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(saved_state, "FILE_BYTES", 4000)
    learner = Learner()
    saved = learner.train(1)
    learner.save(tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert len(sizes) > 5
    assert max(sizes) < 4000 + 40 * WIDTH * 4 + 4000  # a tensor more, and the header
    check_manifest(tmp_path)
    assert distance(Learner(seed=1).load(tmp_path), saved) == 0


def test_a_full_disk_is_named_and_the_next_save_may_succeed(tmp_path: Path):
    learner = Learner()
    learner.train(1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(HostError, match=r"full: cannot be written \(File too large\)"):
            learner.save(tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "full" / "manifest.json").exists()
    learner.save(tmp_path / "roomy")
    check_manifest(tmp_path / "roomy")


@pytest.mark.parametrize("operation", range(1, 4))
def test_a_disk_that_fails_at_any_sync_is_named(tmp_path: Path, monkeypatch, operation):
    """One for the tensors, two for the manifest and its name."""
    learner, sync, left = Learner(), os.fsync, [operation]

    def fsync(handle: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.EIO, "Input/output error")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(HostError, match="Input/output error"):
        learner.save(tmp_path)


def test_a_model_of_another_shape_is_refused_with_the_tensor_that_differs(tmp_path: Path):
    Learner().save(tmp_path)
    with pytest.raises(CheckpointError, match=r"Size mismatch between saved .*24.* and current.*32"):
        Learner(width=32).load(tmp_path)
    with pytest.raises(CheckpointError, match=r"of another model: this one has no model\.layers\.1\."):
        Learner(layers=1).load(tmp_path)
    with pytest.raises(CheckpointError, match=r"Missing key .*model\.layers\.2\."):
        Learner(layers=3).load(tmp_path)


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: os.truncate(file, 5000)])
def test_a_lost_or_cut_file_is_refused(tmp_path: Path, damage):
    learner = Learner()
    learner.train(1)
    learner.save(tmp_path)
    damage(next(tmp_path.glob("*.safetensors")))
    with pytest.raises(CheckpointError, match=f"{tmp_path}: damaged"):
        Learner().load(tmp_path)


# --- On two --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_ranks_go_on_from_one_and_one_from_two(tmp_path: Path):
    pool = ResourcePool("two", SpawnExecutor([(), ()]))
    try:
        two = WorkerGroup(pool, Learner, process_group=True)
        one = Learner(seed=1)
        saved = one.train(3)
        one.save(tmp_path / "of-one")
        expected = one.train(3)

        two.look()
        assert distance(two.load(tmp_path / "of-one").result(), saved) == 0
        two.look()  # weights that are whole on both ranks are saved as those that are not
        two.save(tmp_path / "of-two").result()
        beyond = two.train(3).result()
        assert distance(beyond, expected) < 2e-6

        back = Learner(seed=2)
        assert distance(back.load(tmp_path / "of-two"), saved) == 0
        assert distance(back.train(3), expected) == 0  # sharded and put together again, nothing was rounded

        two.load(tmp_path / "of-two").result()
        assert distance(two.train(3).result(), beyond) == 0
        names = sorted(path.name for path in (tmp_path / "of-two").iterdir())
        assert names == ["manifest.json", *(f"shard-0000{n}-model-00001-of-00001.safetensors" for n in (1, 2))]
        halves = [(tmp_path / "of-two" / name).stat().st_size for name in names[1:]]
        assert max(halves) < 0.7 * sum(halves)

        two.limit_files(1, 10_000).result()
        with pytest.raises(HostError, match=r"full: cannot be written \(File too large\)"):
            two.save(tmp_path / "full").result()  # the disk of one of them is full
        assert not (tmp_path / "full" / "manifest.json").exists()
        assert distance(two.load(tmp_path / "of-one").result(), saved) == 0
    finally:
        pool.close()
