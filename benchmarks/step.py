"""Where the time of a training step goes, and what our engine and trainer cost over a plain Transformers loop.

    python benchmarks/step.py [--quick] [--json FILE]

Both sides do the same work: sampling gives tokens and their log-probs from the same prompts by the same weights
(seconds per sampled token, since the responses differ); an update takes the same optimizer step on the same rollouts,
and the two losses are compared before the times are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from harness import Comparison, arguments, compare, finish, print_environment, seconds, sized

from autoclave.compose.host import build_judge
from autoclave.compose.training import build_stages
from autoclave.compose.warm_start import fine_tune
from autoclave.compose.workers import Workers
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import Completion, TaskItem
from autoclave.models import Policy, encode_prompt, load_policy
from autoclave.problems import ProblemSets
from autoclave.rollout import Request, SamplingParameters
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.tasks import CodeGeneration
from autoclave.training.learning import mask_groups, with_rewards
from autoclave.workers import Batch
from runs import TINY

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.yaml"

FOREVER_S = 1e9
"""An engine samples until nothing is left."""


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    torch.set_num_threads(1)  # overhead shows on one core; more threads only hide it in waiting
    overrides = [f"sft.steps={200 if options.quick else 600}", f"problems_per_step={16 if options.quick else 64}"]
    overrides += ["sft.demonstrations=4000", "model.threads=1", "sft.optimizer.warmup_steps=10"]
    overrides += TINY if options.tiny else ()
    config = load(TrainConfig, RECIPE, [parse_override(text) for text in overrides]).config
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        fine_tune(config, model, say=lambda line: None)
        finish("step", measure(config, model, rounds=sized(options, 7, 3, 1)), options.json)


def measure(config: TrainConfig, model: Path, *, rounds: int) -> dict[str, float]:
    """All figures for the policy in `model`."""
    problems = ProblemSets(config)
    workers = Workers(config, model)
    with build_judge(config.judge, config.sandbox) as judge:
        task = CodeGeneration(judge, config.task)
        items = [task.item(problem) for problem in problems.train[: config.problems_per_step]]
        stages = build_stages(config, workers, task, items)
        stages.begin(0)
        collection = stages.collect(items, 0)
        groups = mask_groups(workers.algorithm, collection.result())
        # All rows, also those without a signal that training would skip: how many those are is not our subject.
        whole = Batch.from_groups(groups, minibatches=config.minibatches)
        batch = with_rewards(workers.algorithm, whole, stages.controllers.state)
        draws = np.random.default_rng(0).standard_normal(len(batch)).astype(np.float32)
        batch = batch.with_responses(advantages=draws[batch.response_rows])  # a loss to compare, whatever was earned
        log_prob_s = seconds(lambda: workers.actor.log_probs(batch).result())
        batch = workers.actor.log_probs(batch).result()
        update_s = seconds(lambda: workers.actor.update(batch, config.minibatches).result())
    tokens = sum(len(r.last.tokens) for group in groups for r in group.rollouts)
    times = collection.times
    parts = {"sample": times.sample_s, "judge": times.judge_tail_s, "log_prob": log_prob_s, "update": update_s}
    total = sum(parts.values())
    print(f"\n{'stage':<12}{'seconds':>9}{'share':>8}   ({len(items)} problems x {config.group_size}, {tokens} tokens)")
    for name, value in parts.items():
        print(
            f"{name:<12}{value:>9.2f}{value / total:>8.1%}"
            + ("   (not hidden behind sampling)" if name == "judge" else "")
        )
    workers.close()
    sample = compare_sampling(config, model, items, rounds)
    update = compare_update(config, model, batch, rounds)
    print(f"\nours over a plain Transformers loop\n  sampling  {sample}\n  update    {update}")
    return {
        "sample_overhead_ratio": sample.median,
        "update_overhead_ratio": update.median,
        **{f"{name}_share": value / total for name, value in parts.items()},
        "sampled_tokens_per_s": tokens / times.sample_s,
        "trained_tokens_per_s": len(batch.response_rows) / update_s,
    }


def compare_sampling(config: TrainConfig, model: Path, items: Sequence[TaskItem], rounds: int) -> Comparison:
    """Seconds per sampled token of our engine over those of `generate`."""
    policy = load_policy(model, device="cpu")
    size = config.sampler.engine.batch_size
    engine = TransformersEngine(policy, batch_size=size)
    parameters = SamplingParameters(1.0, 1.0, config.sampler.max_new_tokens)
    prompts = [encode_prompt(policy.tokenizer, item.messages) for item in items for _ in range(config.group_size)]
    calls = iter(range(10**6))

    def ours() -> float:
        number, done = next(calls), list[tuple[int, Completion]]()
        engine.add({index: Request(prompt, parameters, (number, index)) for index, prompt in enumerate(prompts)})
        spent = seconds(lambda: done.extend(engine.step(FOREVER_S)))
        return spent / sum(len(completion.tokens) for _, completion in done)

    def theirs() -> float:
        lengths: list[int] = []
        spent = seconds(lambda: lengths.extend(plain_sampling(policy, prompts, parameters.max_new_tokens, size)))
        return spent / sum(lengths)

    return compare(ours, theirs, rounds=rounds)


@torch.inference_mode()
def plain_sampling(policy: Policy, prompts: Sequence[np.ndarray], max_new_tokens: int, size: int) -> list[int]:
    """Lengths of responses sampled with `generate`, with the log-prob of every token."""
    lengths: list[int] = []
    pad = policy.model.config.pad_token_id
    for start in range(0, len(prompts), size):
        chunk = prompts[start : start + size]
        width = max(map(len, chunk))
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt.tolist() for prompt in chunk])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in chunk])
        found = policy.model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=max_new_tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
        tokens = found.sequences[:, width:]
        logits = torch.stack(found.logits, dim=1)
        logits.log_softmax(-1).gather(2, tokens[:, :, None])
        ended = (tokens == policy.end_token).int()
        lengths += [int(row.argmax()) + 1 if row.any() else len(row) for row in ended]
    return lengths


def compare_update(config: TrainConfig, model: Path, batch: Batch, rounds: int) -> Comparison:
    """Seconds of our update over those of a plain loop with the same micro-batches and the same result."""
    settings = config.optimizer.model_copy(update={"decay": "none"})
    worker = Workers(config.model_copy(update={"optimizer": settings}), model)
    policy = load_policy(model, device="cpu")
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
    )

    def ours() -> float:
        return seconds(lambda: worker.actor.update(batch, config.minibatches).result())

    def theirs() -> float:
        return seconds(lambda: plain_update(config, policy, optimizer, batch))

    loss = worker.actor.update(batch, config.minibatches).result()["loss"]
    plain_loss = plain_update(config, policy, optimizer, batch)
    print(f"\nloss of the same update: ours {loss:.6f}, plain {plain_loss:.6f}")
    if abs(loss - plain_loss) > 1e-4:
        raise SystemExit("the two sides did not do the same work")
    result = compare(ours, theirs, rounds=rounds)
    worker.close()
    return result


def plain_update(config: TrainConfig, policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """The same optimizer steps as `ActorWorker.update`, written straight down. The mean of their losses."""
    total = 0.0
    for number in range(config.minibatches):
        minibatch = batch.select(batch.rows["minibatch"] == number)
        optimizer.zero_grad()
        for rows in minibatch.micro_batches(config.micro_batch_tokens):
            part = minibatch.select(rows)
            ids, attention, response = map(torch.from_numpy, part.padded())
            logits = policy.model(input_ids=ids, attention_mask=attention).logits[:, :-1]
            log_probs = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)[response[:, 1:]]
            old, advantages, weights = (
                torch.from_numpy(part.responses[name]) for name in ("old_log_probs", "advantages", "weights")
            )
            ratio = (log_probs - old).exp()
            clipped = ratio.clamp(1 - config.algorithm.clip_lower, 1 + config.algorithm.clip_upper)
            loss = (-torch.minimum(ratio * advantages, clipped * advantages) * weights).sum()
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), config.optimizer.gradient_clip)
        optimizer.step()
    return total / config.minibatches


if __name__ == "__main__":
    main()
