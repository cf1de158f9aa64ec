"""Groups on disk, whole: what a checkpoint holds of batches that were collected and not learnt from. Bit for bit."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from autoclave.core import (
    CheckpointError,
    Completion,
    EndState,
    FinishReason,
    Group,
    Reward,
    Rollout,
    TaskItem,
    Verdict,
)
from autoclave.core.compressed import COMPRESSION
from autoclave.core.files import atomic_writer, write_manifest
from autoclave.core.json import from_plain, to_plain
from autoclave.training.learned import ItemSource

FOLDER = "ahead"
_PLAIN = ("length_limit", "most_turns", "ended_by", "tool_errors", "tools_s")
"""Fields of a rollout that JSON holds as they are."""

Known = Mapping[int, Mapping[int, Group | None]]
"""By iteration and index of the item; None for a group that is not complete."""


def save_groups(known: Known, folder: Path) -> None:
    """Write `known` into the folder of a checkpoint; nothing if it is empty."""
    if not known:
        return
    (folder / FOLDER).mkdir()
    for iteration, groups in known.items():
        path = folder / FOLDER / f"iteration-{iteration:06d}.jsonl.gz"
        with atomic_writer(path, text=False) as raw, gzip.open(raw, "wt", COMPRESSION, encoding="utf-8") as file:
            for index, group in groups.items():
                line = {
                    "index": index,
                    "rollouts": None if group is None else [plain_rollout(r) for r in group.rollouts],
                }
                file.write(json.dumps(line) + "\n")
    write_manifest(folder / FOLDER)


def load_groups(folder: Path, items: ItemSource) -> dict[int, dict[int, Group | None]]:
    """Groups that `save_groups` wrote, with their items.

    Raises CheckpointError: it is damaged, or of other problems.
    """
    known: dict[int, dict[int, Group | None]] = {}
    for path in sorted((folder / FOLDER).glob("iteration-*.jsonl.gz")):
        iteration = int(path.name.removesuffix(".jsonl.gz").removeprefix("iteration-"))
        asked = items.at(iteration)
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            known[iteration] = {line["index"]: _group(asked[line["index"]], line["rollouts"]) for line in lines}
        except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
            raise CheckpointError(f"{path}: damaged ({' '.join(str(error).split())[:120]})") from None
    return known


def names_of(known: Known) -> list[tuple[int, ...]]:
    """The requests of all complete groups."""
    groups = (group for batch in known.values() for group in batch.values() if group)
    return [name for group in groups for rollout in group.rollouts for name in rollout.requests]


def plain_rollout(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as JSON data, without its item."""
    reward = rollout.reward
    return {
        "item": rollout.item.id,
        "sample": rollout.sample,
        "request": rollout.request,
        **{name: getattr(rollout, name) for name in _PLAIN},
        "end_state": None if rollout.end_state is None else _plain_state(rollout.end_state),
        "turns": [_plain_turn(turn) for turn in rollout.turns],
        "reward": reward.value,
        "reason": reward.reason,
        "reward_parts": dict(reward.parts),
        "verdict": to_plain(reward.verdict) if reward.verdict else None,
    }


def _plain_state(state: EndState) -> dict[str, Any]:
    files = {path: content.decode("latin-1") for path, content in state.files.items()}  # one character for each byte
    return {"files": files, "left_out": dict(state.left_out), "changes": state.changes}


def _state(plain: dict[str, Any]) -> EndState:
    files = {path: text.encode("latin-1") for path, text in plain["files"].items()}
    return EndState(files, plain["left_out"], plain.get("changes", ""))


def _plain_turn(turn: Completion) -> dict[str, Any]:
    arrays = {
        "prompt_tokens": turn.prompt_tokens.tolist(),
        "tokens": turn.tokens.tolist(),
        "log_probs": turn.log_probs.astype(np.float64).tolist(),  # float32 comes back from that bit for bit
    }
    return {each.name: getattr(turn, each.name) for each in fields(turn)} | arrays


def _turn(plain: dict[str, Any]) -> Completion:
    converted = {
        "prompt_tokens": np.array(plain["prompt_tokens"], dtype=np.int64),
        "tokens": np.array(plain["tokens"], dtype=np.int64),
        "log_probs": np.array(plain["log_probs"], dtype=np.float32),
        "finish_reason": FinishReason(plain["finish_reason"]),
        "policy_versions": tuple(tuple(versions) for versions in plain["policy_versions"]),
    }
    return Completion(**(plain | converted))


def _group(item: TaskItem, rollouts: list[dict[str, Any]] | None) -> Group | None:
    return None if rollouts is None else Group(item, tuple(rollout_of(item, plain) for plain in rollouts))


def rollout_of(item: TaskItem, plain: dict[str, Any]) -> Rollout:
    """Return the rollout of `item` that `plain_rollout` wrote. Raises ValueError and others: it is not one."""
    if plain["item"] != item.id:
        raise ValueError(f"it has answers to {plain['item']!r}, where {item.id!r} is asked now")
    if "turns" not in plain:
        raise ValueError("it is of a version whose rollouts had no turns")
    verdict = plain["verdict"]
    return Rollout(
        item,
        plain["sample"],
        tuple(map(_turn, plain["turns"])),
        Reward(
            plain["reward"],
            plain["reason"],
            plain["reward_parts"],
            None if verdict is None else from_plain(Verdict, verdict, "verdict"),
        ),
        request=tuple(plain["request"]),
        end_state=_state(plain["end_state"]) if plain.get("end_state") else None,
        **{name: plain[name] for name in _PLAIN if name in plain},  # some are younger than some checkpoints
    )
