"""`autoclave doctor`: what the host offers, with reasons and fixes, and 3 when it is not enough."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import autoclave.compose
from autoclave.sandbox import without_pause_process
from autoclave.sandbox.container.engine import pause_processes

from .conftest import Ended

Autoclave = Callable[..., Ended]
# A host that forbids user namespaces, made without touching ours: the limit is one of the namespace it is set in.
FORBIDDING = [
    "unshare",
    "--user",
    "--map-root-user",
    "bash",
    "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces; "$@"',
    "-",
]


def test_it_lists_what_the_host_offers_and_the_level(autoclave: Autoclave):
    ended = autoclave("doctor")
    *checks, level = ended.stdout.splitlines()
    assert (ended.returncode, level) == (0, "level: sealed")
    assert [line for line in checks if not line.startswith(" ")] == ["isolation", "limits", "backends", "languages"]
    assert {line.split()[0] for line in checks if line.startswith(" ")} <= {"ok", "optional", "found:", "fix:"}


def test_json_has_a_reason_for_every_check_and_a_fix_for_every_missing_one(autoclave: Autoclave):
    report = json.loads(autoclave("doctor", "--json").stdout)
    assert (report["level"], report["refusal"]) == ("sealed", "")
    assert all(check["name"] and check["why"] for check in report["checks"])
    assert all(check["fix"] for check in report["checks"] if not check["is_present"])


def test_every_backend_is_listed_once_with_its_levels_and_the_configured_one_is_marked(autoclave: Autoclave):
    checks = json.loads(autoclave("doctor", "--json").stdout)["checks"]
    names = [check["name"] for check in checks]
    backends = {
        *("namespace: sealed (configured)", "namespace: restricted (configured)", "container: sealed"),
        *("subprocess: open", "container engine podman", "container engine docker"),
    }
    assert {check["name"] for check in checks if check["section"] == "backends"} == backends
    assert len(names) == len(set(names))
    assert {"landlock", "compiled parts of the sandbox"} <= set(names)


def test_packages_of_profiles_are_listed(autoclave: Autoclave):
    ended = autoclave("doctor", "--json", 'judge.profiles={"mine": {"packages": ["numpy", "no_such_package"]}}')
    languages = {c["name"]: c for c in json.loads(ended.stdout)["checks"] if c["section"] == "languages"}
    assert set(languages) == {
        *(
            "packages of profile lcb_numpy",
            "packages of profile plain_numpy",
            "packages of profile mine",
            "packages of profile leetcode",
        ),
        *("mathematics", "C++ compiler"),
    }
    mine = languages["packages of profile mine"]
    assert mine["detail"] == "missing: no_such_package"
    assert mine["fix"] == "pip install no_such_package into the environment of autoclave"
    assert ended.returncode == 0  # sealed all the same


def test_a_backend_without_its_engine_ends_with_3_and_the_fix(autoclave: Autoclave, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ended = autoclave("doctor", "--json", "sandbox.backend=container")
    report = json.loads(ended.stdout)
    missing = {c["name"]: c for c in report["checks"] if c["is_required"] and not c["is_present"]}
    assert (ended.returncode, report["level"]) == (3, None)
    assert "apt-get install podman" in missing["container: sealed (configured)"]["fix"]
    assert "podman is not installed" in report["refusal"]


def test_a_level_that_the_backend_does_not_offer_is_refused_with_the_fix(autoclave: Autoclave):
    ended = autoclave("doctor", "sandbox.level=open", "sandbox.minimum_level=open")
    assert ended.returncode == 3
    assert "level: none. sandbox.level = open" in ended.stdout
    assert "Fix: sandbox.level=sealed, or another sandbox.backend" in ended.stdout


PAUSES = """
import subprocess
import time
from pathlib import Path
from autoclave.compose.host import validate_host
from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.sandbox import without_pause_process
from autoclave.sandbox.container.engine import pause_processes

