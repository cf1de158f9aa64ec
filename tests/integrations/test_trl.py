"""A real step of TRL's trainer with rewards by the judge."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError, JudgeFault
from autoclave.integrations.trl import CodeReward

pytest.importorskip("trl", reason="trl is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PROBLEM = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})
RIGHT, WRONG = "```python\nprint(input())\n```", "```python\nprint(2)\n```"


@pytest.fixture(scope="module")
def reward() -> Iterator[CodeReward]:
    opened = CodeReward(["judge.workers=1"])
    yield opened
    opened.close()


def break_judge(reward: CodeReward) -> None:
    for sandbox in reward._scorer._judge._sandboxes:
        sandbox.close()


def trainer_of(reward: Any, folder: Path) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from autoclave.config import TinyModelConfig
    from autoclave.models.tiny import build_tiny_policy

    policy = build_tiny_policy(
        TinyModelConfig(layers=1, hidden_size=32, heads=2), ["print it", RIGHT, WRONG] * 4, seed=0, device="cpu"
    )
    settings = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=1,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    data = Dataset.from_list([{"prompt": "print it", "problem": PROBLEM}] * 4)
    return GRPOTrainer(
        model=policy.model.train(),
        reward_funcs=reward,
        args=settings,
        train_dataset=data,
        processing_class=policy.tokenizer,
    )


class Dictated(CodeReward):
    """A random model never writes a program: its completions are replaced by these, the rest is real."""

    _dictated = (RIGHT, WRONG, RIGHT, "no program")

    def _verdicts(self, completions: Any, columns: dict[str, Any]) -> Any:
        return super()._verdicts(self._dictated, columns)


def test_a_step_of_grpo_trains_on_verdicts(tmp_path: Path):
    import torch

    reward = Dictated(["judge.workers=1"])
    trainer = trainer_of(reward, tmp_path)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    reward.close()
    logged = next(one for one in trainer.state.log_history if "rewards/code_reward/mean" in one)
    assert logged["rewards/code_reward/mean"] == 0.5
    assert logged["judge/no_verdict"] == 0.0
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.named_parameters())


def test_completions_of_the_model_itself_are_judged(tmp_path: Path, reward: CodeReward):
    trainer = trainer_of(reward, tmp_path)
    trainer.train()
    assert any(one.get("rewards/code_reward/mean") == 0.0 for one in trainer.state.log_history)


def test_a_fault_can_end_the_step(tmp_path: Path):
    reward = Dictated(["judge.workers=1"], on_fault="raise")
    break_judge(reward)
    with pytest.raises(JudgeFault, match="no verdict"):
        trainer_of(reward, tmp_path).train()


def test_trainers_that_take_none_for_zero_get_a_fault():
    reward = Dictated(["judge.workers=1"])
    break_judge(reward)
    with contextlib.closing(reward), pytest.raises(JudgeFault, match="no verdict"):
        reward(prompts=["Add."] * 4, completions=[""] * 4, problem=[PROBLEM] * 4)


def test_a_step_without_verdicts_trains_nothing(tmp_path: Path):
    reward = Dictated(["judge.workers=1"])
    break_judge(reward)
    trainer = trainer_of(reward, tmp_path)
    trainer.train()
    logged = next(one for one in trainer.state.log_history if "rewards/code_reward/mean" in one)
    assert math.isnan(logged["rewards/code_reward/mean"]) or logged["rewards/code_reward/mean"] == 0.0
    assert logged["judge/no_verdict"] == 0.75  # what has no program needs no judge


class OddRow(Dictated):
    """Dictated completions, of which the last belongs to a row that cannot be judged."""

    _dictated = (RIGHT, WRONG, RIGHT, RIGHT)

    def _verdicts(self, completions: Any, columns: dict[str, Any]) -> Any:
        columns["problem"][-1] = '{"functional": ""}'
        return super()._verdicts(completions, columns)


@pytest.mark.parametrize("has_other", [False, True])
def test_a_row_without_a_verdict_is_outside_of_baseline_and_loss(tmp_path: Path, has_other: bool):
    import torch

    def lengths(completions: list[str], **_: Any) -> list[float]:
        return [0.25, 0.5, 0.75, 8.0]

    reward = OddRow(["judge.workers=1"])
    trainer = trainer_of([reward.beside(lengths), reward] if has_other else reward, tmp_path)
    trainer.train()
    reward.close()
    rewards = torch.tensor([1.25, 0.5, 1.75] if has_other else [1.0, 0.0, 1.0])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    found = torch.tensor(list(trainer._logs["advantages"]))
    assert found[3] == 0.0
    torch.testing.assert_close(found[:3], expected)


def test_messages_are_completions_too(reward: CodeReward):
    completions = [[{"role": "assistant", "content": RIGHT}], [{"role": "assistant", "content": WRONG}]]
    assert reward(prompts=["", ""], completions=completions, problem=[PROBLEM] * 2) == [1.0, 0.0]


def test_a_missing_column_is_named(reward: CodeReward):
    with pytest.raises(InputError, match="no column 'problem'"):
        reward(prompts=[""], completions=[RIGHT])
    with pytest.raises(InputError, match="raise or none"):
        CodeReward(on_fault="zero")
