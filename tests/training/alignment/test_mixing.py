from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoclave.training.alignment.items import mixed, spread


@given(st.integers(2, 200), st.floats(0, 0.95), st.integers(1, 60))
def test_over_many_steps_the_share_is_what_was_asked(prompts: int, share: float, steps: int):
    carry, alignment_samples = 0.0, 0
    for _ in range(steps):
        mix = mixed(prompts, share, carry=carry, there=10_000)
        carry, alignment_samples = mix.carry, alignment_samples + mix.alignment_samples
        assert 0 <= mix.alignment_samples < prompts
    assert abs(alignment_samples - share * prompts * steps) <= max(1, steps * (share * prompts - (prompts - 1))) + 1e-6


def test_what_is_short_is_reported_and_not_made_up_for():
    mix = mixed(64, 0.4, carry=0.0, there=10)
    assert (mix.alignment_samples, mix.short) == (10, 15)
    assert 0.59 < mix.carry < 0.61
    later = mixed(64, 0.4, carry=mix.carry, there=1000)
    assert (later.alignment_samples, later.short) == (26, 0)


@given(st.integers(1, 60), st.integers(0, 60))
def test_both_kinds_keep_their_order_and_any_stretch_has_about_the_mix(num_programs: int, num_alignment_samples: int):
    programs = [("program", number) for number in range(num_programs)]
    alignment_samples = [("alignment_sample", number) for number in range(num_alignment_samples)]
    found = spread(programs, alignment_samples)
    assert [item for item in found if item[0] == "program"] == programs
    assert [item for item in found if item[0] == "alignment_sample"] == alignment_samples
    share, seen = num_alignment_samples / len(found), 0
    for place, (kind, _) in enumerate(found, start=1):
        seen += kind == "alignment_sample"
        assert abs(seen - share * place) <= 1


def test_what_cannot_be_asked_is_not_carried():
    carry = 0.0
    for _ in range(10):
        found = mixed(2, 0.9, carry=carry, there=5)
        assert found.alignment_samples == 1
        carry = found.carry
        assert 0 <= carry < 1
