"""A run's folder: what stands where, and the writers of its files.

config.yaml                     the resolved configuration
metrics.jsonl                   objects of the "kind" sft, train, evaluation[/TASK], alert, rollback or lengthening
tensorboard/                    the same numbers for TensorBoard
rollouts/step-000010.jsonl.gz   every rollout of a step, with its verdict or alignment sample, ledger and log-probs
timeline/step-000010.jsonl.gz   what happened when in a step
evaluations/step-000010.json    every problem of an evaluation
start/                          the policy that reinforcement learning began with
checkpoints/step-000010/        state to resume from
model/                          the policy of the last step, in Hugging Face form
plan.json                       what `autoclave plan` expects of the schedule, if it was asked
summary.json, report.html       written at the end
comparison.html, view.html      written by `autoclave report --against` and `autoclave view`
stalled-<time>.txt              what everybody was doing, of a run in which nothing moved
"""

import gzip
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autoclave.core import AlignmentSample, Group, HostError, InputError, Rollout
from autoclave.core.compressed import COMPRESSION
from autoclave.core.files import atomic_folder, atomic_writer, existing_file, write_atomically
from autoclave.core.json import finite, to_plain
from autoclave.core.rollout import FloatArray
from autoclave.core.timeline import StepTimeline
from autoclave.runs.rollouts import LOG_PROB_DECIMALS, ROLLOUT_FORMAT
from autoclave.runs.timeline import write_timeline


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.start = path / "start"
        self.model = path / "model"
        self.critic = path / "critic"

    @staticmethod
    def create(path: Path, keep: str = "") -> "RunFolder":
        """A new folder at `path`; what stood there is moved aside, never overwritten. A file called `keep` stays.

        Raises InputError: `path` is a file.
        """
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path}: is a file; give a folder")
        kept = path / keep
        content = kept.read_bytes() if kept.is_file() else None
        if path.exists() and any(found != kept for found in path.iterdir()):
            path.rename(_free_name(path))
        path.mkdir(parents=True, exist_ok=True)
        if content is not None:
            write_atomically(kept, content)
        return RunFolder(path)

    @staticmethod
    def existing(path: Path, what: str = "--resume") -> "RunFolder":
        """The folder of a run that was begun; `what` names the argument that gave it.

        Raises InputError: there is none.
        """
        if not (path / "config.yaml").is_file():
            hint = "; start it without --resume" if what == "--resume" else ""
            raise InputError(f"{what}: {path} is not the folder of a run (no config.yaml){hint}")
        return RunFolder(path)

    def write_config(self, text: str) -> None:
        write_atomically(self.path / "config.yaml", text)

    def keep_start(self, model: Path) -> None:
        """Copy the policy in folder `model` to `start`, where it is whole or absent."""
        with atomic_folder(self.start) as folder:
            shutil.copytree(model, folder, dirs_exist_ok=True)

    def write_rollouts(
        self,
        step: int,
        groups: Sequence[Group],
        ledger: Sequence[Mapping[str, Any]],
        log_probs: Sequence[FloatArray | None],
    ) -> None:
        """Keep every rollout of a step in order, with its ledger entry and, where computed, (T,) log-probs."""
        path = self.path / "rollouts" / f"step-{step:06d}.jsonl.gz"
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        with atomic_writer(path, text=False) as raw, gzip.open(raw, "wt", COMPRESSION, encoding="utf-8") as file:
            for rollout, entry, found in zip(rollouts, ledger, log_probs, strict=True):
                file.write(json.dumps(rollout_line(step, rollout, entry, found)) + "\n")

    def write_timeline(self, timeline: StepTimeline) -> None:
        """Keep the timeline of a step, in place of an earlier one of it."""
        write_timeline(self.path, timeline)

    def write_evaluation(self, step: int, evaluation: str) -> None:
        """Keep `evaluation`, JSON with the result of every problem."""
        write_atomically(self.path / "evaluations" / f"step-{step:06d}.json", evaluation + "\n")

    def read_evaluation(self, step: int) -> dict[str, Any]:
        path = self.path / "evaluations" / f"step-{step:06d}.json"
        return json.loads(existing_file(path, "evaluation").read_text(encoding="utf-8"))["metrics"]

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_atomically(self.path / "summary.json", json.dumps(finite(summary), indent=2) + "\n")