def running():
    return [pid for pid in pause_processes() if ") Z" not in Path(f"/proc/{pid}/stat").read_text()]

def ended():
    try:
        return not running()
    except OSError:
        return True

validate_host(SandboxConfig(), JudgeConfig())
was_started, deadline = bool(pause_processes()), time.monotonic() + 20
while not (has_ended := ended()) and time.monotonic() < deadline:
    pass
with without_pause_process():
    subprocess.run(["podman", "ps"], stdout=-3, stderr=-3)
    with without_pause_process():
        subprocess.run(["podman", "ps"], stdout=-3, stderr=-3)
    has_stayed = not ended()
print(was_started, has_ended, has_stayed)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("podman"), reason="needs root and podman")
def test_an_ordinary_users_podman_leaves_no_pause_process_behind_but_one_that_was_running_stays():
    interpreter = shutil.which("python3.11", path="/usr/bin")
    if interpreter is None or sys.version_info[:2] != (3, 11):
        pytest.skip("no interpreter outside of root's home that fits this environment")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    source = Path(autoclave.compose.__file__).parents[2]
    user = 60_000 + os.getpid() % 5_000  # its processes are those of this test alone
    with tempfile.TemporaryDirectory() as home:  # those of pytest may be entered by root alone
        os.chown(home, user, user)
        done = subprocess.run(
            [interpreter, "-c", PAUSES],
            env={"PYTHONPATH": f"{source}:{site}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
            | {"HOME": home, "XDG_RUNTIME_DIR": home},
            user=user, group=user, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=100,
        )  # fmt: skip
    if "Permission denied" in done.stderr and "autoclave" not in done.stderr:
        pytest.skip("the sources are in a private folder")
    if done.stdout.startswith("False"):
        pytest.skip("podman does not run for an ordinary user here")
    assert done.stdout == "True True True\n", done.stderr


@pytest.fixture
def on_a_forbidding_host() -> Callable[..., Ended]:
    """on_a_forbidding_host("run", ...): the command where no cell can be made."""

    def run(*words: str) -> Ended:
        command = [*FORBIDDING, sys.executable, "-m", "autoclave", *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input="")
        if "unshare failed" in ended.stderr:
            pytest.skip("this host cannot make a namespace to forbid namespaces in")
        return ended

    return run


def test_a_host_without_namespaces_ends_with_3_and_the_fix(on_a_forbidding_host: Callable[..., Ended]):
    ended = on_a_forbidding_host("doctor", "--json")
    report = json.loads(ended.stdout)
    missing = {check["name"]: check for check in report["checks"] if not check["is_present"]}
    assert (ended.returncode, report["level"]) == (3, None)
    assert "max_user_namespaces" in missing["user namespace"]["fix"]
    assert "Fix:" in report["refusal"]


def test_nothing_runs_on_a_host_without_namespaces(on_a_forbidding_host: Callable[..., Ended], tmp_path: object):
    program = f"{tmp_path}/program.py"
    with open(program, "w") as file:
        file.write("print('it ran')")
    ended = on_a_forbidding_host("run", program)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith('Error: sandbox.level "sealed" cannot be reached on this host')
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("named", ["-1", "0", "1", "nonsense", str(2**40)])
def test_a_pause_file_of_another_process_is_ignored(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda pid, signal: pytest.fail(f"{pid} is killed"))
    with without_pause_process():
        (tmp_path / "libpod/tmp").mkdir(parents=True)
        (tmp_path / "libpod/tmp/pause.pid").write_text(named)


@pytest.mark.root
def test_a_pause_file_in_a_folder_of_another_user_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "libpod/tmp").mkdir(parents=True)
    (tmp_path / "libpod/tmp/pause.pid").write_text(str(os.getpid()))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert os.getpid() in pause_processes()
    os.chown(tmp_path, 12345, 12345)
    assert os.getpid() not in pause_processes()
