"""The reward function for verl: as plain Python, and loaded and called by verl itself (`make test-verl`)."""

from __future__ import annotations

import json

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
