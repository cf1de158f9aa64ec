"""Which backend and level is started, what is refused, and what a backend does that no other does."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import HostError, IsolationError, SandboxFault
from autoclave.sandbox import open_sandbox
from autoclave.sandbox.backend import find_backend
from autoclave.sandbox.container.engine import Engine, image_content
from autoclave.sandbox.container.launch import ContainerLauncher
from autoclave.sandbox.guest.leftovers import empty_folder
from autoclave.sandbox.interface import Profile
from autoclave.sandbox.namespace.root import base_interpreter, root_plan
from autoclave.sandbox.unsealed import folder_use
from autoclave_testing.sandboxes import LIMITS, MINIMAL
from tests.sandbox.test_traces import descendants, is_alive, wait_until

CONTAINER = SandboxConfig(backend="container", container_engine="podman")


@cache
def podman_problem() -> str:
    try:
        ContainerLauncher(CONTAINER).launch(Profile("plain")).kill()
    except (HostError, SandboxFault) as error:
        return str(error)
    return ""


def needs_podman() -> None:
    if podman_problem():
        pytest.skip(f"podman starts no container here: {podman_problem()}")


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"backend": "subprocess"}, "sandbox.minimum_level=open"),
        ({"backend": "subprocess", "level": "sealed"}, "sandbox.level=open and sandbox.minimum_level=open"),
        ({"level": "open", "minimum_level": "open"}, "sandbox.level=sealed"),
        ({"backend": "container", "level": "restricted", "minimum_level": "restricted"}, "sandbox.level=sealed"),
    ],
)
def test_a_level_that_the_backend_lacks_is_refused_with_the_fix(settings: dict[str, Any], fix: str):
    with pytest.raises(IsolationError, match=fix):
        open_sandbox(SandboxConfig(**settings))


def test_auto_is_the_best_that_the_backend_offers_however_little_is_accepted():
    with contextlib.closing(open_sandbox(SandboxConfig(minimum_level="open"))) as sandbox:
        assert sandbox.level == "sealed"


def test_an_engine_that_is_not_there_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(IsolationError, match=r"(?s)podman is not installed.*Fix:"):
        open_sandbox(SandboxConfig(backend="container", memory_limit_mb=77))


def test_every_backend_validates_the_host_with_reasons_and_fixes():
    for name in ("namespace", "container"):  # `subprocess` needs nothing
        checks = find_backend(name).validate(SandboxConfig())
        assert checks
        assert all(check.why and check.fix for check in checks)


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with a backend `mine`, which is that of `subprocess`."""
    (tmp_path / "mine-1.dist-info").mkdir()
    (tmp_path / "mine-1.dist-info/METADATA").write_text("Name: mine\nVersion: 1\n")
    points = "[autoclave.sandbox_backends]\nmine = autoclave.sandbox.backend:SUBPROCESS\n"
    (tmp_path / "mine-1.dist-info/entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("other_package")
def test_a_package_can_add_a_backend():
    with contextlib.closing(open_sandbox(SandboxConfig(backend="mine", minimum_level="open"))) as sandbox:
        assert sandbox.level == "open"


def test_a_backend_that_nobody_has_is_refused():
    with pytest.raises(ValueError, match="must be one of namespace, container, subprocess"):
        SandboxConfig(backend="mine")


# --- Containers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--network=host", "net namespace"),
        ("--pid=host", "pid namespace"),
        ("--cap-add=SYS_ADMIN", "capabilities"),
        ("--security-opt=seccomp=unconfined", "seccomp"),
    ],
)
def test_a_container_that_is_less_than_sealed_is_refused(flag: str, reason: str):
    needs_podman()

    class Careless(ContainerLauncher):
        def _flags(self, profile: Profile) -> list[str]:
            kept = [
                kept
                for kept in super()._flags(profile)
                if kept.partition("=")[0] != flag.partition("=")[0] or "cap" in flag
            ]
            return [*kept, flag]

    with pytest.raises(SandboxFault, match=reason):
        Careless(CONTAINER).launch(Profile("plain"))


FAKE_PODMAN = """#!/bin/sh
case " $* " in
*" --runtime runc "*) ;;
*" run "*) echo "Error: OCI runtime error: crun: cgroups in hybrid mode not supported" >&2; exit 126 ;;
esac
exec {podman} "$@"
"""


def test_a_container_that_runs_out_of_memory_leaves_no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    needs_podman()
    monkeypatch.chdir(tmp_path)
    config = CONTAINER.model_copy(update={"memory_limit_mb": 64})
    with contextlib.closing(open_sandbox(config)) as sandbox:
        limits = replace(LIMITS, memory_mb=2000)  # so that the container's own limit ends it
        with (
            sandbox.open(b"x = b'x' * (1 << 30)", Profile("plain"), limits, MINIMAL) as cell,
            contextlib.suppress(SandboxFault),
        ):
            cell.run(b"")
    assert os.listdir(tmp_path) == []


