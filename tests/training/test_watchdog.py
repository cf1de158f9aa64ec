"""A run in which nothing moves ends with an error that says where everybody was; one that moves is left alone."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from itertools import count
from pathlib import Path

import pytest

from autoclave.core import StalledFault
from autoclave.training.watchdog import StopRequest, Watchdog
from tests.training_parts import DEADLINE_S

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
ROLES = {"driver": lambda: "step 3 of 9: learn", "judge": lambda: "4 programs wait"}


def watchdog(folder: Path, end_run, *, roles=ROLES, patience_s=0.2, **options) -> Watchdog:
    return Watchdog(folder, roles, end_run, patience_s=patience_s, say=lambda line: None, **options)


def test_a_run_that_stands_still_ends_with_the_states_of_all_roles_and_the_stacks_of_all_threads(tmp_path: Path):
    with (
        StopRequest() as stop,
        pytest.raises(StalledFault, match=r"nothing moved for 0 s \(watchdog_s\); the driver: step 3 of 9: learn; "),
        watchdog(tmp_path, stop.end_run),
    ):
        Future().result(DEADLINE_S)  # the main thread waits for somebody who never comes
    (page,) = tmp_path.glob("stalled-*.txt")
    text = page.read_text()
    assert "driver\n    step 3 of 9: learn" in text
    assert "judge\n    4 programs wait" in text
    assert "thread MainThread" in text
    assert "Future().result(DEADLINE_S)" in text


def test_a_run_in_which_anything_moves_is_left_alone(tmp_path: Path):
    numbers, looks, ended = count(), threading.Semaphore(0), []

    def moves() -> str:
        looks.release()
        return f"{next(numbers)} sampled"

    with watchdog(tmp_path, ended.append, roles=ROLES | {"samplers": moves}):
        for _ in range(60):  # three times its patience
            assert looks.acquire(timeout=DEADLINE_S)
    assert not ended
    assert not list(tmp_path.iterdir())


def test_a_process_whose_main_thread_never_returns_is_ended_with_exit_code_3(tmp_path: Path, capfd):
    codes, is_ended = [], threading.Event()

    def end_process(code: int) -> None:
        codes.append(code)
        is_ended.set()

    with watchdog(tmp_path, lambda error: None, grace_s=0.05, end_process=end_process):
        assert is_ended.wait(DEADLINE_S)
    assert codes == [3]
    assert "the process cannot end by itself" in capfd.readouterr().err


def test_a_role_that_cannot_say_what_it_does_does_not_blind_it(tmp_path: Path):
    errors, is_told = [], threading.Event()

    def broken() -> str:
        raise OSError("gone")

    def end_run(error: BaseException) -> None:
        errors.append(error)
        is_told.set()

    with watchdog(tmp_path, end_run, roles=ROLES | {"judge": broken}):
        assert is_told.wait(DEADLINE_S)
    assert "cannot say what it does: OSError('gone')" in next(tmp_path.glob("stalled-*.txt")).read_text()


def test_the_first_signal_of_a_run_is_answered_by_a_line(capfd):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_made
    assert capfd.readouterr().err.strip() == "Stopping after this step; a second signal stops at once"
