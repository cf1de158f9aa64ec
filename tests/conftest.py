"""What every test has: a clean house afterwards, one thread, and no skips where everything must run."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.forked import ForkedCommands

# Time limits of single examples fail under load.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


@pytest.fixture(autouse=True)
def _one_tensor_thread() -> None:
    """Several threads on a busy machine wait for each other, and change the last bits of sums."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real benchmark data."""
    if not os.environ.get("AUTOCLAVE_DATA"):
        pytest.skip("AUTOCLAVE_DATA is not set")
    return Path(os.environ["AUTOCLAVE_DATA"])


@pytest.fixture(scope="module")
def forking() -> Iterator[ForkedCommands]:
    from tests.forked import ForkedCommands

    with ForkedCommands() as commands:
        yield commands


@pytest.fixture
def forked(tmp_path: Path, forking: ForkedCommands) -> Callable[..., subprocess.CompletedProcess[str]]:
    """forked("act", ..., input="..."): a command in an empty folder, in a fork of a process that has loaded it."""
    return lambda *words, **options: forking.run(tmp_path, *words, **options)


# --- Order ---------------------------------------------------------------------------------------------------------

LONG_FILES = (
    "training/test_training_runs.py",
    "service/test_nodes.py",
    "service/test_ray_serve.py",
    "training/alignment/test_aligned_runs.py",
    "benchmarks/test_every_benchmark.py",
    "runtime/test_kinds_together.py",
    "recipes/test_dry_run.py",
    "workers/weights/test_publishing.py",
    "workers/test_trainer_conformance.py",
    "workers/test_executors.py",
    "environments/test_synthetic.py",
    "problems/curation/test_labelled_set.py",
    "service/test_remote_judge.py",
    "workers/test_sharding.py",
    "runtime/test_examples.py",
    "judge/test_process_judge.py",
    "workers/test_saved_state.py",
    "runtime/databases/test_crashes.py",
    "training/test_checkpoints.py",
)
"""Files of more than 50 s. They start first: a long file that starts last keeps one worker busy and the others idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    rank = {tests / name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


# --- Skips ---------------------------------------------------------------------------------------------------------

ALLOWED_SKIPS = (
    "no GPU",
    "there is a GPU",
    "AUTOCLAVE_DATA is not set",
    "AUTOCLAVE_SOAK is not set",
    "AUTOCLAVE_OLDEST is not set",
    "AUTOCLAVE_INSTALL is not set",
    "AUTOCLAVE_VERL is not set",
    "AUTOCLAVE_VLLM is not set",
    "the history of the repository is not here",
)
"""With AUTOCLAVE_REQUIRE_ALL=1, a test that skips for a reason that does not begin like this fails."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("no GPU")
    for name in ("soak", "oldest", "install", "verl", "vllm"):
        variable = f"AUTOCLAVE_{name.upper()}"
        if item.get_closest_marker(name) and os.environ.get(variable) != "1":
            pytest.skip(f"{variable} is not set")
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


def _has_gpu() -> bool:
    if not Path("/dev/nvidiactl").exists():
        return False
    import torch

    return torch.cuda.is_available()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    return _refuse_skip((yield))


def _refuse_skip(report: Any) -> Any:
    if os.environ.get("AUTOCLAVE_REQUIRE_ALL") != "1" or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"AUTOCLAVE_REQUIRE_ALL=1, but this was skipped: {reason}"
    return report


# --- Processes -----------------------------------------------------------------------------------------------------

_GRACE_S = 20.0
_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # live as long as the interpreter
_known: set[tuple[int, str]] = set()
_keepers: set[Any] = set()
"""Fixtures of more than one test that are set up and will clean up: what runs may be theirs."""


def pytest_sessionstart() -> None:
    _known.update(_children())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    if fixturedef.scope != "function" and inspect.isgeneratorfunction(fixturedef.func):
        _keepers.add(fixturedef)
    return (yield)


def pytest_fixture_post_finalizer(fixturedef: Any) -> None:
    _keepers.discard(fixturedef)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    yield
    if _keepers:
        return
    deadline = time.monotonic() + _GRACE_S
    while (left := _left_behind()) and time.monotonic() < deadline:
        time.sleep(0.02)  # until they end
    for pid, _ in left:
        os.kill(pid, signal.SIGKILL)  # the next test is not to blame
    _known.update(left)
    if left:
        pytest.fail(f"left processes behind: {'; '.join(left.values())}", pytrace=False)


def _left_behind() -> dict[tuple[int, str], str]:
    found = {key: name for key, name in _children().items() if key not in _known}
    return {key: name for key, name in found.items() if not any(text in name for text in _OF_PYTHON)}


def _children() -> dict[tuple[int, str], str]:
    """Process id and start time -> command line, of the children of this process, ended ones that nobody reaped too."""
    children: dict[tuple[int, str], str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            state, parent, *rest = stat.rpartition(")")[2].split()
            if int(parent) == os.getpid():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                children[int(folder.name), rest[17]] = f"{folder.name} ({state}) {command or stat.partition('(')[2]}"
        except OSError:
            continue  # it ended meanwhile
    return children
