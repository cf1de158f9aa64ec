"""Safe actions: what scripted policies earn, and whether the embedded policy learns to do what is asked and no more.

`scripts`: the mean reward and blast radius of scripts that do the tasks well, carelessly or destructively.

`training`: on the easiest level (one call does it), the embedded policy imitates a teacher that is careless in half of
the demonstrations, and then learns by GRPO+ from its own episodes, with the damage rule and, as control, without it.
`goal_met` is the share of episodes on held-out rules that did all that was asked; `solved`, of those that damaged
nothing besides; `violation_rate`, of those that changed something else. Both sides have the same rules, seeds and
numbers of episodes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import mean
from typing import Any

import numpy as np
import torch
from harness import argument_parser, finish, print_environment, sized

from autoclave.algorithms import build_algorithm, supervised
from autoclave.compose.tasks import next_turn_of
from autoclave.config import GrpoPlusConfig, OptimizerConfig, SftConfig, TinyModelConfig
from autoclave.core import TaskItem
from autoclave.judge import LocalJudge
from autoclave.models import Policy, build_tiny_policy
from autoclave.rollout import SamplingParameters
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.training.sft import Epochs, encode_demonstrations
from autoclave.training.stages import Stages
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.critic import NoCritic
from autoclave.workers.trainer.reference import NoReference, NoRewardModel
from autoclave.workers.weights.buffer_descriptor import AS_TRAINED
from autoclave.workers.weights.publisher import Publisher
from autoclave.workspaces import Declared
from autoclave_environments.office import DESTRUCTIVE, ActionTask, Call, build_office, office_tasks, reward_of
from autoclave_environments.safe_actions import SafeActionProblems, SafeActions
from autoclave_environments.settings import SafeActionsConfig, SafeActionsProblemsConfig
from autoclave_environments.worlds import CHANGES, WorldWorkspaces

_SIZE = TinyModelConfig(hidden_size=64, layers=2, heads=4, vocabulary=512, context=192)
_MOST_TOKENS = 128


def scripts(tasks: Sequence[ActionTask]) -> dict[str, float]:
    """Return what scripts earn, each on the same tasks."""
    figures = dict[str, float]()
    with WorldWorkspaces(build_office) as workspaces:
        for name in ("good", "careless", "destructive"):
            rewards = []
            for task in tasks:
                workspace = workspaces.start({}).result()
                calls: Sequence[Call] = getattr(task, name, DESTRUCTIVE)
                for call in calls:
                    workspace.call(*call).result()
                changes = json.loads(workspace.end(Declared()).result().files[CHANGES])["changes"]
                rewards.append(reward_of(task, changes))
            figures[f"{name}_reward"] = mean(reward.value or 0.0 for reward in rewards)
            figures[f"{name}_blast_radius"] = mean(reward.parts["blast_radius"] for reward in rewards)
    return figures


def imitator(problems: SafeActionProblems, steps: int, seed: int) -> Policy:
    """Return the embedded policy after the warm start, by a teacher that is careless in half of the demonstrations."""
    demonstrations = problems.demonstrations(SftConfig(demonstrations=2000, error_rate=0.5))
    texts = [each.messages[0]["content"] for each in demonstrations] + [each.response for each in demonstrations]
    policy = build_tiny_policy(_SIZE, texts, seed=seed, device="cpu")
    settings = SftConfig(steps=steps, batch_size=32)
    batches = Epochs(encode_demonstrations(policy, demonstrations), settings, seed)
    with closing(ResourcePool("warm start")) as pool:
        actor = WorkerGroup(
            pool,
            lambda: ActorWorker(
                policy, supervised(), settings.optimizer, total_steps=steps, temperature=1.0, micro_batch_tokens=1 << 14
            ),
        )
        for _, batch in zip(range(steps), batches, strict=False):
            actor.update(batch, 1).result()
    return policy


@contextmanager
def stages_of(policy: Policy, task: SafeActions, *, group_size: int, steps: int, seed: int) -> Iterator[Stages]:
    """Yield the stages of a trainer that begins with a copy of a policy."""
    algorithm, state = build_algorithm(GrpoPlusConfig(mask_overlong=False)), policy.model.state_dict()

    def load() -> Policy:
        own = Policy(type(policy.model)(policy.model.config), policy.tokenizer)
        own.model.load_state_dict(state)
        return Policy(own.model.eval(), policy.tokenizer)

    with closing(ResourcePool("actor")) as first, closing(ResourcePool("sampler")) as second:
        actor = WorkerGroup(
            first,
            lambda: ActorWorker(
                load(),
                algorithm,
                OptimizerConfig(learning_rate=5e-4),
                total_steps=2 * steps,
                temperature=1.0,
                micro_batch_tokens=1 << 14,
            ),
        )
        sampler = WorkerGroup(second, lambda: SamplerWorker(TransformersEngine(load(), batch_size=128)))
        stages = Stages(
            actor=actor,
            reference=NoReference(),
            critic=NoCritic(),
            reward_model=NoRewardModel(),
            publisher=Publisher(actor, AS_TRAINED, deadline_s=60),
            sampler=SamplerPool([sampler]),
            tokenizer=policy.tokenizer,
            grade=task.grade,
            next_turn=next_turn_of(task, policy.tokenizer, None),
            algorithm=algorithm,
            sampling=SamplingParameters(max_new_tokens=_MOST_TOKENS),
            group_size=group_size,
            minibatches=2,
            seed=seed,
        )
        stages.begin(0)
        yield stages


def measured(stages: Stages, items: Sequence[TaskItem], number: int) -> dict[str, float]:
    """Return shares over episodes of these items."""
    parts = [rollout.reward.parts for group in stages.collect(items, number).result() for rollout in group.rollouts]
    damaged = [each["blast_radius"] > 0 for each in parts]
    solved = [each["solved"] > 0 and not bad for each, bad in zip(parts, damaged, strict=True)]
    return {
        "solved": float(np.mean(solved)),
        "goal_met": mean(each["solved"] for each in parts),
        "violation_rate": float(np.mean(damaged)),
        "blast_radius": mean(each["blast_radius"] for each in parts),
    }


def training(steps: int, warm_steps: int, per_step: int, group_size: int, seed: int) -> tuple[dict[str, float], Any]:
    """Return figures before and after, and the violation rates of each step."""
    figures, course = dict[str, float](), dict[str, Any]()
    problems = SafeActionProblems(SafeActionsProblemsConfig())
    policy = imitator(problems, warm_steps, seed)
    for name, counts_damage in (("", True), ("control_", False)):
        drawn, rates = random.Random(seed), list[float]()
        config = SafeActionsConfig(template="plain", turns=1, counts_damage=counts_damage)
        with (
            LocalJudge() as judge,
            SafeActions(judge, config) as task,
            stages_of(policy, task, group_size=group_size, steps=steps, seed=seed) as stages,
        ):
            items, held_out = list(map(task.item, problems.train)), list(map(task.item, problems.heldout))
            if counts_damage:
                figures |= {f"{key}_before": value for key, value in measured(stages, held_out, 10_000).items()}
            for step in range(steps):
                groups = stages.collect(drawn.sample(items, min(per_step, len(items))), step).result()
                damaged = [each.reward.parts["blast_radius"] > 0 for group in groups for each in group.rollouts]
                rates.append(float(np.mean(damaged)))
                stages.learn(groups)
                stages.publish(step + 1)
                print(f"{name or 'rule_'}step {step + 1}  violation rate {rates[-1]:.2f}", flush=True)
            figures |= {f"{name}{key}_after": value for key, value in measured(stages, held_out, 20_000).items()}
        course[f"{name}violation_rates"] = rates
    return figures, course


def main() -> None:
    """Measure the parts that the options name."""
    parser = argument_parser("What scripted policies earn by safe actions, and whether the embedded policy learns them")
    parts = ("scripts", "training")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print_environment()
    torch.set_num_threads(1)
    figures, course = dict[str, float](), dict[str, Any]()
    if "scripts" in options.only:
        tasks = office_tasks()
        figures |= scripts(random.Random(0).sample(tasks, sized(options, len(tasks), 24, 2)))
    if "training" in options.only:
        found, course = training(*sized(options, (30, 800, 12, 8), (15, 700, 8, 8), (1, 2, 1, 2)), options.seed)
        figures |= found
    finish("safe_actions", figures, options.json, **course)


if __name__ == "__main__":
    main()
