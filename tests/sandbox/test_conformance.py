"""Every backend, at every level it offers, passes the conformance suite."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import IsolationError, Outcome
from autoclave.sandbox import Sandbox, open_sandbox
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool
from autoclave_testing.sandboxes import (
    SETTINGS,
    RestrictedConformance,
    SandboxConformance,
    SealedConformance,
    check_closing,
)


@contextlib.contextmanager
def opened(**settings: Any) -> Iterator[Sandbox]:
    try:
        sandbox = open_sandbox(SandboxConfig(**SETTINGS, **settings))
    except IsolationError as error:
        pytest.skip(f"this host cannot: {error}")
    yield sandbox
    sandbox.close()


class TestNamespaceSealed(SealedConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls) -> Iterator[Sandbox]:
        with opened() as sandbox:
            yield sandbox


class TestNamespaceSealedWithoutCompiledPart(SealedConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls) -> Iterator[Sandbox]:
        with opened():  # skips where it cannot be
            pass
        sandbox = ZygotePool(NamespaceLauncher(use_compiled=False))
        yield sandbox
        sandbox.close()


class TestNamespaceRestricted(RestrictedConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls) -> Iterator[Sandbox]:
        with opened(level="restricted", minimum_level="restricted") as sandbox:
            yield sandbox

    @pytest.mark.parametrize("path", ["/etc/hostname", "/proc/version", "/proc/self/status", "/sys/kernel", "/dev/tty"])
    def test_what_everybody_may_read_cannot_be_opened(self, run: Callable[..., Outcome], path: str):
        source = f"import os\ntry: os.open({path!r}, os.O_RDONLY); print('open')\nexcept OSError: print('refused')"
        assert run(source).stdout == b"refused\n"


class TestSubprocess(SandboxConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls) -> Iterator[Sandbox]:
        with opened(backend="subprocess", minimum_level="open") as sandbox:
            yield sandbox


class TestPodman(SealedConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls) -> Iterator[Sandbox]:
        with opened(backend="container", container_engine="podman") as sandbox:
            yield sandbox


class TestDocker(SealedConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
        with (
            docker_daemon(tmp_path_factory.mktemp("docker")),
            opened(backend="container", container_engine="docker") as s,
        ):
            yield s


@contextlib.contextmanager
def docker_daemon(folder: Path) -> Iterator[None]:
    """A daemon for this test alone, unless one is there."""
    if shutil.which("docker") and subprocess.run(["docker", "ps"], capture_output=True).returncode == 0:
        yield
        return
    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("docker"):
        pytest.skip("no docker")
    address = f"unix://{folder}/socket"
    daemon = subprocess.Popen(
        ["dockerd", "--iptables=false", "--bridge=none", "--default-ulimit=nofile=1024:1024", f"--host={address}",
         f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while subprocess.run(["docker", f"--host={address}", "ps"], capture_output=True).returncode != 0:
            if daemon.poll() is not None or time.monotonic() > deadline:
                pytest.skip("dockerd does not start here")
            time.sleep(0.2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            yield
    finally:
        daemon.terminate()
        daemon.wait(30)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="sealed"),
        pytest.param({"level": "restricted", "minimum_level": "restricted"}, id="restricted"),
        pytest.param({"backend": "subprocess", "minimum_level": "open"}, id="open"),
        pytest.param({"backend": "container", "container_engine": "podman"}, id="podman"),
    ],
)
def test_a_sandbox_that_is_closed_ends_its_tests_and_makes_no_cells(settings: dict[str, Any]):
    with opened(**settings) as sandbox:
        check_closing(sandbox)
