"""Time of a GRPO step, ours and that of TRL's GRPOTrainer, side by side; peak memory of both.

    python benchmarks/trainers.py [--quick] [--json FILE]        (TRL comes with `make setup-bench`)

Both start from the same random policy and do the same work in a step: sample the same number of responses to the same
prompts, all of the same length (the token that ends a response does not exist), reward them by the same Python
function, and take one optimizer step on all of them. Each side lives in a process of its own with one thread; the two
take turns. Of several micro-batches the one that suits TRL best decides. CPU times stand beside the times of the clock:
on a machine with other work they are what the clock would show on an idle one.
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

from harness import arguments, finish, print_environment, seconds, sized
from sides import Times, Turn, open_sides

from autoclave.config import SyntheticConfig, TinyModelConfig

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
    "": Case(TinyModelConfig(), prompts=64),  # the step of recipes/demo.yaml
    "fewer_responses/": Case(TinyModelConfig(), prompts=16),
    "4M/": Case(TinyModelConfig(hidden_size=256, layers=5, heads=8), prompts=16),
}
TINY = {"": Case(TinyModelConfig(hidden_size=48, layers=1, heads=3), prompts=2, group_size=2, new_tokens=8)}
"""By the prefix of their figures."""


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


def reward_of(text: str) -> float:
    """Something cheap that tells responses apart: the share of distinct characters."""
    return len(set(text)) / max(1, len(text))


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
        reward=reward,
        algorithm=algorithm,
        sampling=SamplingParameters(max_new_tokens=work.new_tokens),
        group_size=work.group_size,
        minibatches=1,
        seed=0,
    )
    try:
        stages.begin(0)
        for number in range(work.steps):
            turn.begin()
            turn.end(_our_step(stages, items, number, work))
    finally:
        pool.close()


def _our_step(stages: Any, items: Sequence[Any], number: int, work: Work) -> Times:
    groups: list[Any] = []
    learned: list[Any] = []
    times = {
        "sample": seconds(lambda: groups.extend(stages.collect(items, number).result())),
        "learn": seconds(lambda: learned.append(stages.learn(groups))),
        "publish": seconds(lambda: stages.publish(number + 1)),
    }
    lengths = {len(rollout.completion.tokens) for group in groups for rollout in group.rollouts}
    if lengths != {work.new_tokens} or len(learned[0].computed.response) != work.rows:
        raise SystemExit("our side did not do the work that was asked for")
    return times


def theirs(work: Work, turn: Turn) -> None:
    """Steps by TRL."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    times: Times = {}

    class Timed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found: list[Any] = []
            times["sample"] = seconds(lambda: found.append(super(Timed, self)._generate_and_score_completions(inputs)))
            if found[0]["completion_mask"].sum() != work.rows * work.new_tokens:
                raise SystemExit("TRL did not do the work that was asked for")
            return found[0]

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            turn.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            turn.end(dict(times))

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=work.micro_batch_rows,
            gradient_accumulation_steps=work.rows // work.micro_batch_rows,
            num_generations=work.group_size,
            max_completion_length=work.new_tokens,
            max_steps=work.steps,
            temperature=1.0,
            beta=0.0,
            loss_type="grpo",
            learning_rate=1e-5,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            gradient_checkpointing=False,  # it is on by default, and slower
            bf16=False,
            use_cpu=not torch.cuda.is_available(),
            shuffle_dataset=False,
            logging_steps=10**6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
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
        trainer.train()


# --- Measuring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """What the steps of both sides took, and the peaks of their memory."""

    times: dict[str, list[Times]]
    peaks: dict[str, dict[str, float]]

    def median(self, side: str, part: str) -> float:
        return median(step.get(part, 0.0) for step in self.times[side])

    def speedup(self, part: str) -> float:
        """Theirs over ours, the median over rounds."""
        rounds = zip(self.times["trl"], self.times["ours"], strict=True)
        return median(theirs[part] / ours[part] for theirs, ours in rounds)


def build_model(case: Case, folder: Path) -> tuple[str, ...]:
    """Write a policy with random weights to `folder`; prompts for it."""
    from autoclave.models import build_tiny_policy, save_model
    from autoclave.problems.synthetic import build_synthetic

    statements = [problem.statement for problem in build_synthetic(SyntheticConfig(train=200, heldout=200)).train]
    policy = build_tiny_policy(case.model, statements, seed=0, device="cpu")
    save_model(policy, folder)
    return tuple(statements[: case.prompts])


def measure(work: Work) -> Measured:
    times: dict[str, list[Times]] = {"ours": [], "trl": []}
    with open_sides({"ours": ours, "trl": theirs}, work) as sides:
        for side in sides.values():
            side.step()  # the first one loads and warms up
        for number in range(work.steps - 1):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                times[name].append(sides[name].step())
        return Measured(times, {name: side.peaks() for name, side in sides.items()})


def figures_of(found: Measured, rows: int) -> dict[str, float]:
    """Where the time goes on our side is given as shares of our step."""
    whole = sum(found.median("ours", part) for part in ("sample", "learn", "publish"))
    peaks = {f"{side}_peak_{name}": size for side, of_side in found.peaks.items() for name, size in of_side.items()}
    return {
        "speedup_vs_trl": found.speedup("step"),
        "speedup_vs_trl_in_cpu_time": found.speedup("cpu"),
        "step_s": found.median("ours", "step"),
        "trl_step_s": found.median("trl", "step"),
        "sample_share": found.median("ours", "sample") / whole,
        "learn_share": found.median("ours", "learn") / whole,
        "speedup_of_sampling": found.speedup("sample"),
        "micro_batch_rows": float(rows),
        **peaks,
    }


def main() -> None:
    options = arguments(__doc__ or "")
    if find_spec("trl") is None:
        raise SystemExit("TRL is not installed: make setup-bench")
    print_environment()
    figures: dict[str, float] = {}
    for prefix, case in sized(options, CASES, {"": CASES[""]}, TINY).items():
        with tempfile.TemporaryDirectory() as folder:
            statements = build_model(case, Path(folder))
            work = Work(Path(folder), statements, case.group_size, case.new_tokens, 32, sized(options, 6, 3, 2))
            sizes = sized(options, (32, 128), (32,), (work.rows,))
            tried = {rows: measure(replace(work, micro_batch_rows=rows)) for rows in sizes}
        best = min(tried, key=lambda rows: tried[rows].median("trl", "cpu"))
        figures |= {prefix + name: value for name, value in figures_of(tried[best], best).items()}
        print(f"\n{prefix or 'embedded default'}: {work.rows} responses of {case.new_tokens} tokens")
        for rows, found in tried.items():
            print(
                f"  micro-batches of {rows:>3}: TRL over ours {found.speedup('step'):.2f} by the clock, "
                f"{found.speedup('cpu'):.2f} in CPU time"
            )
    finish("trainers", figures, options.json)


if __name__ == "__main__":
    main()
