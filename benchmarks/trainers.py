"""Time of a GRPO step, ours and that of TRL's GRPOTrainer, side by side; peak memory of both.

    python benchmarks/trainers.py [--quick] [--json FILE]        (TRL comes with `make setup-bench`)

All start from the same random policy and do the same work in a step: sample the same number of responses to the same
prompts, all of the same length (the token that ends a response does not exist), reward them by the same Python
function, and take one optimizer step on all of them. In the first step all learn from the same given responses, and
loss, gradient norm and entropy are compared before any time is. TRL runs twice: without what makes it slower here
(gradient checkpointing, bfloat16), with the micro-batches that suit it best; and with its defaults. Each side lives in
a process of its own with one thread; they take turns. CPU times stand beside the times of the clock: on a machine with
other work they are what the clock would show on an idle one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness import Comparison, arguments, finish, print_environment, seconds, sized
from sides import Times, Turn, open_sides

from autoclave.config import SyntheticConfig, TinyModelConfig
from autoclave.rollout import by_last_turn

NEVER = "<never>"
"""A token that is not in the model's vocabulary, so that no response ends before its last token."""


@dataclass(frozen=True)
class Case:
    """A model, and the size of a step."""

    model: TinyModelConfig
    prompts: int
    group_size: int = 8
    new_tokens: int = 64


CASES = {
    "": Case(TinyModelConfig(hidden_size=128, layers=5), prompts=16),
    "_4m": Case(TinyModelConfig(hidden_size=256, layers=5, heads=8), prompts=16),
    "_30m": Case(TinyModelConfig(hidden_size=512, layers=10, heads=8), prompts=4),
    "_demo": Case(TinyModelConfig(), prompts=64),  # the step of recipes/demo.yaml
}
"""By the suffix of their figures: policies of 1, 4, 32 and 0.4 million weights."""
TINY = {"": Case(TinyModelConfig(hidden_size=48, layers=1, heads=3), prompts=2, group_size=2, new_tokens=8)}


@dataclass(frozen=True)
class Work:
    """What a side is asked to do."""

    folder: Path
    statements: tuple[str, ...]
    group_size: int
    new_tokens: int
    micro_batch_rows: int
    steps: int

    @property
    def rows(self) -> int:
        return len(self.statements) * self.group_size

    @property
    def given(self) -> np.ndarray:
        """(rows, new_tokens): the responses that the first step learns from; of the bytes of the vocabulary."""
        return np.random.default_rng(0).integers(4, 260, (self.rows, self.new_tokens))


CHECKED = {"loss": 1e-5, "gradient_norm": 1e-3, "entropy": 1e-3}
"""What the sides say of the first step, and how far they may be apart, relative to values above 1."""


def reward_of(text: str) -> float:
    """Something cheap that tells responses apart: the mean of the bytes."""
    return sum(text.encode()) / max(1, len(text.encode()))


def make_endless(model: Any, tokenizer: Any) -> None:
    """Change both in place, so that a response ends with `NEVER` only."""
    tokenizer.add_special_tokens({"eos_token": NEVER})
    end = tokenizer.eos_token_id
    if end < model.config.vocab_size:
        raise SystemExit("responses could end")
    model.config.eos_token_id = model.generation_config.eos_token_id = end


# --- The two sides -------------------------------------------------------------------------------------------------


def ours(work: Work, turn: Turn) -> None:
    """Steps by the three stages of training."""
    from autoclave.algorithms import build_algorithm
    from autoclave.config import GrpoConfig, OptimizerConfig
    from autoclave.core import Reward, TaskItem
    from autoclave.models import Policy, encode_prompt, load_policy
    from autoclave.rollout import SamplingParameters
    from autoclave.rollout.transformers_engine import TransformersEngine
    from autoclave.training.stages import Stages
    from autoclave.workers import ResourcePool, WorkerGroup
    from autoclave.workers.sampler.pool import SamplerPool
    from autoclave.workers.sampler.worker import SamplerWorker
    from autoclave.workers.trainer.actor import ActorWorker
    from autoclave.workers.trainer.critic import NoCritic
    from autoclave.workers.trainer.reference import NoReference, NoRewardModel
    from autoclave.workers.weights.publisher import Publisher

    def endless_policy() -> Policy:
        policy = load_policy(work.folder)
        make_endless(policy.model, policy.tokenizer)
        return policy

    def reward(item: TaskItem, response: str) -> Future[Reward]:
        future: Future[Reward] = Future()
        future.set_result(Reward(reward_of(response), "measured"))
        return future

    algorithm = build_algorithm(GrpoConfig(kl_coefficient=0.0))
    prompts = [({"role": "user", "content": statement},) for statement in work.statements]
    items = [TaskItem("benchmark", f"{number}", f"{number}", prompt, None) for number, prompt in enumerate(prompts)]
    tokenizer = endless_policy().tokenizer
    longest = max(len(encode_prompt(tokenizer, prompt)) for prompt in prompts) + work.new_tokens
    pool = ResourcePool("main")
    actor = WorkerGroup(
        pool,
        lambda: ActorWorker(
            endless_policy(),
            algorithm,
            OptimizerConfig(learning_rate=1e-5, decay="none"),
            total_steps=work.steps,
            temperature=1.0,
            micro_batch_tokens=longest * work.micro_batch_rows,
        ),
    )
    sampler = WorkerGroup(pool, lambda: SamplerWorker(TransformersEngine(endless_policy(), batch_size=512)))
    stages = Stages(
        actor=actor,
        reference=NoReference(),
        critic=NoCritic(),
        reward_model=NoRewardModel(),
        sampler=SamplerPool([sampler]),
        publisher=Publisher(actor, deadline_s=60.0, may_alias=True),
        tokenizer=tokenizer,
        grade=by_last_turn(reward),
        algorithm=algorithm,
        sampling=SamplingParameters(max_new_tokens=work.new_tokens),
        group_size=work.group_size,
        minibatches=1,
        seed=0,
    )
    try:
        stages.begin(0)
        found: Times = {}
        for number in range(work.steps):
            turn.begin()
            turn.end(_our_step(stages, items, number, work, found))
    finally:
        pool.close()


