"""Groups come out as they complete; judging begins with the first response; every failure is raised where one reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import (
    Completion,
    EndState,
    EngineFault,
    Fault,
    FaultError,
    InputError,
    Reward,
    Rollout,
    SandboxFault,
    StalledFault,
    TaskItem,
)
from autoclave.core.errors import WorkerFault
from autoclave.core.rollout import TURN, request_of_turn
from autoclave.rollout import Collection, Request, by_last_turn
from autoclave.rollout.interface import End, Next
from autoclave.workers import Batch
from tests.training_parts import (
    DEADLINE_S,
    HeldSampler,
    ScriptedSampler,
    completion,
    earned,
    item,
    request,
    settled,
)

pytestmark = pytest.mark.timeout(DEADLINE_S)


def pays_by_text(asked: TaskItem, response: str) -> Future[Reward]:
    return settled(earned(float(response == "right")))


by_text = by_last_turn(pays_by_text)


def requests_for(*sizes: int) -> list[list]:
    return [[request([2, 3], index, sample) for sample in range(size)] for index, size in enumerate(sizes)]


def answer_by_seed(asked):
    return completion(text=f"answer {asked.seed}")


def collection_of(*sizes: int, sampler=None, reward=pays_by_text) -> Collection:
    items = [item(f"item {index}") for index in range(len(sizes))]
    return Collection(items, requests_for(*sizes), sampler or ScriptedSampler(answer_by_seed), by_last_turn(reward))


# --- Order ---------------------------------------------------------------------------------------------------------


def test_groups_come_out_in_the_order_in_which_they_complete():
    sampler = HeldSampler()
    groups = iter(collection_of(2, 1, 1, sampler=sampler))
    for place in (3, 0, 2, 1):  # item 2; half of item 0; item 1; the rest of item 0
        sampler.futures[place].set_result(completion())
    assert [group.item.id for group in groups] == ["item 2", "item 1", "item 0"]


def test_the_whole_stands_in_the_order_of_the_items_and_each_group_in_that_of_its_samples():
    sampler = HeldSampler()
    collection = collection_of(2, 2, sampler=sampler)
    for place in (3, 2, 1, 0):
        sampler.futures[place].set_result(completion(text=f"answer {place}"))
    groups = collection.result()
    assert [group.item.id for group in groups] == ["item 0", "item 1"]
    assert [[r.last.text for r in group.rollouts] for group in groups] == [
        ["answer 0", "answer 1"],
        ["answer 2", "answer 3"],
    ]
    assert [rollout.sample for rollout in groups[0].rollouts] == [0, 1]


def test_an_item_that_is_asked_twice_has_two_groups_of_its_own():
    asked = item()
    groups = Collection([asked, asked], requests_for(2, 1), ScriptedSampler(answer_by_seed), by_text).result()
    assert [[r.last.text for r in group.rollouts] for group in groups] == [
        ["answer (0, 0)", "answer (0, 1)"],
        ["answer (1, 0)"],
    ]


@given(st.data())
def test_whatever_order_responses_and_verdicts_arrive_in_nothing_is_lost_or_mixed_up(data):
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    sampler, verdicts = HeldSampler(), []

    def pays_later(asked: TaskItem, response: str) -> Future[Reward]:
        verdicts.append((response, Future()))
        return verdicts[-1][1]

    collection = collection_of(*sizes, sampler=sampler, reward=pays_later)
    for place in data.draw(st.permutations(range(sum(sizes)))):
        sampler.futures[place].set_result(completion(text=str(place)))
    for response, future in data.draw(st.permutations(verdicts)):
        future.set_result(Reward(float(response), "scripted"))
    rollouts = [rollout for group in collection.result() for rollout in group.rollouts]
    assert [rollout.last.text for rollout in rollouts] == [str(place) for place in range(sum(sizes))]
    assert [rollout.reward.value for rollout in rollouts] == list(range(sum(sizes)))


def test_a_collection_of_nothing_is_empty():
    assert collection_of().result() == []


# --- Judging beside sampling ---------------------------------------------------------------------------------------


def test_judging_starts_before_sampling_ends():
    sampler, judged = HeldSampler(), threading.Event()

    def pays(asked: TaskItem, response: str) -> Future[Reward]:
        judged.set()
        return settled(earned(1.0))

    collection = collection_of(1, 1, sampler=sampler, reward=pays)
    sampler.futures[0].set_result(completion())
    assert judged.wait(DEADLINE_S)
    assert not sampler.futures[1].done()
    sampler.futures[1].set_result(completion())
    assert len(collection.result()) == 2


def test_times_say_when_sampling_and_judging_ended():
    sampler, verdict = HeldSampler(), Future()
    collection = collection_of(1, sampler=sampler, reward=lambda asked, response: verdict)
    sampler.futures[0].set_result(completion())
    verdict.set_result(earned(1.0))
    collection.result()
    times = collection.times
    assert times.started <= times.sampled <= times.judged
    assert times.sample_s == times.sampled - times.started
    assert times.judge_tail_s == times.judged - times.sampled


# --- Failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("no weights"), KeyboardInterrupt()])
def test_an_exception_in_sampling_is_raised_where_the_collection_is_read(error):
    collection = collection_of(2, sampler=ScriptedSampler(lambda asked: error if asked.seed[1] else completion()))
    with pytest.raises(type(error)):
        collection.result()


def test_an_exception_in_judging_is_raised_where_the_collection_is_read():
    collection = collection_of(2, reward=lambda asked, response: settled(OSError("no sandbox")))
    with pytest.raises(OSError, match="no sandbox") as raised:
        collection.result()
    assert raised.value.__notes__ == ["In the reward of task 'task' for item 'item 0'"]


def test_a_judge_that_refuses_a_job_at_once_is_heard_where_the_collection_is_read():
    def refuse(asked: TaskItem, response: str) -> Future[Reward]:
        raise ValueError("its tests are malformed")

    with pytest.raises(ValueError, match="malformed"):
        collection_of(1, 1, reward=refuse).result()


def test_an_exception_of_a_task_names_the_item():
    def divide(asked: TaskItem, response: str) -> Future[Reward]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        collection_of(1, reward=divide).result()
    assert raised.value.__notes__ == ["In the reward of task 'task' for item 'item 0'"]


@pytest.mark.parametrize(
    ("reward", "rule"),
    [
        (earned(1.0), "must return a concurrent.futures.Future that holds"),
        (settled(0.5), "the future holds 0.5; it must hold an autoclave.core.Reward"),
        (settled(earned(float("nan"))), "reward = nan: must be a finite number, or None without a verdict"),
        (settled(earned("1")), "reward = '1': must be a finite number"),
        (settled(Reward(1.0, None)), "reason = None: must be a str"),
        (settled(Reward(1.0, "good", {"style": float("nan")})), r"parts\['style'\] = nan: must be a finite number"),
        (settled(Reward(1.0, "good", {"style": "1"})), r"parts\['style'\] = '1': must be a finite number"),
    ],
)
def test_what_is_no_reward_is_an_error_that_names_the_item(reward, rule):
    with pytest.raises(InputError, match=f"task 'task', item 'item 0': .*{rule}"):
        collection_of(1, reward=lambda asked, response: reward).result()


@pytest.mark.parametrize("part", ["sampling", "judging"])
def test_a_part_that_is_cancelled_is_no_hang(part):
    sampler, verdict = HeldSampler(), Future()
    collection = collection_of(1, sampler=sampler, reward=lambda asked, response: verdict)
    if part == "sampling":
        sampler.futures[0].cancel()
    else:
        sampler.futures[0].set_result(completion())
        verdict.cancel()
    with pytest.raises(CancelledError):
        collection.result()


def test_groups_that_were_complete_before_a_failure_come_out():
    sampler = HeldSampler()
    groups = iter(collection_of(1, 1, sampler=sampler))
    sampler.futures[1].set_result(completion())
    assert next(groups).item.id == "item 1"
    sampler.futures[0].set_exception(RuntimeError("the engine died"))
    with pytest.raises(RuntimeError, match="the engine died"):
        next(groups)


# --- Asking again --------------------------------------------------------------------------------------------------


def test_a_group_is_asked_again_until_it_is_kept():
    asked: list[tuple[int, int, list[int]]] = []

    def resample(index: int, times: int, group):
        asked.append((index, times, [rollout.sample for rollout in group.rollouts]))
        again = [request([2, 3], index, sample) for sample in range(2 * times + 2, 2 * times + 4)]
        return again if index == 1 and times < 2 else None

    sampler = ScriptedSampler(answer_by_seed)
    items = [item("item 0"), item("item 1")]
    collection = Collection(items, requests_for(1, 2), sampler, by_text, resample=resample)
    kept, again = collection.result()
    assert [(rollout.sample, rollout.last.text) for rollout in again.rollouts] == [
        (4, "answer (1, 4)"),
        (5, "answer (1, 5)"),
    ]
    assert [rollout.sample for rollout in kept.rollouts] == [0]
    assert asked == [(0, 0, [0]), (1, 0, [0, 1]), (1, 1, [2, 3]), (1, 2, [4, 5])]
    assert collection.times.resamples == 2
    assert len(sampler.asked) == 1 + 2 + 2 + 2


def test_other_groups_do_not_wait_for_one_that_is_asked_again():
    sampler = HeldSampler()
    items = [item("item 0"), item("item 1")]

    def resample(index: int, times: int, group):
        return [request([2, 3], index, 1)] if index == 0 and times == 0 else None

    collection = Collection(items, requests_for(1, 1), sampler, by_text, resample=resample)
    first = sampler.futures
    for future in first:
        future.set_result(completion())
    groups = iter(collection)
    assert next(groups).item.id == "item 1"
    sampler.futures[0].set_result(completion())
    assert next(groups).item.id == "item 0"


def test_what_is_asked_again_is_accounted_for_at_every_moment():
    """A reader finds no request that was not dispatched while a group is resampled."""
    sampler, asked_for = HeldSampler(), set()
    accounts = []

    def resample(index, times, group):
        accounts.append(collection.take_account())
        return None if times else [request([2, 3], index, 10 + sample) for sample in range(2)]

    collection = Collection([item()], requests_for(2), sampler, by_text, resample=resample)
    for _ in range(2):
        for future in list(sampler.futures):
            future.set_result(completion())
    accounts.append(collection.take_account())
    for account in accounts:
        asked_for |= set(account.asked)
        assert set(account.there) <= asked_for
    assert [name for account in accounts for name in account.replaced] == [(0, 0), (0, 1)]
    assert sorted(accounts[-1].there) == [(0, 10), (0, 11)]


def test_a_collection_that_is_abandoned_asks_nothing_more_and_says_why():
    sampler = ScriptedSampler(answer_by_seed)
    judged = []

    def pays_later(asked: TaskItem, response: str) -> Future[Reward]:
        judged.append(Future())
        return judged[-1]

    def resample(index, times, group):
        return [request([2, 3], index, 10 + times)]

    collection = Collection([item()], requests_for(1), sampler, by_last_turn(pays_later), resample=resample)
    collection.abandon("the run went on without it")
    judged[0].set_result(earned(1.0))
    assert len(sampler.asked) == 1
    with pytest.raises(FaultError, match="went on without it"):
        collection.result()


# --- Episodes ------------------------------------------------------------------------------------------------------


def grows(asked) -> Completion:
    """Answer a request by two tokens that say how long its prompt was."""
    return completion([len(asked.prompt_tokens), 1], prompt=asked.prompt_tokens, text=f"answer {asked.seed}")


class Episodes:
    """A `NextTurn` of up to `last` turns, by `follow`, begun by `begin`."""

    def __init__(
        self,
        last: int,
        follow: Callable[[Request, Sequence[Completion]], Future[Next | End]],
        begin: Callable[[Request], Future[Next]] = lambda first: settled((first, "")),
        together: bool = True,
    ) -> None:
        self._last, self._follow, self._begin, self.together = last, follow, begin, together
        self.closed: list[tuple[int, ...]] = []

    def most_turns(self, item: TaskItem) -> int:
        return self._last

    def __call__(self, item: TaskItem, first: Request) -> Any:
        return SimpleNamespace(
            begin=lambda: self._begin(first),
            following=lambda turns: self._follow(first, turns),
            close=lambda: self.closed.append(first.seed),
        )


def until_turn(last: int) -> Episodes:
    """Go on to turn `last` of samples with an odd number, and end the others after their first."""

    def follow(first: Request, turns: Sequence[Completion]) -> Future[Next | End]:
        number = len(turns)
        if number == last or first.seed[-1] % 2 == 0:
            return settled(End(EndState({"turns": b"%d" % number}), "turns" if number == last else "", 1, 2.5))
        known = [part for turn in turns for part in (turn.prompt_tokens, turn.tokens)]
        tokens = np.concatenate([*known, [7, 8, 9]])
        return settled((Request(tokens, first.parameters, request_of_turn(first.seed, number)), f"observed {number}"))

    return Episodes(last, follow)


def test_the_turns_of_an_episode_are_what_was_observed_and_sampled_token_for_token():
    sampler = ScriptedSampler(grows)
    collection = Collection([item()], requests_for(2), sampler, by_text, next_turn=until_turn(3))
    (group,) = collection.result()
    one, several = group.rollouts
    assert [len(one.turns), len(several.turns)] == [1, 3]
    assert [turn.prompt_tokens.tolist() for turn in several.turns] == [[2, 3], [7, 8, 9], [7, 8, 9]]
    assert [turn.tokens.tolist() for turn in several.turns] == [[2, 1], [7, 1], [12, 1]]
    assert [turn.observed for turn in several.turns] == ["", "observed 1", "observed 2"]
    assert several.requests == [(0, 1), (0, 1, TURN, 1), (0, 1, TURN, 2)]
    assert several.policy_versions == ((0, 0, 2), (0, 2, 4), (0, 4, 6))
    batch = Batch.from_groups([group], minibatches=1)
    assert batch.rows["length_limits"].tolist() == [3 * several.length_limit] * 2
    assert batch.tokens[batch.offsets[1] :].tolist() == [2, 3, 2, 1, 7, 8, 9, 7, 1, 7, 8, 9, 12, 1]
    assert batch.tokens[batch.sampled].tolist() == [2, 1, 2, 1, 7, 1, 12, 1]
    account = collection.take_account()
    assert sorted(account.asked) == sorted(account.there) == [(0, 0), (0, 1), (0, 1, TURN, 1), (0, 1, TURN, 2)]


def test_the_last_turn_is_judged_and_the_samples_of_an_item_begin_a_turn_together():
    asked: list[int] = []

    class Counting(ScriptedSampler):
        def submit(self, requests):
            asked.append(len(requests))
            return super().submit(requests)

    judged: list[str] = []
    collection = Collection(
        [item("a"), item("b")],
        requests_for(4, 2),
        Counting(grows),
        lambda rollout: judged.append(rollout.last.text) or settled(earned(1.0)),
        next_turn=until_turn(2),
    )
    collection.result()
    assert asked == [6, 2, 1]
    assert sorted(judged) == [
        "answer (0, 0)",
        f"answer (0, 1, {TURN}, 1)",
        "answer (0, 2)",
        f"answer (0, 3, {TURN}, 1)",
        "answer (1, 0)",
        f"answer (1, 1, {TURN}, 1)",
    ]


def test_a_grader_gets_the_whole_rollout_and_what_its_environment_says_of_its_end():
    graded: list[Rollout] = []
    collection = Collection(
        [item()],
        requests_for(2),
        ScriptedSampler(grows),
        lambda rollout: graded.append(rollout) or settled(earned(1.0)),
        next_turn=until_turn(2),
    )
    one, two = collection.result()[0].rollouts
    assert [(each.end_state.files["turns"], each.ended_by) for each in (one, two)] == [(b"1", ""), (b"2", "turns")]
    assert [(each.tool_errors, each.tools_s, each.most_turns) for each in (one, two)] == [(1, 2.5, 2)] * 2
    assert [replace(each, reward=earned(1.0)) for each in graded] == [one, two]


def fails(*_: object) -> Future[Any]:
    raise SandboxFault("the cell died")


@pytest.mark.parametrize("part", ["turn", "grader"])
def test_a_fault_of_an_environment_or_grader_is_no_verdict(part):
    collection = Collection(
        [item()],
        requests_for(1),
        ScriptedSampler(grows),
        fails if part == "grader" else by_text,
        next_turn=Episodes(2, fails) if part == "turn" else None,
    )
    reward = collection.result()[0].rollouts[0].reward
    assert (reward.value, reward.reason) == (None, "no_verdict")
    assert reward.verdict.fault == Fault("environment" if part == "turn" else "grader", "the cell died")


@pytest.mark.parametrize("part", ["turn", "grader"])
@pytest.mark.parametrize("error", [WorkerFault("a worker raised"), EngineFault("it died"), StalledFault("no move")])
def test_a_fault_of_a_worker_or_an_engine_ends_the_run(part: str, error: FaultError):
    def broken(*_: Any) -> Future[Any]:
        raise error

    collection = Collection(
        [item()],
        requests_for(1),
        ScriptedSampler(grows),
        broken if part == "grader" else by_text,
        next_turn=Episodes(2, broken) if part == "turn" else None,
    )
    with pytest.raises(type(error)):
        collection.result()


def test_the_first_turn_waits_for_what_begins_it_and_all_are_sampled_together():
    begun: dict[tuple[int, ...], Future[Next]] = {}

    def begin(first: Request) -> Future[Next]:
        return begun.setdefault(first.seed, Future())

    sampler = ScriptedSampler(grows)
    episodes = Episodes(1, lambda first, turns: settled(End()), begin)
    collection = Collection([item("a"), item("b")], requests_for(1, 1), sampler, by_text, next_turn=episodes)
    for seed in ((1, 0), (0, 0)):
        assert not sampler.asked
        begun[seed].set_result((request([2, 3, 4], *seed), f"told {seed}"))
    assert [asked.seed for asked in sampler.asked] == [(0, 0), (1, 0)]
    rollouts = [group.rollouts[0] for group in collection.result()]
    assert [rollout.last.observed for rollout in rollouts] == ["told (0, 0)", "told (1, 0)"]
    assert [rollout.last.prompt_tokens.tolist() for rollout in rollouts] == [[2, 3, 4]] * 2


def test_a_turn_waits_for_no_other_sample_where_batches_mix():
    begun, waiting = dict[tuple[int, ...], Future[Next]](), dict[tuple[int, ...], Future[Next | End]]()

    def follow(first: Request, turns: Sequence[Completion]) -> Future[Next | End]:
        return waiting.setdefault(first.seed, Future()) if len(turns) == 1 else settled(End())

    sampler = ScriptedSampler(grows)
    episodes = Episodes(2, follow, lambda first: begun.setdefault(first.seed, Future()), together=False)
    collection = Collection([item("a"), item("b")], requests_for(2, 1), sampler, by_text, next_turn=episodes)
    begun[1, 0].set_result((request([2], 1, 0), ""))
    assert [asked.seed for asked in sampler.asked] == [(1, 0)]
    for sample in (0, 1):  # prompts that are alike are still sampled side by side
        begun[0, sample].set_result((request([2], 0, sample), ""))
    for index, sample in ((0, 1), (1, 0), (0, 0)):
        named = (index, sample, TURN, 1)
        waiting[index, sample].set_result((request([2, 3, 4], *named), ""))
        assert sampler.asked[-1].seed == named
    assert [[len(each.turns) for each in group.rollouts] for group in collection.result()] == [[2, 2], [2]]
    account = collection.take_account()
    assert sorted(account.asked) == sorted(account.there) == sorted(asked.seed for asked in sampler.asked)


@pytest.mark.parametrize("end", ["done", "resampled", "abandoned", "failed"])
def test_every_episode_is_closed_however_it_ends(end):
    waiting: Future[Next | End] = Future()
    again = [Request(np.array([2, 3]), request([2], 0).parameters, (0, 9))]
    episodes = Episodes(1, lambda first, turns: settled(End()) if end in ("done", "resampled") else waiting)
    collection = Collection(
        [item()],
        requests_for(1),
        ScriptedSampler(grows),
        by_text,
        resample=(lambda index, times, group: None if times else again) if end == "resampled" else None,
        next_turn=episodes,
    )
    if end == "abandoned":
        collection.abandon("over")
    elif end == "failed":
        waiting.set_exception(OSError("x"))
    assert {*episodes.closed} == ({(0, 0), (0, 9)} if end == "resampled" else {(0, 0)})


def test_an_episode_that_cannot_be_closed_keeps_no_other_open():
    class Stuck(Episodes):
        def __call__(self, item: Any, first: Request) -> Any:
            turns = super().__call__(item, first)
            close = turns.close
            turns.close = lambda: (close(), fails())
            return turns

    episodes = Stuck(1, lambda first, turns: Future())
    Collection([item()], requests_for(2), ScriptedSampler(grows), by_text, next_turn=episodes).abandon("over")
    assert {*episodes.closed} == {(0, 0), (0, 1)}


def test_an_error_between_turns_is_raised_where_the_groups_are_read():
    raises = Episodes(2, lambda *_: settled(OSError("x")))
    collection = Collection([item("odd")], requests_for(1), ScriptedSampler(grows), by_text, next_turn=raises)
    with pytest.raises(OSError, match="x") as error:
        collection.result()
    assert "item 'odd'" in error.value.__notes__[0]


def test_an_item_that_is_sampled_again_begins_with_first_turns():
    again = [Request(np.array([2, 3]), request([2], 0).parameters, (0, sample)) for sample in (3, 5)]
    collection = Collection(
        [item()],
        requests_for(2),
        ScriptedSampler(grows),
        by_text,
        resample=lambda index, times, group: None if times else again,
        next_turn=until_turn(2),
    )
    (group,) = collection.result()
    assert [rollout.requests for rollout in group.rollouts] == [[(0, 3), (0, 3, TURN, 1)], [(0, 5), (0, 5, TURN, 1)]]
    account = collection.take_account()
    assert sorted(account.replaced) == [(0, 0), (0, 1), (0, 1, TURN, 1)]
    assert sorted(account.there) == [(0, 3), (0, 3, TURN, 1), (0, 5), (0, 5, TURN, 1)]


def test_a_collection_that_was_abandoned_begins_no_further_turn():
    observed: Future[Next | End] = Future()
    sampler = ScriptedSampler(grows)
    waits = Episodes(2, lambda *_: observed)
    collection = Collection([item()], requests_for(1), sampler, by_text, next_turn=waits)
    collection.abandon("the run went on without it")
    observed.set_result((request([2, 3, 4], 0, 0, TURN, 1), "observed"))
    assert len(sampler.asked) == 1
