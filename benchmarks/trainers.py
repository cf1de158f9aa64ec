"""Time of a GRPO step, ours and that of TRL's GRPOTrainer, side by side; peak memory of both.

    python benchmarks/trainers.py [--quick] [--json FILE]        (TRL comes with `make setup-bench`)

Both start from the same random policy and do the same work in a step: sample the same number of responses to the same
prompts, all of the same length (the token that ends a response does not exist), reward them by the same Python
function, and take one optimizer step on all of them. Each side lives in a process of its own with one thread; the two
take turns. TRL is measured with the micro-batch that suits it best of several; so are we.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from harness import arguments, print_environment, seconds

from autoclave.config import CurriculumConfig, TinyModelConfig

NEVER = "<never>"
"""A token that is not in the model's vocabulary, so that no response ends before its last token."""

MODELS = {
    "0.4M": TinyModelConfig(),
    "4M": TinyModelConfig(hidden_size=256, layers=5, heads=8),
}


@dataclass(frozen=True)
class Work:
    """What a step is made of."""

    model: Path
    statements: tuple[str, ...]
    group_size: int
    new_tokens: int
    micro_batch_rows: int
    rounds: int

    @property
    def rows(self) -> int:
        return len(self.statements) * self.group_size


def reward_of(text: str) -> float:
    """Something cheap that tells responses apart: the share of distinct characters."""
    return len(set(text)) / max(1, len(text))


# --- The two sides -------------------------------------------------------------------------------------------------


def ours(work: Work, turn: Callable[[Callable[[], dict[str, float]]], None]) -> None:
    """Steps by the three stages of training."""
    from autoclave.algorithms import build_algorithm
    from autoclave.config import GrpoConfig, OptimizerConfig
    from autoclave.core import Reward, TaskItem
    from autoclave.models import load_policy
    from autoclave.rollout import SamplingParameters, TransformersEngine
    from autoclave.training.stages import Stages
    from autoclave.workers import ResourcePool, WorkerGroup
    from autoclave.workers.sampler import SamplerWorker
    from autoclave.workers.trainer import ActorWorker, NoReference

    def reward(item: TaskItem, response: str) -> Future[Reward]:
        future: Future[Reward] = Future()
        future.set_result(Reward(reward_of(response), "measured"))
        return future

    algorithm = build_algorithm(GrpoConfig(kl_coefficient=0.0))
    prompts = [({"role": "user", "content": statement},) for statement in work.statements]
    items = [TaskItem("benchmark", f"{n}", f"{n}", messages, None) for n, messages in enumerate(prompts)]
    longest = max(len(load_policy(work.model).tokenizer.encode(s)) + 2 for s in work.statements)
    tokens = (longest + work.new_tokens) * work.micro_batch_rows
    pool = ResourcePool("main")
    stages = Stages(
        actor=WorkerGroup(
            pool,
            lambda: ActorWorker(
                load_policy(work.model),
                algorithm,
                OptimizerConfig(learning_rate=1e-5, decay="none"),
                total_steps=work.rounds,
                temperature=1.0,
                micro_batch_tokens=tokens,
            ),
        ),
        reference=NoReference(),
        sampler=WorkerGroup(pool, lambda: SamplerWorker(TransformersEngine(load_policy(work.model), batch_size=512))),
        tokenizer=load_policy(work.model).tokenizer,
        reward=reward,
        algorithm=algorithm,
        sampling=SamplingParameters(max_new_tokens=work.new_tokens),
        group_size=work.group_size,
        minibatches=1,
        seed=0,
    )
    try:
        for number in range(work.rounds):
            turn(lambda number=number: _our_step(stages, items, number, work))
    finally:
        pool.close()


def _our_step(stages: Any, items: Any, number: int, work: Work) -> dict[str, float]:
    found: list[Any] = []
    sample = seconds(lambda: found.extend(stages.collect(items, number).result()))
    learn = seconds(lambda: found.append(stages.learn(found)))
    publish = seconds(lambda: stages.publish(number + 1))
    lengths = {len(rollout.completion.tokens) for group in found[:-1] for rollout in group.rollouts}
    if lengths != {work.new_tokens} or len(found[-1].computed.response) != work.rows:
        raise SystemExit("our side did not do the work that was asked for")
    return {"sample": sample, "learn": learn, "publish": publish, "step": sample + learn + publish}