def _our_step(stages: Any, items: Sequence[Any], number: int, work: Work, checked: Times) -> Times:
    groups: list[Any] = []
    learned: list[Any] = []
    sample_s = seconds(lambda: groups.extend(stages.collect(items, number).result()))
    lengths = {rollout.num_sampled for group in groups for rollout in group.rollouts}
    if number == 0:
        groups = [_given(group, rows, stages.tokenizer) for group, rows in _by_group(groups, work)]
    learn_s = seconds(lambda: learned.append(stages.learn(groups)))
    publish_s = seconds(lambda: stages.publish(number + 1))
    if lengths != {work.new_tokens} or len(learned[0].computed.response) != work.rows:
        raise SystemExit("our side did not do the work that was asked for")
    if number == 0:
        checked |= {name: learned[0].metrics[name] for name in CHECKED}
    return {"sample": sample_s, "learn": learn_s, "publish": publish_s} | checked


def _by_group(groups: Sequence[Any], work: Work) -> list[tuple[Any, np.ndarray]]:
    return list(zip(groups, work.given.reshape(len(groups), work.group_size, work.new_tokens), strict=True))


def _given(group: Any, responses: np.ndarray, tokenizer: Any) -> Any:
    """`group` with these responses in place of those that were sampled."""
    from autoclave.core import Reward

    rollouts: list[Any] = []
    for rollout, tokens in zip(group.rollouts, responses, strict=True):
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        turn = replace(rollout.last, tokens=tokens, text=text)
        rollouts.append(replace(rollout, turns=(turn,), reward=Reward(reward_of(text), "measured")))
    return replace(group, rollouts=tuple(rollouts))


def theirs(work: Work, turn: Turn) -> None:
    """Steps by TRL as fast as it is here."""
    settings = {
        "per_device_train_batch_size": work.micro_batch_rows,
        "temperature": 1.0,
        "beta": 0.0,
        "loss_type": "grpo",
        "learning_rate": 1e-5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "gradient_checkpointing": False,
        "bf16": False,
    }
    _their_steps(work, turn, settings)


def their_defaults(work: Work, turn: Turn) -> None:
    """Steps by TRL with the settings that it has by itself."""
    _their_steps(work, turn, {"per_device_train_batch_size": min(8, work.rows)})


