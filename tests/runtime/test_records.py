"""An audit tells what was done to a chain of records, and finds nothing in one that is untouched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.runtime.records import NO_DIGEST, Checkpoint, Damage, Finding, Record, audit

KEY = b"k" * 32


def chain(*kinds: str) -> list[Record]:
    records: list[Record] = []
    before = NO_DIGEST
    for number, kind in enumerate(kinds, start=1):
        records.append(Record.after(before, number, float(number), kind, "s", {"n": number}))
        before = records[-1].digest
    return records


def checkpoint(records: list[Record], count: int | None = None) -> Checkpoint:
    count = len(records) if count is None else count
    return Checkpoint.signed(count, records[count - 1].digest if count else NO_DIGEST, KEY)


def renumbered(records: list[Record]) -> list[Record]:
    return [replace(record, number=number) for number, record in enumerate(records, start=1)]


RECORDS = chain(*"abcdef")
SIGNED = [checkpoint(RECORDS, 3), checkpoint(RECORDS)]


def found(records: list[Record], checkpoints: list[Checkpoint] = SIGNED) -> list[Finding]:
    return audit(records, checkpoints, KEY)


def test_nothing_is_found_where_nothing_was_done():
    assert found(RECORDS) == []
    assert found([], []) == []
    assert found([*RECORDS, Record.after(RECORDS[-1].digest, 7, 7.0, "g", "s", {})]) == []  # after the last signature


def test_a_chain_that_was_rewritten_is_told_from_where():
    assert found(chain(*"abcdez")) == [Finding(Damage.REWRITTEN, 6)]
    assert found(chain(*"azcdef")) == [Finding(Damage.REWRITTEN, 3)]
    assert found(chain(*"azc")) == [Finding(Damage.REWRITTEN, 3), Finding(Damage.TRUNCATED, 4)]


def test_a_checkpoint_of_somebody_without_the_key_is_told_and_proves_nothing():
    rewritten = chain(*"azcdef")
    forged = Checkpoint.signed(6, rewritten[-1].digest, b"another key")
    assert found(rewritten, [*SIGNED, forged]) == [Finding(Damage.FORGED, 6), Finding(Damage.REWRITTEN, 3)]


def test_checkpoints_that_are_gone_are_told_but_for_what_a_process_left_when_it_died():
    records = chain("proposed", "executed", "undone", "savepoint")
    assert found(records[:2], []) == []  # died between the record and its checkpoint
    assert found(records, []) == [Finding(Damage.UNSIGNED, 2)]
    assert found(records, [checkpoint(records, 2)]) == []
    assert found(records, [checkpoint(records, 1)]) == [Finding(Damage.UNSIGNED, 2)]


def test_what_is_known_from_elsewhere_shows_an_end_that_was_cut_off_with_its_checkpoints():
    known = 6, RECORDS[-1].digest
    assert audit(RECORDS, SIGNED, KEY, known) == []
    assert audit(RECORDS[:3], SIGNED[:1], KEY) == []
    assert audit(RECORDS[:3], SIGNED[:1], KEY, known) == [Finding(Damage.TRUNCATED, 4)]
    rewritten = chain(*"abcdez")
    assert audit(rewritten, [checkpoint(rewritten)], KEY, known) == [Finding(Damage.REWRITTEN, 6)]


@pytest.mark.parametrize("change", [{"kind": "z"}, {"body": {"n": 9}}, {"at": 0.5}, {"subject": "t"}], ids=str)
def test_a_record_that_was_altered_is_named_also_with_its_digest(change: dict[str, Any]):
    altered = replace(RECORDS[2], **change)
    assert found([*RECORDS[:2], altered, *RECORDS[3:]]) == [Finding(Damage.BROKEN, 3)]
    whole = Record.after(altered.previous, 3, altered.at, altered.kind, altered.subject, altered.body)
    assert found([*RECORDS[:2], whole, *RECORDS[3:]]) == [Finding(Damage.BROKEN, 4)]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.data())
def test_no_other_chain_passes(kinds: list[str], data: st.DataObject):
    records = chain(*kinds)
    signed = [checkpoint(records)]
    order = data.draw(st.lists(st.sampled_from(range(len(records))), max_size=len(records) + 2))
    other = renumbered([records[place] for place in order])
    is_same = [record.digest for record in other[: len(records)]] == [record.digest for record in records]
    assert (audit(other, signed, KEY) == []) == (is_same and len(other) == len(records))
