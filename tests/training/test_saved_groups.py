"""Groups that a checkpoint keeps come back as they were, of one turn or several."""

import json
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from autoclave.core import Completion, EndState, FinishReason, Group, Rollout
from autoclave.core.rollout import TURN
from autoclave.training.saved_groups import load_groups, names_of, plain_rollout, rollout_of, save_groups
from tests.training_parts import completion, earned, item


def columns(turn: Completion) -> list:
    return [np.asarray(getattr(turn, each.name)).tolist() for each in fields(turn)]


def plain(group: Group) -> list:
    """The rollouts of a group with lists for arrays, so that they can be compared."""
    return [(replace(one, turns=()), [columns(turn) for turn in one.turns]) for one in group.rollouts]


def test_groups_from_before_episodes_come_back_with_defaults():
    asked = item()
    written = plain_rollout(Rollout(asked, 0, (completion(),), earned(1.0), request=(0, 1, 2, 0), length_limit=7))
    for name in ("end_state", "most_turns", "ended_by", "tool_errors", "tools_s"):
        del written[name]
    found = rollout_of(asked, json.loads(json.dumps(written)))
    assert (found.end_state, found.most_turns, found.ended_by, found.length_limit) == (None, 1, "", 7)


def test_saved_groups_come_back_equal(tmp_path: Path):
    first = replace(completion(), started_at=0.5, sampled_by="a", log_probs=np.array([-0.1, -1e-7, -3], np.float32))
    second = replace(
        completion([4], prompt=[8, 8], finish_reason=FinishReason.LENGTH),
        observed="wrong",
        policy_versions=((3, 0, 1),),
    )
    asked = item()
    rollouts = (
        Rollout(asked, 0, (first,), earned(1.0), request=(0, 1, 2, 0), length_limit=7),
        Rollout(
            asked,
            1,
            (first, second),
            earned(None),
            request=(0, 1, 2, 1),
            length_limit=7,
            most_turns=3,
            end_state=EndState({"a/b": b"\xff"}, {"c": "a link"}),
            ended_by="turns",
            tool_errors=2,
            tools_s=0.5,
        ),
    )
    save_groups({4: {0: Group(asked, rollouts), 2: None}}, tmp_path)
    known = load_groups(tmp_path, SimpleNamespace(at=lambda iteration: [asked] * 3))
    assert known[4][2] is None
    assert plain(known[4][0]) == plain(Group(asked, rollouts))
    assert {turn.log_probs.dtype for turn in known[4][0].rollouts[1].turns} == {np.dtype(np.float32)}
    assert names_of(known) == [(0, 1, 2, 0), (0, 1, 2, 1), (0, 1, 2, 1, TURN, 1)]