def _their_steps(work: Work, turn: Turn, changed: dict[str, Any]) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportPrivateImportUsage]

    times: Times = {}

    class Timed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found: list[Any] = []
            times["sample"] = seconds(lambda: found.append(super(Timed, self)._generate_and_score_completions(inputs)))
            if found[0]["completion_mask"].sum() != work.rows * work.new_tokens:
                raise SystemExit("TRL did not do the work that was asked for")
            return found[0]

        def _generate_single_turn(self, *words: Any, **names: Any) -> Any:
            if self.state.global_step == 0:
                return work.given.tolist(), None
            return super()._generate_single_turn(*words, **names)

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            turn.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            turn.end(dict(times))

        def on_log(self, *_: Any, logs: Any, **__: Any) -> None:
            if "grad_norm" in logs:  # of the first step
                times.update(loss=logs["loss"], gradient_norm=float(logs["grad_norm"]), entropy=logs["entropy"])

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            gradient_accumulation_steps=work.rows // changed["per_device_train_batch_size"],
            num_generations=work.group_size,
            max_completion_length=work.new_tokens,
            max_steps=work.steps,
            use_cpu=not torch.cuda.is_available(),
            shuffle_dataset=False,
            logging_first_step=True,
            logging_steps=10**6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **changed,
        )
        prompts = [[{"role": "user", "content": statement}] for statement in work.statements]
        model = AutoModelForCausalLM.from_pretrained(work.folder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(work.folder, padding_side="left")
        make_endless(model, tokenizer)
        trainer = Timed(
            model=model,
            processing_class=tokenizer,
            reward_funcs=lambda completions, **_: [reward_of(messages[0]["content"]) for messages in completions],
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": prompts * work.steps}),
            callbacks=[Turns()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


# --- Measuring -----------------------------------------------------------------------------------------------------


SIDES = {"ours": ours, "trl": theirs, "trl_defaults": their_defaults}
"""The last one not with `--tiny`."""


@dataclass(frozen=True)
class Measured:
    """What the steps of all sides took, and the peaks of their memory."""

    times: dict[str, list[Times]]
    peaks: dict[str, dict[str, float]]

    def median(self, side: str, part: str) -> float:
        return median(step[part] for step in self.times[side])

    def speedup(self, part: str, side: str = "trl") -> Comparison:
        """Theirs over ours, of each round."""
        rounds = zip(self.times[side], self.times["ours"], strict=True)
        return Comparison(tuple(theirs[part] / ours[part] for theirs, ours in rounds))


def build_model(case: Case, folder: Path) -> tuple[str, ...]:
    """Write a policy with random weights to `folder`; prompts for it."""
    from autoclave.models import build_tiny_policy, save_model
    from autoclave_environments.synthetic import build_synthetic

    statements = [problem.statement for problem in build_synthetic(SyntheticConfig(train=200, heldout=200)).train]
    policy = build_tiny_policy(case.model, statements, seed=0, device="cpu")
    save_model(policy, folder)
    return tuple(statements[: case.prompts])


def measure(work: Work, names: Sequence[str]) -> Measured:
    times: dict[str, list[Times]] = {name: [] for name in names}
    with open_sides({name: SIDES[name] for name in names}, work) as sides:
        for side in sides.values():
            side.step()  # loads, and learns from given responses
        warm = {name: side.step() for name, side in sides.items()}
        require_equal(warm["ours"], warm["trl"])
        for number in range(work.steps - 2):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                times[name].append(sides[name].step())
        return Measured(times, {name: side.peaks() for name, side in sides.items()})


def require_equal(ours: Times, theirs: Times) -> None:
    """End the program unless both learnt the same from the same responses."""
    print("  first step, ours and TRL's:", *(f"{name} {ours[name]:.6g} {theirs[name]:.6g}" for name in CHECKED))
    for name, tolerance in CHECKED.items():
        if abs(ours[name] - theirs[name]) > tolerance * max(1.0, abs(theirs[name])):
            raise SystemExit(f"{name} of the first step: ours {ours[name]:.6g}, TRL's {theirs[name]:.6g}")


def figures_of(found: Measured, rows: int) -> dict[str, float]:
    """Where the time goes on our side is given as shares of our step."""
    whole = sum(found.median("ours", part) for part in ("sample", "learn", "publish"))
    peaks = {f"{side}_peak_{name}": size for side, of_side in found.peaks.items() for name, size in of_side.items()}
    return {
        "speedup_vs_trl": found.speedup("step").median,
        "speedup_vs_trl_in_cpu_time": found.speedup("cpu").median,
        **{f"speedup_vs_{side}": found.speedup("step", side).median for side in list(found.times)[2:]},
        "step_s": found.median("ours", "step"),
        "trl_step_s": found.median("trl", "step"),
        "sample_share": found.median("ours", "sample") / whole,
        "learn_share": found.median("ours", "learn") / whole,
        "speedup_of_sampling": found.speedup("sample").median,
        "micro_batch_rows": float(rows),
        **peaks,
    }


def main() -> None:
    options = arguments(__doc__ or "")
    if find_spec("trl") is None:
        raise SystemExit("TRL is not installed: make setup-bench")
    print_environment()
    figures: dict[str, float] = {}
    for suffix, case in sized(options, CASES, CASES, TINY).items():
        with tempfile.TemporaryDirectory() as folder:
            statements = build_model(case, Path(folder))
            work = Work(Path(folder), statements, case.group_size, case.new_tokens, 32, sized(options, 7, 5, 3))
            print(f"\nspeedup_vs_trl{suffix}: {work.rows} responses of {case.new_tokens} tokens")
            sizes = [min(32, work.rows), *sized(options, [rows for rows in (128,) if rows <= work.rows], [], [])]
            tried = {rows: replace(work, micro_batch_rows=rows) for rows in sizes}
            names = list(SIDES)[: sized(options, 3, 3, 2)]
            found = {rows: measure(each, names) for rows, each in tried.items()}
        best = min(found, key=lambda rows: found[rows].median("trl", "cpu"))
        figures |= {name + suffix: value for name, value in figures_of(found[best], best).items()}
        for rows, each in found.items():
            print(f"  micro-batches of {rows:>3}: TRL over ours {each.speedup('step')} by the clock")
            print(f"{'in CPU time':>45} {each.speedup('cpu')}")
            print(f"{'sampling':>45} {each.speedup('sample')}")
            for side in names[2:]:
                print(f"{'its defaults':>45} {each.speedup('step', side)}")
    finish("trainers", figures, options.json)


if __name__ == "__main__":
    main()
