"""What every executor must do: one suite for inline, spawn and ray."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from autoclave.core import FaultError, WorkerDied, WorkerFault
from autoclave.workers import Batch, Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.executor import Executor, InlineExecutor
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.workers.sample_workers import Clerk, Unmade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PROCESSES = 2
EXECUTORS = ("inline", "spawn", "ray")
DEADLINE_S = 200.0
"""For the start of processes on a busy machine; a death is noticed in far less than `NOTICED_S`."""
NOTICED_S = 20.0
remote = pytest.mark.parametrize("pool", ["spawn", "ray"], indirect=True)
"""For what only workers in processes of their own can show."""


@pytest.fixture(scope="module")
def new_executor(request: pytest.FixtureRequest) -> Callable[[str], Executor]:
    def make(kind: str) -> Executor:
        if kind == "inline":
            return InlineExecutor()
        if kind == "spawn":
            return SpawnExecutor([()] * PROCESSES)
        request.getfixturevalue("ray_cluster")
        from autoclave.workers.ray_executor import Demand, RayExecutor

        return RayExecutor("shared", Demand(PROCESSES, devices=0))

    return make


@pytest.fixture(scope="module", params=EXECUTORS)
def pool(request, new_executor) -> Iterator[ResourcePool]:
    made = ResourcePool("shared", new_executor(request.param))
    yield made
    made.close()


@pytest.fixture(scope="module")
def group(pool) -> WorkerGroup[Clerk]:
    """A group that no test harms."""
    return WorkerGroup(pool, partial(Clerk, greeting="good day"), name="clerks", process_group=True)


@pytest.fixture(scope="module")
def victims(pool, group) -> WorkerGroup[Clerk]:
    """A second group on the same pool, after the first; its processes come to harm."""
    return WorkerGroup(pool, Clerk, name="victims")


@pytest.fixture
def mortals(victims) -> WorkerGroup[Clerk]:
    """The victims, alive."""
    if not victims.is_alive:
        victims.restart().result(DEADLINE_S)
    return victims


@pytest.fixture
def ranks(pool) -> int:
    return pool.executor.processes


def numbered(rows: int) -> Batch:
    sequences = [(np.array([2]), np.array([5] * (row % 3 + 1))) for row in range(rows)]
    return Batch.from_sequences(sequences, rows={"name": np.arange(rows)}, responses={})


def begun_sleep(group: WorkerGroup[Clerk], folder: Path) -> Future[None]:
    """A call to `group` that all its ranks are in, and that will not end."""
    call = group.sleep(str(folder))
    deadline = time.monotonic() + DEADLINE_S
    while len(list(folder.iterdir())) < len(group.nodes) and not call.done() and time.monotonic() < deadline:
        time.sleep(0.005)  # until all have begun
    return call


# --- Arguments and results -----------------------------------------------------------------------------------------


def test_a_call_gives_a_future_of_what_rank_0_returns(group):
    assert group.greet("you").result(DEADLINE_S) == "good day you"


def test_ranks_are_numbered_and_have_processes_of_their_own(pool, group, ranks):
    found = group.ranks().result(DEADLINE_S)
    assert [rank for rank, _ in found] == list(range(ranks))
    assert len({process for _, process in found}) == ranks
    assert (os.getpid() in [process for _, process in found]) == isinstance(pool.executor, InlineExecutor)


def test_every_rank_has_a_node(group, ranks):
    assert list(group.nodes) == [os.uname().nodename] * ranks


@pytest.mark.parametrize(
    "value",
    [None, "text", {"a": [1, 2.5, (True, b"bytes")]}, np.arange(100_000), torch.ones(3, 200_000, dtype=torch.bfloat16)],
    ids=["none", "text", "nested", "array", "tensor"],
)
def test_values_come_back_as_they_went(group, value):
    back = group.give(value).result(DEADLINE_S)
    assert type(back) is type(value)
    if isinstance(value, torch.Tensor):
        assert back.dtype == value.dtype
        back, value = back.float().numpy(), value.float().numpy()
    assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value


def test_a_result_can_be_the_argument_of_a_call_to_another_group(group, victims, ranks):
    weights = group.blank(200_000)
    assert victims.doubled(weights).result(DEADLINE_S) == [200_000 * 14.0] * ranks


@remote
def test_a_result_is_the_receivers_own(group):
    held = group.blank(100_000)
    group.doubled(held).result(DEADLINE_S)
    assert held.result(DEADLINE_S).sum() == 700_000
    held.result()[:] = 0
    assert held.result().sum() == 700_000


def test_a_batch_is_shared_out_and_comes_back_in_order(group, ranks):
    marked = group.mark(numbered(11)).result(DEADLINE_S)
    assert marked.rows["doubled"].tolist() == [2 * row for row in range(11)]
    assert marked.tokens.tolist() == numbered(11).tokens.tolist()
    tokens = [int(marked.lengths[marked.rows["rank"] == rank].sum()) for rank in range(ranks)]
    assert max(tokens) - min(tokens) <= 4  # the longest row


def test_an_empty_batch_is_shared_out_too(group):
    assert len(group.mark(numbered(0)).result(DEADLINE_S)) == 0


def test_a_batch_may_pass_from_call_to_call_as_a_future(group):
    chain = group.mark(group.mark(numbered(5)))
    assert chain.result(DEADLINE_S).rows["name"].tolist() == [0, 1, 2, 3, 4]


def test_metrics_are_those_of_the_first_replica(group, ranks):
    assert group.count(numbered(4 * ranks)).result(DEADLINE_S) == {"rows": 4}


def test_each_rank_gets_its_own_value_and_answers_are_listed_by_rank(group, ranks):
    papers = [f"letter {rank}" for rank in range(ranks)]
    expected = [f"letter {rank} by {rank} in town" for rank in range(ranks)]
    assert group.sign(papers, "town").result(DEADLINE_S) == expected
    assert group.sign(group.letters(ranks), "town").result(DEADLINE_S) == expected


def test_large_values_reach_their_rank_too(group, ranks):
    arrays = [np.full(100_000, rank) for rank in range(ranks)]
    returned = group.give_each(arrays).result(DEADLINE_S)
    assert [(len(array), set(array.tolist())) for array in returned] == [(100_000, {rank}) for rank in range(ranks)]


def test_another_number_of_values_than_ranks_is_refused_and_the_group_lives_on(group, ranks):
    with pytest.raises(TypeError, match=f"^3 values for {ranks} replicas"):
        group.sign(["a", "b", "c"], "town").result(DEADLINE_S)
    assert group.greet("again").result(DEADLINE_S) == "good day again"


def test_calls_run_in_the_order_in_which_they_were_made(group, tmp_path):
    paths = [str(tmp_path / str(number)) for number in range(3)]
    calls = [group.join(here, before) for here, before in zip(paths, [str(tmp_path), *paths], strict=False)]
    assert [call.result(DEADLINE_S) for call in calls] == [True, True, True]


@pytest.mark.parametrize("name", ["unregistered", "nonsense", "onload"])
def test_only_registered_methods_can_be_called(group, name):
    with pytest.raises(AttributeError, match=f"Clerk.{name} is not a registered worker method"):
        getattr(group, name)


# --- Failures ------------------------------------------------------------------------------------------------------


def test_what_a_worker_raises_reaches_the_caller_with_type_place_and_traceback(group, ranks):
    last = ranks - 1
    with pytest.raises(FaultError) as caught:
        group.fail(last).result(DEADLINE_S)
    assert str(caught.value) == "gradient norm = nan"
    node = os.uname().nodename
    assert caught.value.__notes__ == [f"Raised by rank {last} of worker group 'clerks' on node {node}"]
    own = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "fail" in own or ", in fail\n" in str(caught.value.__cause__)
    assert group.greet("again").result(DEADLINE_S) == "good day again"


def test_an_exception_that_cannot_travel_arrives_as_text(pool, group):
    expected = Exception if isinstance(pool.executor, InlineExecutor) else WorkerFault
    with pytest.raises(expected, match="7: no"):
        group.refuse().result(DEADLINE_S)


def test_a_rank_that_fails_on_its_value_is_named_and_the_group_lives_on(group, ranks):
    last = ranks - 1
    with pytest.raises(FaultError, match="no signature") as caught:
        group.sign(["good"] * last + ["forged"], "town").result(DEADLINE_S)
    assert f"rank {last} of worker group 'clerks'" in caught.value.__notes__[0]
    signed = group.sign(["good"] * ranks, "town").result(DEADLINE_S)
    assert signed == [f"good by {rank} in town" for rank in range(ranks)]


def test_a_worker_that_cannot_be_made_is_an_error_where_the_group_is_made(pool, group):
    with pytest.raises(FaultError, match="no weights") as caught:
        WorkerGroup(pool, Unmade, name="unmade")
    assert "worker group 'unmade'" in caught.value.__notes__[0]
    assert group.greet("again").result(DEADLINE_S) == "good day again"


@remote
def test_what_cannot_be_sent_is_refused_and_the_group_lives_on(group):
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        group.give(lambda: 1).result(DEADLINE_S)
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        group.return_a_lock().result(DEADLINE_S)
    assert group.greet("again").result(DEADLINE_S) == "good day again"


# --- Turns ---------------------------------------------------------------------------------------------------------


def test_two_groups_of_a_pool_take_turns(group, victims, ranks):
    group.greet("you").result(DEADLINE_S)
    before = [len(calls) for calls in group.calls().result(DEADLINE_S)]
    victims.greet("you").result(DEADLINE_S)
    group.greet("you").result(DEADLINE_S)
    since = [calls[length:] for calls, length in zip(group.calls().result(DEADLINE_S), before, strict=True)]
    assert since == [["offload", "onload", "greet"]] * ranks


# --- Deaths --------------------------------------------------------------------------------------------------------


@remote
def test_a_worker_that_dies_in_a_call_is_named_and_its_group_can_be_restarted(pool, group, mortals):
    dying = mortals.die(1)
    with pytest.raises(
        WorkerDied, match=r"rank 1 of worker group 'victims' on node \S+ (was killed by signal 9|died)"
    ) as caught:
        dying.result(NOTICED_S)
    death = caught.value
    assert (death.group, death.rank, death.node) == ("victims", 1, os.uname().nodename)
    with pytest.raises(WorkerDied, match="rank 1 of worker group 'victims'"):
        mortals.greet("nobody").result(NOTICED_S)
    assert not mortals.is_alive
    assert group.greet("you").result(DEADLINE_S) == "good day you"  # the pool goes on
    mortals.restart(partial(Clerk, greeting="reborn")).result(DEADLINE_S)
    assert mortals.greet("you").result(DEADLINE_S) == "reborn you"
    assert mortals.calls().result(DEADLINE_S) == [["made", "greet"], ["made", "greet"]]


@remote
def test_a_worker_that_dies_between_two_calls_is_noticed_at_the_next(mortals):
    _, process = mortals.ranks().result(DEADLINE_S)[0]
    os.kill(process, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="rank 0 of worker group 'victims'"):
        mortals.greet("you").result(NOTICED_S)


@remote
def test_ranks_that_would_wait_for_ever_for_one_that_failed_are_ended(mortals):
    with pytest.raises(FaultError, match="out of step") as caught:
        mortals.fail_while_others_wait(1).result(NOTICED_S)
    assert "rank 1" in caught.value.__notes__[0]
    assert "rank 0 of worker group 'victims'" in caught.value.__notes__[1]
    assert "must be restarted" in caught.value.__notes__[1]
    with pytest.raises(WorkerDied, match=r"rank 0 of worker group 'victims' .* was ended"):
        mortals.greet("you").result(NOTICED_S)


# --- Kills ---------------------------------------------------------------------------------------------------------


@remote
def test_a_call_in_progress_fails_when_its_group_is_killed(group, mortals, tmp_path):
    calls = begun_sleep(mortals, tmp_path), mortals.greet("nobody")
    mortals.kill()
    for call in calls:
        with pytest.raises(WorkerDied, match=r"rank 0 of worker group 'victims' on node \S+ was ended$"):
            call.result(NOTICED_S)
    assert not mortals.is_alive
    assert group.greet("you").result(DEADLINE_S) == "good day you"  # the pool goes on
    mortals.restart(partial(Clerk, greeting="reborn")).result(DEADLINE_S)
    assert mortals.greet("you").result(DEADLINE_S) == "reborn you"


@remote
def test_a_group_that_is_killed_between_two_calls_is_dead_at_once(mortals):
    mortals.ranks().result(DEADLINE_S)
    mortals.kill()
    mortals.kill()
    assert not mortals.is_alive
    with pytest.raises(WorkerDied, match="was ended"):
        mortals.greet("you").result(NOTICED_S)


def test_a_worker_in_this_process_is_closed_when_its_group_starts_anew_and_when_the_pool_ends():
    closed: list[object] = []

    class Closing:
        @register(Dispatch.ONE_TO_ALL)
        def answer(self) -> int:
            return 1

        def close(self) -> None:
            closed.append(self)

    pool = ResourcePool("one")
    group = WorkerGroup(pool, Closing, name="closing")
    group.restart().result()
    assert len(closed) == 1
    assert group.answer().result() == 1
    pool.close()
    assert len(set(closed)) == len(closed) == 2


def test_a_worker_in_this_process_ends_its_call_and_is_dead_for_the_next():
    pool = ResourcePool("here")
    try:
        group = WorkerGroup(pool, Clerk)
        begun, go_on = threading.Event(), threading.Event()
        call = group.answer_after(begun, go_on)
        assert begun.wait(DEADLINE_S)
        group.kill()
        go_on.set()
        assert call.result(DEADLINE_S) == "answer"
        with pytest.raises(WorkerDied, match=r"rank 0 of worker group 'here' on node \S+ was ended"):
            group.greet("you").result(DEADLINE_S)
        group.restart().result(DEADLINE_S)
        assert group.greet("you").result(DEADLINE_S) == "hello you"
    finally:
        pool.close()


# --- Two pools -----------------------------------------------------------------------------------------------------


def test_calls_on_two_pools_overlap(group, tmp_path):
    other = ResourcePool("other")
    try:
        neighbour = WorkerGroup(other, Clerk)
        here, there = str(tmp_path / "here"), str(tmp_path / "there")
        meetings = group.join(here, there), neighbour.join(there, here)
        assert [rendezvous.result(DEADLINE_S) for rendezvous in meetings] == [True, True]
    finally:
        other.close()