class MetricSink(Protocol):
    """Takes the metrics of one run."""

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """Record finite numbers of a step, by name without `kind`.

        Raises HostError: it cannot be reached; the run goes on without it.
        """

    def close(self) -> None:
        """Write what is buffered. Nothing is written afterwards. Raises HostError: it cannot be reached."""


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among `metrics`: what a sink can draw."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


class MetricsLog:
    """Appends to `metrics.jsonl`, and to sinks, which it closes.

    A line is written whole, so a killed run leaves at most one torn. A sink that fails is told of and left out from
    then on: a run does not end for want of a mirror.
    """

    def __init__(
        self, folder: RunFolder, sinks: Sequence[MetricSink] = (), say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._file = (folder.path / "metrics.jsonl").open("a", encoding="utf-8")
        self._sinks, self._say = list(sinks), say
        if self._file.tell():
            self._file.write("\n")  # ends a line torn by a crash; blank lines mean nothing

    def write(self, kind: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Record `metrics` of a step. Numbers that are not finite become null."""
        line = {"kind": kind, "step": step, "time": time.time(), **finite(metrics)}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        found = numbers(metrics)
        for sink in tuple(self._sinks):
            self._attempt(sink, lambda sink=sink: sink.write(kind, step, found))

    def close(self) -> None:
        self._file.close()
        for sink in tuple(self._sinks):
            self._attempt(sink, sink.close)

    def _attempt(self, sink: MetricSink, call: Callable[[], None]) -> None:
        try:
            call()
        except HostError as error:
            self._sinks.remove(sink)
            self._say(f"no longer logging to it: {error}; metrics.jsonl has everything")


def _free_name(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    names = (path.with_name(f"{path.name}.{stamp}{suffix}") for suffix in ("", *(f"-{n}" for n in range(1, 1000))))
    return next(name for name in names if not name.exists())


def rollout_line(step: int, rollout: Rollout, entry: Mapping[str, Any], log_probs: FloatArray | None) -> dict[str, Any]:
    """Return the record of a rollout, with its ledger entry, and log-probs of the trainer if there are."""
    last, reward, asked = rollout.last, rollout.reward, rollout.item.payload
    return {
        "format": ROLLOUT_FORMAT,
        "step": step,
        "item": rollout.item.id,
        "task": rollout.item.task,
        "group": rollout.item.group_key,
        "sample": rollout.sample,
        "prompt": "\n\n".join(message["content"] for message in rollout.item.messages),
        "response": last.text,
        "turns": [{"observed": turn.observed, "response": turn.text} for turn in rollout.turns],
        "ended_by": rollout.ended_by,
        "tool_errors": rollout.tool_errors,
        "end_state": rollout.end_state
        and {
            "files": {path: len(content) for path, content in rollout.end_state.files.items()},
            "left_out": dict(rollout.end_state.left_out),
            "changes": rollout.end_state.changes,
        },
        "tokens": rollout.num_sampled,
        "finish_reason": last.finish_reason,
        "length_limit": rollout.length_limit,
        "reward": reward.value,
        "reason": reward.reason,
        "reward_parts": dict(reward.parts),
        "mask_reason": rollout.mask_reason,
        "ledger": dict(entry),
        "policy_versions": rollout.policy_versions,
        "verdict": to_plain(reward.verdict) if reward.verdict else None,
        "alignment_sample": to_plain(asked) if isinstance(asked, AlignmentSample) else None,
        "token_ids": np.concatenate([turn.tokens for turn in rollout.turns]).tolist(),
        "log_prob_kind": last.log_prob_kind,
        "sampler_log_probs": _rounded(np.concatenate([turn.log_probs for turn in rollout.turns])),
        "trainer_log_probs": None if log_probs is None else _rounded(log_probs),
    }


def _rounded(log_probs: FloatArray) -> list[float | None]:
    """Nats with `LOG_PROB_DECIMALS` decimals; None for what JSON cannot hold."""
    return finite(np.round(log_probs.astype(np.float64), LOG_PROB_DECIMALS).tolist())
