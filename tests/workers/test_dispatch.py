"""How calls are split over ranks: nothing is lost, work is even, results come back in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoclave.workers import Batch, Dispatch, Mesh
from autoclave.workers.batch import even_parts
from autoclave.workers.dispatch import plan_call

LENGTHS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 2)), max_size=30)
"""Tokens and stage of each row."""


def batch_of(lengths: list[int], **rows: np.ndarray) -> Batch:
    """Rows of one prompt token and the rest response; `name` tells them apart."""
    sequences = [(np.array([1]), np.full(length - 1, row + 2)) for row, length in enumerate(lengths)]
    return Batch.from_sequences(sequences, rows={"name": np.arange(len(lengths)), **rows}, responses={})


def parts_of(rows: list[tuple[int, int]], parts: int) -> list[np.ndarray]:
    lengths, stages = (np.array([row[column] for row in rows], dtype=np.int64) for column in (0, 1))
    return even_parts(lengths, stages, parts)


# --- Even parts ----------------------------------------------------------------------------------------------------


def test_the_longest_rows_are_dealt_first():
    """By hand: 8 to the first, 7 to the second, 6 to the second (7 < 8), 5 to the first, 4 to either (13 = 13)."""
    parts = even_parts(np.array([4, 5, 6, 7, 8]), np.zeros(5, dtype=np.int64), 2)
    assert [part.tolist() for part in parts] == [[0, 1, 4], [2, 3]]


def test_every_step_of_the_optimizer_is_even_not_just_all_together():
    """Cut in the middle, each part would have all rows of one step, and the other would wait."""
    parts = even_parts(np.array([9, 9, 9, 9]), np.array([0, 0, 1, 1]), 2)
    assert [part.tolist() for part in parts] == [[0, 2], [1, 3]]


def test_what_one_step_leaves_uneven_the_next_evens_out():
    parts = even_parts(np.array([5, 3]), np.array([0, 1]), 2)
    assert [part.tolist() for part in parts] == [[0], [1]]


@given(LENGTHS, st.integers(1, 6))
def test_each_row_is_in_exactly_one_part(rows, parts):
    found = parts_of(rows, parts)
    assert len(found) == parts
    assert sorted(row for part in found for row in part.tolist()) == list(range(len(rows)))
    assert all((np.diff(part) > 0).all() for part in found)


@given(LENGTHS, st.integers(1, 6))
def test_two_parts_of_a_stage_differ_by_at_most_its_longest_row(rows, parts):
    found = parts_of(rows, parts)
    for stage in {stage for _, stage in rows}:
        loads = [sum(rows[row][0] for row in part.tolist() if rows[row][1] == stage) for part in found]
        assert max(loads) - min(loads) <= max(length for length, at in rows if at == stage)


@given(LENGTHS, st.integers(1, 6))
def test_no_part_of_a_stage_is_empty_if_there_are_rows_for_all(rows, parts):
    found = parts_of(rows, parts)
    for stage in {stage for _, stage in rows}:
        if sum(at == stage for _, at in rows) >= parts:
            assert all(any(rows[row][1] == stage for row in part.tolist()) for part in found)


# --- The mesh ------------------------------------------------------------------------------------------------------


def test_ranks_are_counted_by_pipeline_stage_then_replica_then_tensor_peer():
    """A mesh of shape (pipeline 2, data 2, tensor 3), counted by numpy."""
    mesh = Mesh(data=2, tensor=3, pipeline=2)
    numbers = np.arange(12).reshape(2, 2, 3)
    assert mesh.size == 12
    for replica in range(2):
        assert {rank for rank in range(12) if mesh.replica(rank) == replica} == set(
            numbers[:, replica].ravel().tolist()
        )
        assert mesh.answering[replica] == numbers[-1, replica, 0]


# --- Calls ---------------------------------------------------------------------------------------------------------


def test_one_to_all_gives_every_rank_all_and_asks_rank_0():
    plan = plan_call(Dispatch.ONE_TO_ALL, (1, 2), Mesh(data=3))
    assert (plan.arguments, plan.answering, plan.join) == ([(1, 2)] * 3, [0], None)


def test_all_to_list_asks_every_rank():
    plan = plan_call(Dispatch.ALL_TO_LIST, (), Mesh(data=1, tensor=2))
    assert list(plan.answering) == [0, 1]
    assert plan.join(("a", "b")) == ["a", "b"]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 2), st.integers(1, 2))
def test_what_is_split_over_replicas_comes_back_in_order(lengths, data, tensor, pipeline):
    mesh = Mesh(data, tensor, pipeline)
    plan = plan_call(Dispatch.MODEL_3D, (batch_of(lengths), "option"), mesh)
    names = [tuple(batch.rows["name"].tolist()) for batch, _ in plan.arguments]
    assert {option for _, option in plan.arguments} == {"option"}
    assert all(
        names[rank] == names[peer]
        for rank, peer in enumerate(map(plan.answering.__getitem__, map(mesh.replica, range(mesh.size))))
    )
    answers = [plan.arguments[rank][0] for rank in plan.answering]
    joined = plan.join(answers) if plan.join else answers[0]
    assert joined.rows["name"].tolist() == list(range(len(lengths)))
    assert joined.tokens.tolist() == batch_of(lengths).tokens.tolist()


def test_data_parallel_pays_no_heed_to_the_mesh():
    plan = plan_call(Dispatch.DATA_PARALLEL, (batch_of([2, 2, 2, 2]),), Mesh(data=1, tensor=4))
    assert [len(batch) for (batch,) in plan.arguments] == [1, 1, 1, 1]


def test_minibatches_are_spread_over_all_ranks():
    batch = batch_of([3, 3, 3, 3], minibatch=np.array([0, 0, 1, 1]))
    plan = plan_call(Dispatch.DATA_PARALLEL, (batch,), Mesh(data=2))
    assert [part.rows["minibatch"].tolist() for (part,) in plan.arguments] == [[0, 1], [0, 1]]


def test_what_is_no_batch_is_the_answer_of_the_first_replica():
    plan = plan_call(Dispatch.DATA_PARALLEL, (batch_of([2, 2]),), Mesh(data=2))
    assert plan.join([{"loss": 1.0}, {"loss": 1.0}]) == {"loss": 1.0}


def test_a_rank_that_loses_rows_is_found_out():
    plan = plan_call(Dispatch.DATA_PARALLEL, (batch_of([2, 2, 2, 2]),), Mesh(data=2))
    with pytest.raises(ValueError, match="replica 1 was given 2 rows and returned 1"):
        plan.join([batch_of([2, 2]), batch_of([2])])


@pytest.mark.parametrize("dispatch", [Dispatch.DATA_PARALLEL, Dispatch.MODEL_3D])
def test_only_a_batch_can_be_split(dispatch):
    with pytest.raises(TypeError, match="is a Batch, not a dict"):
        plan_call(dispatch, ({},), Mesh(data=2))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_each_rank_gets_the_value_of_its_replica_and_answers_are_listed_by_replica(data, tensor, pipeline):
    mesh = Mesh(data, tensor, pipeline)
    plan = plan_call(Dispatch.EACH, ([f"for {replica}" for replica in range(data)], "option"), mesh)
    assert plan.arguments == [(f"for {mesh.replica(rank)}", "option") for rank in range(mesh.size)]
    assert plan.join([plan.arguments[rank][0] for rank in plan.answering]) == [f"for {r}" for r in range(data)]


@given(st.integers(0, 9), st.integers(1, 4), st.integers(1, 2))
def test_too_few_or_too_many_values_are_refused(values, data, tensor):
    assume(values != data)
    with pytest.raises(TypeError, match=f"^{values} values for {data} replicas; "):
        plan_call(Dispatch.EACH, (list(range(values)),), Mesh(data, tensor))
