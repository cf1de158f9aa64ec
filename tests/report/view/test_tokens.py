from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from autoclave.core import DataError
from autoclave.report.view import shown as tokens
from autoclave.report.view.shown import Detokenizer, token_strip
from autoclave.runs.rollouts import TokenColumns


def columns(ids, sampler, trainer, *, is_processed: bool = False) -> TokenColumns:
    return TokenColumns(ids, np.array(sampler, np.float64), np.array(trainer, np.float64), is_processed)


# --- Texts ---------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="print(34) é\N{CHEQUERED FLAG}\n", max_size=30))
def test_texts_of_tokens_together_are_the_text(tokenizer: Tokenizer, text: str):
    assert "".join(Detokenizer(tokenizer).pieces(tokenizer.encode(text).ids)) == text


def test_a_character_of_several_tokens_stands_in_the_last(tokenizer: Tokenizer):
    ids = tokenizer.encode("\N{CHEQUERED FLAG}3").ids
    assert len(ids) == 5  # four bytes, which the tokenizer has never seen together
    assert Detokenizer(tokenizer).pieces(ids) == ["", "", "", "\N{CHEQUERED FLAG}", "3"]


def test_bytes_that_are_no_text_still_show(tokenizer: Tokenizer):
    ids = tokenizer.encode("\N{CHEQUERED FLAG}").ids[:2] + tokenizer.encode("3").ids
    pieces = Detokenizer(tokenizer).pieces(ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert pieces[-1].endswith("3")


def test_blanks_before_words_stay_where_a_tokenizer_drops_them_from_the_first():
    core = Tokenizer(models.WordLevel({"▁to": 0, "▁be": 1, "?": 2}, unk_token="?"))
    core.decoder = decoders.Metaspace()
    assert Detokenizer(core).pieces([0, 1, 2]) == ["to", " be", "?"]


def test_special_tokens_show(tokenizer: Tokenizer):
    assert Detokenizer(tokenizer).pieces([tokenizer.token_to_id("<end>")]) == ["<end>"]


@pytest.mark.parametrize("wrong", [-1, 10**6, 2**70])
def test_ids_of_another_tokenizer_have_no_texts(tokenizer: Tokenizer, wrong: int):
    assert Detokenizer(tokenizer).pieces([1, wrong]) is None


def test_a_run_without_a_tokenizer_has_no_texts(tmp_path: Path):
    assert Detokenizer.of_run(tmp_path) is None


def test_a_damaged_tokenizer_is_named(tmp_path: Path):
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match=r"start/tokenizer\.json: not a tokenizer"):
        Detokenizer.of_run(tmp_path)


# --- Gaps ----------------------------------------------------------------------------------------------------------


def test_tokens_are_coloured_by_gap_and_by_surprise(tokenizer: Tokenizer):
    # Gaps 0, -0.02, +0.1, -0.75; surprises 0.1, 0.7 (one in two), 2.5 (under one in ten), 5 (under one in a hundred).
    strip = token_strip(
        columns([5, 6, 7, 8], [-0.1, -0.7, -2.5, -5.0], [-0.1, -0.72, -2.4, -5.75]), Detokenizer(tokenizer)
    )
    assert [token.css_class for token in strip.head] == ["", "g1 s1", "g2 s2", "g3 s3"]
    assert [token.index for token in strip.largest] == [3, 2, 1]
    assert (strip.mean_mismatch, strip.max_mismatch) == (pytest.approx(0.87 / 4), pytest.approx(0.75))
    assert strip.numbers == "5 -0.1 -0.1;6 -0.7 -0.72;7 -2.5 -2.4;8 -5 -5.75"


def test_what_the_trainer_did_not_compute_has_no_gap(tokenizer: Tokenizer):
    strip = token_strip(columns([5, 6], [-0.1, math.nan], [math.nan] * 2), Detokenizer(tokenizer))
    assert (strip.mean_mismatch, strip.max_mismatch, list(strip.largest)) == (None, None, [])
    assert [token.css_class for token in strip.head] == ["", ""]
    assert strip.numbers == "5 -0.1 -;6 - -"


def test_rounding_of_the_record_is_no_gap():
    assert columns([1], [-0.85073], [-0.85073 + 1e-9]).mismatches.tolist() == [0.0]


def test_of_a_long_response_both_ends_show_and_the_largest_gap_is_that_of_all(tokenizer: Tokenizer, monkeypatch):
    monkeypatch.setattr(tokens, "SHOWN_TOKENS", 4)
    mismatches = [0.0] * 10
    mismatches[5] = -2.0  # in the middle, which does not show
    strip = token_strip(columns([5] * 10, [0.0] * 10, mismatches), Detokenizer(tokenizer))
    assert ([token.index for token in strip.head], strip.left_out, [token.index for token in strip.tail]) == (
        [0, 1],
        6,
        [8, 9],
    )
    assert [(token.index, token.mismatch) for token in strip.largest] == [(5, -2.0)]
    assert strip.max_mismatch == 2.0
    assert strip.numbers.count(";") == 3
