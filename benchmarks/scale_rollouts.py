"""The bookkeeping of a training step whose engine and trainer compute nothing; see `scale.py`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from autoclave.algorithms import build_algorithm
from autoclave.config import GrpoConfig
from autoclave.core import Completion, FinishReason, Reward, Status, TaskItem, TestResult, Verdict
from autoclave.core.futures import completed
from autoclave.core.timeline import Timeline
from autoclave.report.view import Request as ViewRequest
from autoclave.report.view import write_view
from autoclave.rollout import Request, SamplingParameters
from autoclave.rollout.interface import EngineStats
from autoclave.runs.folder import RunFolder
from autoclave.training.metrics import RunStages, iteration_metrics
from autoclave.training.request_ledger import RequestLedger
from autoclave.training.saved_groups import save_groups
from autoclave.training.stages import Stages
from autoclave.workers import Batch, Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.executor import InlineExecutor
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import Batches, StepOutput
from autoclave.workers.trainer.critic import NoCritic
from autoclave.workers.trainer.reference import NoReference, NoRewardModel

GROUP = 8
TOKENS_OF_MICRO_BATCH = 65_536
VERDICT = Verdict.of(
    Status.ACCEPTED, tests=[TestResult(number, Status.ACCEPTED, 0.01, 0.01, 9.5) for number in range(15)]
)
Costs = dict[str, float]


@contextmanager
def cpu(costs: Costs, name: str) -> Iterator[None]:
    """Add the CPU seconds of the block to a cost."""
    started = time.process_time()
    yield
    costs[name] = costs.get(name, 0.0) + time.process_time() - started


class Device:
    """Stands for a `SamplerWorker`: it sleeps, and all that was asked is sampled."""

    @register(Dispatch.EACH)
    def advance(self, batches: Batches, seconds: float) -> StepOutput:
        time.sleep(0.001)
        asked = [each for batch in batches for each in batch.items()]
        return StepOutput([(number, sampled(request)) for number, request in asked], EngineStats(0, 0, 0, 0))


def sampled(request: Request) -> Completion:
    """Return a response of the greatest length, of random tokens."""
    rng, length, now = np.random.default_rng(request.seed), request.parameters.max_new_tokens, time.time()
    return Completion(
        prompt_tokens=request.prompt_tokens,
        tokens=rng.integers(0, 32_000, length),
        log_probs=-rng.exponential(size=length).astype(np.float32),
        log_prob_kind="raw",
        finish_reason=FinishReason.STOP,
        text="token" * length,
        policy_versions=((0, 0, length),),
        submitted_at=now,
        finished_at=now,
    )


class Actor:
    """Stands for the actor's worker group: packs rows as a trainer does, and computes nothing."""

    def old_log_probs(self, batch: Batch) -> Future[Batch]:
        return completed(batch.with_responses(old_log_probs=batch.responses["sampler_log_probs"]))

    def update(self, batch: Future[Batch] | Batch, minibatches: int) -> Future[Costs]:
        whole = batch if isinstance(batch, Batch) else batch.result()
        for layout in ("padded", "packed", "shared_prompts"):
            for rows in whole.micro_batches(TOKENS_OF_MICRO_BATCH, layout):
                whole.select(rows)
        return completed({"loss": 0.0})

    def with_log_probs(self, batch: Batch) -> Future[Batch]:
        return completed(batch)


class Tokenizer:
    """Stands for a tokenizer: every prompt has 512 tokens, its first words."""

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **_: Any) -> list[int]:
        return [int(messages[0]["content"])] * 512


def rollouts(num: int, tokens: int) -> Costs:
    costs: Costs = {}
    names = [str(number) for number in range(num // GROUP)]
    items = [TaskItem("code_generation", id, id, ({"role": "user", "content": id},), None) for id in names]
    parts: Any = {"actor": Actor(), "publisher": SimpleNamespace(version=0), "tokenizer": Tokenizer()}
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as path, closing(ResourcePool("device", InlineExecutor())) as pool:
        group: Any = WorkerGroup(pool, Device)
        with closing(SamplerPool([group])) as sampler:
            stages = Stages(
                reference=NoReference(),
                critic=NoCritic(),
                reward_model=NoRewardModel(),
                sampler=sampler,
                grade=lambda rollout: completed(Reward(float(rng.integers(2)), "accepted", verdict=VERDICT)),
                algorithm=build_algorithm(GrpoConfig(kl_coefficient=0.0)),
                sampling=SamplingParameters(max_new_tokens=tokens),
                group_size=GROUP,
                minibatches=2,
                seed=0,
                timeline=(timeline := Timeline()),
                **parts,
            )
            run = RunStages(stages, RequestLedger(), timeline=timeline)
            timeline.begin(1)
            with cpu(costs, "collect_s"):
                batch = run.collect(items, 0)
                groups = batch.result()
        with cpu(costs, "learn_s"):
            learned = run.learn(groups)
            iteration_metrics(batch.times, learned)
        folder = RunFolder.create(Path(path, "run"))
        folder.write_config("name: scale\n")
        with cpu(costs, "write_s"):
            folder.write_rollouts(1, learned.groups, [asdict(entry) for entry in learned.ledger], learned.log_probs)
            folder.write_timeline(timeline.recorded())
        with cpu(costs, "save_s"):
            save_groups({1: dict(enumerate(groups))}, Path(path))
        with cpu(costs, "view_s"):
            write_view(ViewRequest(folder.path))
    return costs
