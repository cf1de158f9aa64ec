"""Who may write to which slot, and who may take it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import FaultError, HostError
from autoclave.workers.weights.control import CONTROL_BYTES, Control


def control(num_slots: int = 2) -> Control:
    made = Control(np.zeros(CONTROL_BYTES, dtype=np.uint8))
    made.set_up("token", num_slots)
    return made


def write(made: Control, version: int) -> int:
    slot = made.begin(version, 0.0)
    made.commit(slot)
    return slot


@given(st.lists(st.sampled_from(["publish", "take a", "take b", "fail"]), max_size=30))
def test_a_slot_that_is_used_is_never_written(acts: list[str]):
    made, version, used = control(), 0, {}
    for number, name in enumerate("ab"):
        made.register(number, name)
    for act in acts:
        if act in ("publish", "fail"):
            try:
                slot = made.begin(version + 1, 0.0)
            except FaultError:
                assert len(set(used.values())) > 0
                continue
            assert slot not in used.values()
            if act == "publish":
                made.commit(slot)
                version += 1
        elif version:
            number = "ab".index(act[-1])
            used[number] = made.hold(number, version)
            made.let_go(number, 0b11 & ~(1 << used[number]))


def test_a_half_written_slot_is_never_taken():
    made = control()
    made.register(0, "a")
    write(made, 1)
    made.begin(2, 0.0)
    with pytest.raises(
        FaultError, match=r"version 2 was not published whole: slot \d holds version 1, slot \d holds a h"
    ):
        made.hold(0, 2)
    assert made.hold(0, 1) == 0
    made.begin(2, 0.0)  # the other slot was let go when it was refused


def test_the_writer_waits_for_who_uses_a_slot_and_names_them():
    made = control()
    made.register(0, "sampler 0")
    made.register(1, "sampler 1")
    write(made, 1)
    made.hold(1, 1)
    write(made, 2)
    with pytest.raises(FaultError, match=r"version 3: its memory is still in use for version 1 by sampler 1 \(process"):
        made.begin(3, 0.01)
    assert made.hold(0, 1) == 0  # what could not be overwritten is whole
    made.let_go(0, 0b11)
    made.let_go(1, 0b11)
    assert write(made, 3) == 0


def test_who_has_ended_uses_nothing():
    block = np.zeros(CONTROL_BYTES, dtype=np.uint8)
    made = Control(block)
    made.set_up("token", 2)
    made.register(0, "a")
    write(made, 1)
    made.hold(0, 1)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    made._readers[0]["process"] = ended.pid
    write(made, 2)
    write(made, 3)


def test_a_process_with_the_number_of_one_that_ended_is_another():
    made = control()
    made.register(0, "a")
    write(made, 1)
    made.hold(0, 1)
    made._readers[0]["started"] -= 1
    assert made.users(0) == []


def test_a_memory_of_another_token_is_not_taken_for_this_one():
    with pytest.raises(HostError, match="another stands at its address"):
        control().require("other")
