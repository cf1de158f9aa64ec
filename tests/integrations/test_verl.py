"""The reward function for verl: as plain Python, and loaded and called by verl itself (`make test-verl`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autoclave.core import JudgeFault
from autoclave.integrations.scoring import _kept_scorer, scorer_of_process
from autoclave.integrations.verl import compute_score

SETTINGS = ["judge.workers=1"]
TRUTH = json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]})
RIGHT, HALF = "```python\nprint(input())\n```", "```python\nprint(1)\n```"


@pytest.fixture(autouse=True, scope="module")
def _judges_are_closed():
    yield
    scorer_of_process(tuple(SETTINGS), "binary").close()
    scorer_of_process(tuple(SETTINGS), "fraction").close()
    _kept_scorer.cache_clear()


def test_a_score_has_the_status_of_the_program():
    assert compute_score("d", RIGHT, TRUTH, settings=SETTINGS) == {"score": 1.0, "acc": True, "status": "accepted"}
    half = compute_score("d", HALF, TRUTH, {"index": 1}, settings=SETTINGS, reward="fraction")
    assert half == {"score": 0.5, "acc": False, "status": "wrong_answer"}
    assert compute_score("d", "nothing", TRUTH, settings=SETTINGS)["status"] == "bad_format"


def test_a_fault_raises_and_gives_no_score():
    settings = ["judge.workers=1", "judge.pending_limit=63"]
    for sandbox in scorer_of_process(tuple(settings), "binary")._judge._sandboxes:
        sandbox.close()
    with pytest.raises(JudgeFault):
        compute_score("d", RIGHT, TRUTH, settings=settings)
    scorer_of_process(tuple(settings), "binary").close()


@pytest.mark.verl
@pytest.mark.filterwarnings("ignore")
def test_verl_loads_it_and_its_reward_manager_calls_it():
    import asyncio

    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    class Tokenizer:
        """Text as code points."""

        def decode(self, ids: torch.Tensor, skip_special_tokens: bool = True) -> str:
            return "".join(map(chr, ids.tolist()))

    function = {
        "path": "pkg://autoclave.integrations.verl",
        "name": "compute_score",
        "reward_kwargs": {"settings": SETTINGS, "reward": "fraction"},
    }
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})

    async def scored(response: str) -> dict[str, object]:
        manager = NaiveRewardManager(config, Tokenizer(), get_custom_reward_fn(config))
        ids = torch.tensor([[ord(char) for char in response]])
        batch = TensorDict({"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=1)
        row = {"data_source": ["code"], "reward_model": [{"ground_truth": TRUTH}], "extra_info": [{}]}
        import numpy as np

        columns = {name: np.array(value, dtype=object) for name, value in row.items()}
        return await manager.run_single(DataProto(batch=batch, non_tensor_batch=columns))

    assert asyncio.run(scored(RIGHT))["reward_score"] == 1.0
    half = asyncio.run(scored(HALF))
    assert (half["reward_score"], half["reward_extra_info"]["status"]) == (0.5, "wrong_answer")


ODD = '{"functional": ""}'


@pytest.mark.verl
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce_plus_plus_baseline"])
def test_a_response_without_a_verdict_is_in_no_batch_of_verl(queue: None, estimator: str):
    """Verl's agent loop, transfer queue, replay buffer and advantages; the responses are given."""
    import asyncio

    with_odd = asyncio.run(advantages([[RIGHT, HALF, RIGHT, HALF], [RIGHT, HALF, HALF, HALF]], {(0, 1)}, estimator))
    without = asyncio.run(advantages([[RIGHT, RIGHT, HALF], [RIGHT, HALF, HALF, HALF]], set(), estimator))
    assert len(with_odd) == 7
    assert with_odd == pytest.approx(without, abs=1e-5)  # of sums in another order
    assert len(set(with_odd)) > 2


@pytest.fixture(scope="module")
def queue() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    transfer_queue = pytest.importorskip("transfer_queue")
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    transfer_queue.init()
    yield
    transfer_queue.close()
    ray.shutdown()


async def advantages(groups: list[list[str]], odd: set[tuple[int, int]], estimator: str) -> list[float]:
    """Return the advantage of each response that reaches the trainer."""
    import ray
    import transfer_queue
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.trainer.ppo.v1 import agent_loop_tq, replay_buffer, trainer_base

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "rollout": {"n": 4},
            },
            "reward": {
                "custom_reward_function": {"path": None},
                "reward_model": {"enable": False},
                "reward_manager": {
                    "source": "importlib",
                    "name": "RewardManager",
                    "module": {"path": "pkg://autoclave.integrations.verl"},
                },
                "reward_kwargs": {"settings": SETTINGS, "reward": "fraction"},
            },
            "algorithm": {"adv_estimator": estimator, "use_kl_in_reward": False, "gamma": 1.0, "lam": 1.0},
        }
    )

    class Characters:
        def decode(self, ids: Any, skip_special_tokens: bool) -> str:
            return "".join(map(chr, ids.tolist()))

    class Rewards(RewardLoopWorker):
        def _init_reward_fn(self) -> None:
            from verl.trainer.ppo.reward import load_reward_manager

            self.reward_manager = load_reward_manager(self.config, Characters(), reward_router_address=None)

    class Sessions(agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class):
        def __init__(self) -> None:
            self.config, self.processor, self.mm_processor_kwargs = config, None, {}
            self.distillation_enabled, self.hf_model_type = False, None
            self.reward_loop_worker_handles = [ray.remote(Rewards).remote(config)]

        async def _run_agent_loop(
            self, params: Any, *, trajectory: Any, trace: bool, session_id: int, **row: Any
        ) -> None:
            ids = list(map(ord, row.pop("responses")[session_id]))
            row["reward_model"] = {"ground_truth": row.pop("truths")[session_id]}
            output = AgentLoopOutput(
                prompt_ids=[1], response_ids=ids, response_mask=[1] * len(ids), num_turns=2, metrics=AgentLoopMetrics()
            )
            await self._agent_loop_postprocess(output, False, session_id=session_id, **row)

    sessions = Sessions()
    trajectory = {"validate": False}
    for number, responses in enumerate(groups):
        uid = f"{estimator}{len(odd)}-{number}".replace("_", "-")  # keys are split at underscores
        truths = [ODD if (number, place) in odd else TRUTH for place in range(len(responses))]
        tag = {"is_prompt": True, "status": "pending", "global_steps": 1}
        await transfer_queue.async_kv_put(key=uid, partition_id="train", tag=tag)
        row = {"uid": uid, "global_steps": 1, "data_source": "code", "responses": responses, "truths": truths}
        await sessions._run_prompt(row | {"__rollout_n__": len(responses)}, {}, trajectory)

    buffer = replay_buffer.ReplayBuffer(
        "sync", OmegaConf.create({}), 1, "drop", OmegaConf.create({}), poll_interval=0.1
    )
    batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=len(groups))
    trainer = SimpleNamespace(config=config)
    batch = trainer_base.PPOTrainer._compute_advantage(trainer, batch, {})
    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages"])
    found = dict(zip(batch.keys, data["advantages"].unbind(), strict=True))
    return sorted(round(float(row[0]), 6) for row in found.values())
