"""Laws of the packed batch: selecting, joining and padding lose nothing and mix nothing up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import MaskReason
from autoclave.workers import Batch
from tests.training_parts import completion, group_of


@st.composite
def batches(draw: st.DrawFn, *, min_rows: int = 0) -> Batch:
    """Up to eight rows; every token and every value of a column is different, so that nothing can be mixed up."""
    turns = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=2)  # sampled, then observed
    rows = draw(
        st.lists(st.tuples(st.integers(1, 5), turns, st.integers(0, 6)), min_size=min_rows, max_size=8).map(
            lambda rows: [
                [prompt, *(length for turn in turns for length in turn), last] for prompt, turns, last in rows
            ]
        )
    )
    ends = iter(np.cumsum([length for row in rows for length in row]))
    sequences = [[np.arange(end - length, end) for length, end in zip(row, ends, strict=False)] for row in rows]
    num_sampled = sum(sum(row[1::2]) for row in rows)
    return Batch.from_sequences(
        sequences, rows={"name": np.arange(len(rows)) * 10}, responses={"value": np.arange(num_sampled) + 0.5}
    )


def unpacked(batch: Batch) -> list[tuple]:
    """Of each rollout its prompt, what was sampled, what was observed after the prompt, and its columns, by slicing."""
    rollouts, begun = [], 0
    for row in range(len(batch)):
        own = slice(batch.offsets[row], batch.offsets[row + 1])
        tokens, sampled = batch.tokens[own].tolist(), batch.sampled[own].tolist()
        prompt = sampled.index(True) if any(sampled) else len(tokens)
        values = batch.responses["value"][begun : begun + sum(sampled)].tolist()
        begun += sum(sampled)
        after = [token for token, is_sampled in zip(tokens, sampled, strict=True) if not is_sampled][prompt:]
        chosen = [token for token, is_sampled in zip(tokens, sampled, strict=True) if is_sampled]
        rollouts.append((tokens[:prompt], chosen, after, int(batch.rows["name"][row]), values))
    assert begun == len(batch.responses["value"])
    return rollouts


# --- Selecting -----------------------------------------------------------------------------------------------------


@given(st.data())
def test_selected_rows_keep_all_that_belongs_to_them_in_the_order_asked_for(data):
    batch = data.draw(batches(min_rows=1))
    rows = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=10))
    selected = batch.select(np.array(rows, dtype=np.int64))
    assert unpacked(selected) == [unpacked(batch)[row] for row in rows]


@given(st.data())
def test_a_mask_selects_like_the_indices_of_its_true_entries(data):
    batch = data.draw(batches())
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch))), dtype=bool)
    assert unpacked(batch.select(mask)) == unpacked(batch.select(np.flatnonzero(mask)))


@given(batches())
def test_lengths_are_those_of_the_parts(batch):
    parts = [tuple(map(len, row[:3])) for row in unpacked(batch)]
    assert batch.lengths.tolist() == [sum(lengths) for lengths in parts]
    assert batch.prompt_lengths.tolist() == [prompt for prompt, *_ in parts]
    assert batch.response_lengths.tolist() == [sampled for _, sampled, _ in parts]
    assert batch.response_rows.tolist() == [row for row, (_, sampled, _) in enumerate(parts) for _ in range(sampled)]


# --- Joining, micro-batches ----------------------------------------------------------------------------------------


@given(batches(), batches())
def test_joined_batches_hold_the_rows_of_both_in_order(first, second):
    assert unpacked(Batch.concatenate([first, second])) == unpacked(first) + unpacked(second)


@given(batches(), st.integers(1, 40))
def test_packed_micro_batches_are_a_partition(batch, max_tokens):
    pieces = list(batch.micro_batches(max_tokens, "packed"))
    assert sorted(row for piece in pieces for row in piece.tolist()) == list(range(len(batch)))
    for piece in pieces:
        assert len(piece) == 1 or batch.lengths[piece].sum() <= max_tokens


def with_few_prompts(batch: Batch) -> Batch:
    """`batch` with prompts of one value each, so that many are the same."""
    is_prompt = np.ones(len(batch.tokens), dtype=bool)
    for row, (start, length) in enumerate(zip(batch.offsets, batch.prompt_lengths, strict=False)):
        is_prompt[start + length : batch.offsets[row + 1]] = False
    return replace(batch, tokens=np.where(is_prompt, 7, batch.tokens))


@given(batches().map(with_few_prompts), st.integers(1, 40))
def test_micro_batches_with_shared_prompts_are_a_partition_and_fit(batch, max_tokens):
    pieces = list(batch.micro_batches(max_tokens, "shared_prompts"))
    assert sorted(row for piece in pieces for row in piece.tolist()) == list(range(len(batch)))
    for piece in pieces:
        assert len(piece) == 1 or batch.select(piece).with_shared_prompts()[0].size <= max_tokens


@given(batches(), st.integers(1, 40))
def test_micro_batches_are_a_partition(batch, max_tokens):
    rows = [row for piece in batch.micro_batches(max_tokens) for row in piece.tolist()]
    assert sorted(rows) == list(range(len(batch)))


@given(batches(), st.integers(1, 40))
def test_a_micro_batch_fits_padding_included_unless_it_is_one_row(batch, max_tokens):
    for piece in batch.micro_batches(max_tokens):
        assert len(piece) == 1 or len(piece) * batch.lengths[piece].max() <= max_tokens


@given(batches(min_rows=1))
def test_a_batch_that_fits_is_one_micro_batch(batch):
    assert len(list(batch.micro_batches(len(batch) * int(batch.lengths.max())))) == 1


# --- Padding -------------------------------------------------------------------------------------------------------


@given(batches())
def test_padding_hides_no_token_and_adds_none(batch):
    input_ids, attention, response = batch.padded()
    assert input_ids.shape == attention.shape == response.shape
    assert input_ids[attention == 1].tolist() == batch.tokens.tolist()
    assert attention.sum(1).tolist() == batch.lengths.tolist()
    assert (np.diff(attention, axis=1) <= 0).all()  # padded on the right
    assert response.sum(1).tolist() == batch.response_lengths.tolist()
    assert input_ids[response].tolist() == [token for _, tokens, *_ in unpacked(batch) for token in tokens]


# --- From rollouts -------------------------------------------------------------------------------------------------


def test_groups_become_rows_with_their_rewards_and_masks():
    first = group_of([1.0, None], [completion([5, 1]), completion([6, 7, 1])])
    second = group_of([0.0, 1.0], mask_reasons=[MaskReason.OVERLONG, None])
    batch = Batch.from_groups([first, second], minibatches=2)
    assert batch.rows["group"].tolist() == [0, 0, 1, 1]
    assert batch.rows["minibatch"].tolist() == [0, 0, 1, 1]
    assert batch.rows["in_loss"].tolist() == [True, True, False, True]
    assert batch.rows["rewards"].tolist() == pytest.approx([1.0, np.nan, 0.0, 1.0], nan_ok=True)
    assert batch.rows["length_limits"].tolist() == [8] * 4
    assert batch.tokens[:5].tolist() == [2, 9, 3, 5, 1]
    assert len(batch.responses["sampler_log_probs"]) == 2 + 3 + 3 + 3


@given(st.integers(1, 12), st.integers(1, 4))
def test_a_group_is_never_cut_by_a_minibatch(num_groups, minibatches):
    batch = Batch.from_groups([group_of([0.0, 1.0])] * num_groups, minibatches=minibatches)
    of_group = batch.rows["minibatch"].reshape(num_groups, 2)
    assert (of_group[:, 0] == of_group[:, 1]).all()
    assert set(of_group[:, 0].tolist()) <= set(range(minibatches))
    assert (np.diff(of_group[:, 0]) >= 0).all()


def test_no_groups_make_an_empty_batch():
    batch = Batch.from_groups([], minibatches=2)
    assert len(batch) == 0
    assert batch.padded()[0].shape[0] == 0


@given(batches(min_rows=1))
def test_packed_rows_stand_one_after_the_other_and_count_their_positions(batch):
    ids, positions, response = batch.packed()
    assert ids.shape == positions.shape == response.shape == (1, len(batch.tokens))
    starts = np.flatnonzero(positions[0] == 0)
    assert starts.tolist() == batch.offsets[:-1].tolist()
    assert positions[0].tolist() == [place for length in batch.lengths for place in range(length)]
    expected = [token for _, tokens, *_ in unpacked(batch) for token in tokens]
    assert ids[response].tolist() == expected


@given(batches(min_rows=1).map(with_few_prompts))
def test_a_shared_prompt_stands_once_before_all_its_responses(batch):
    (rows,) = batch.micro_batches(10**6, "shared_prompts")
    batch = batch.select(rows)
    ids, positions, response, before, sequences, places = batch.with_shared_prompts()
    prompts = {tuple(prompt) for prompt, *_ in unpacked(batch)}
    assert ids.shape == (1, sum(map(len, prompts)) + (batch.lengths - batch.prompt_lengths).sum())
    assert ids[response].tolist() == [token for _, tokens, *_ in unpacked(batch) for token in tokens]
    previous = before[response]
    assert (positions[0, previous] == positions[response] - 1).all()
    for row, length in enumerate(batch.lengths):
        columns = sequences[row, :length]
        assert ids[0, columns].tolist() == batch.tokens[batch.offsets[row] : batch.offsets[row + 1]].tolist()
        assert positions[0, columns].tolist() == list(range(length))
        own = columns[batch.prompt_lengths[row] :]
        assert before[0, own].tolist() == sequences[row, batch.prompt_lengths[row] - 1 : length - 1].tolist()
    assert sequences.reshape(-1)[places].tolist() == list(range(ids.shape[1]))
    assert (places % sequences.shape[1] < batch.lengths[places // sequences.shape[1]]).all()  # none is padding