def theirs(work: Work, turn: Callable[[Callable[[], dict[str, float]]], None]) -> None:
    """Steps by TRL."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    times: dict[str, float] = {}

    class Timed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found: list[Any] = []
            times["sample"] = seconds(lambda: found.append(super(Timed, self)._generate_and_score_completions(inputs)))
            if found[0]["completion_mask"].sum() != work.rows * work.new_tokens:
                raise SystemExit("TRL did not do the work that was asked for")
            return found[0]

    class Turns(TrainerCallback):
        """A step of the trainer is a turn: it begins when it is let, and what it took is told."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._ended = turn.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self._ended(dict(times))

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=work.micro_batch_rows,
            gradient_accumulation_steps=work.rows // work.micro_batch_rows,
            num_generations=work.group_size,
            max_completion_length=work.new_tokens,
            max_steps=work.rounds,
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
        trainer = Timed(
            model=AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(work.model, padding_side="left"),
            reward_funcs=lambda completions, **_: [reward_of(messages[0]["content"]) for messages in completions],
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": prompts * work.rounds}),
            callbacks=[Turns()],
        )
        trainer.train()


SIDES = {"ours": ours, "trl": theirs}


# --- Taking turns --------------------------------------------------------------------------------------------------


class Turn:
    """The end of a side: a step begins when the other end says so, and what it took goes back."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def __call__(self, step: Callable[[], dict[str, float]]) -> None:
        self._pipe.recv()
        cpu = time.process_time()
        self._pipe.send({**step(), "cpu": time.process_time() - cpu})

    def begin(self) -> Callable[[dict[str, float]], None]:
        """For a step that is not a function; returns what to call at its end."""
        self._pipe.recv()
        started, cpu = time.perf_counter(), time.process_time()

        def end(times: dict[str, float]) -> None:
            step = time.perf_counter() - started
            self._pipe.send({**times, "learn": step - times["sample"], "step": step, "cpu": time.process_time() - cpu})

        return end


def run_side(name: str, work: Work, pipe: Connection) -> None:
    """The process of a side."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    SIDES[name](work, Turn(pipe))
    peak = {"resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if torch.cuda.is_available():
        peak["cuda_mb"] = torch.cuda.max_memory_allocated() / 2**20
    pipe.send(peak)


class Side:
    """A process that takes steps, seen from outside."""

    def __init__(self, name: str, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=run_side, args=(name, work, other))
        self._process.start()
        other.close()

    def step(self) -> dict[str, float]:
        self._pipe.send("step")
        return self._pipe.recv()

    def finish(self) -> dict[str, float]:
        """The peaks of its memory; the process is over."""
        peak = self._pipe.recv()
        self._process.join()
        return peak


# --- Measuring -----------------------------------------------------------------------------------------------------


def build_model(config: TinyModelConfig, folder: Path) -> tuple[str, ...]:
    """Write a policy with random weights to `folder`; prompts for it."""
    from autoclave.models import Policy, build_tiny_policy, save_policy
    from autoclave.problems.curriculum import build_curriculum

    statements = [problem.statement for problem in build_curriculum(CurriculumConfig(train=200, heldout=200)).train]
    policy = build_tiny_policy(config, statements, seed=0, device="cpu")
    policy.tokenizer.add_special_tokens({"eos_token": NEVER})
    ends = policy.tokenizer.convert_tokens_to_ids(NEVER)
    policy.model.config.eos_token_id = policy.model.generation_config.eos_token_id = ends
    assert ends >= policy.model.config.vocab_size
    save_policy(Policy(policy.model, policy.tokenizer), folder)
    return tuple(statements)


def measure(work: Work, other: Work) -> dict[str, Any]:
    sides = {"ours": Side("ours", work), "trl": Side("trl", other)}
    for side in sides.values():
        side.step()  # the first one loads and warms up
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(work.rounds - 1):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            found[name].append(sides[name].step())
    peaks = {name: side.finish() for name, side in sides.items()}
    return {"times": found, "peaks": peaks}


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            model = Path(folder) / name
            statements = build_model(MODELS[name], model)
            for rows in (128,32):
                work = Work(model, statements[:16], 8, 64, rows, 4)
                found = measure(work, work)
                medians = {
                    side: {part: median(step[part] for step in steps) for part in steps[0]}
                    for side, steps in found["times"].items()
                }
                print(name, rows, medians, found["peaks"])


if __name__ == "__main__":
    sys.exit(main())