def test_another_installed_runtime_is_tried_when_the_default_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    needs_podman()
    podman, runc = shutil.which("podman"), shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not runc:
        pytest.skip("runc is not installed")
    (tmp_path / "podman").write_text(FAKE_PODMAN.format(podman=podman))
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    launcher = ContainerLauncher(CONTAINER)
    launcher.launch(Profile("plain")).kill()
    assert "cgroups in hybrid mode not supported" in caplog.text
    assert "started with runc" in caplog.text


@pytest.mark.parametrize(
    ("engine", "words", "message"),
    [
        (Engine("podman", ("podman",), ""), "Error: OCI runtime error: crun: no", "Fix: as root: apt-get install runc"),
        (Engine("podman", ("podman",), "crun"), "Error: OCI runtime error: crun: no", "crun: no$"),
        (Engine("podman", ("podman",), ""), "Error: no space left", "no space left$"),
        (Engine("docker", ("docker",), ""), "Error: OCI runtime error: crun: no", "crun: no$"),
    ],
)
def test_without_another_runtime_the_fault_stays_and_says_the_fix(
    monkeypatch, engine: Engine, words: str, message: str
):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(SandboxFault, match=message):
        engine.with_other_runtime(SandboxFault(words))


def test_the_image_is_the_same_for_the_same_host_and_has_no_content():
    content = image_content(root_plan(base_interpreter()))
    assert content == image_content(root_plan(base_interpreter()))
    assert len(content) < 1_000_000


JUDGING = """
import sys
from autoclave.config.sandbox import SandboxConfig
from autoclave.sandbox import Limits, Profile, Runner, open_sandbox
config = SandboxConfig.model_validate_json(sys.argv[1])
limits = Limits(cpu_s=60, wall_s=60, memory_mb=256, output_bytes=1000, processes=16, disk_mb=8, open_files=64)
runner = Runner("minimal", "def prepare(content, place): return content\\ndef run(test): exec(test.program)\\n")
sandbox = open_sandbox(config)
source = b"import os, time\\nfor _ in range(3):\\n    if os.fork() == 0: os.setsid()\\ntime.sleep(50)"
with sandbox.open(source, Profile("plain"), limits, runner) as cell:
    print("started", flush=True)
    cell.run(b"")
"""


@pytest.mark.parametrize(
    "config",
    [
        SandboxConfig(level="restricted", minimum_level="restricted"),
        SandboxConfig(backend="subprocess", minimum_level="open"),
    ],
    ids=["restricted", "open"],
)
def test_without_namespaces_too_all_ends_with_a_judging_process_that_is_killed(config: SandboxConfig, tmp_path: Path):
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    os.chmod(tmp_path, 0o711)
    with subprocess.Popen(
        [sys.executable, "-c", JUDGING, config.model_dump_json()], stdout=subprocess.PIPE, env=environment
    ) as judging:
        assert judging.stdout
        assert judging.stdout.readline() == b"started\n"
        assert wait_until(lambda: len(descendants(judging.pid)) >= 2 + 8)  # zygote, first process, eight of the program
        processes = descendants(judging.pid)
        judging.send_signal(signal.SIGKILL)
        judging.wait()
    assert wait_until(lambda: not any(map(is_alive, processes)))
    assert wait_until(lambda: not list(tmp_path.iterdir()))


def test_a_container_ends_with_a_judging_process_that_is_killed_and_its_traces_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    needs_podman()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", JUDGING, CONTAINER.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=str(tmp_path))) as judging:
        assert judging.stdout
        assert judging.stdout.readline() == b"started\n"
        mine = f"-{judging.pid}-"
        assert mine in containers()
        judging.send_signal(signal.SIGKILL)
        judging.wait()
    assert wait_until(lambda: mine not in containers("--filter=status=running"), 60)
    ContainerLauncher(CONTAINER)
    assert mine not in containers("--all")
    assert not list(tmp_path.glob("autoclave-*"))


def containers(*options: str) -> str:
    command = ["podman", "ps", "--format={{.Names}}", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# --- What is left behind -------------------------------------------------------------------------------------------


def test_a_folder_is_emptied_however_deep_it_is(tmp_path: Path):
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(300):
            os.mkdir("d" * 99)
            Path("0").touch()
            os.chdir("d" * 99)
    finally:
        os.chdir(here)
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "shut").mkdir(0)
    try:
        assert folder_use(str(tmp_path))[1] >= 4096  # too deep to be followed: more than any limit
    finally:
        empty_folder(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
