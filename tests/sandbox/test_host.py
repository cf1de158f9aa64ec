"""What the doctor sees, and the refusal to start with less isolation than asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import autoclave.sandbox
from autoclave.core import HostError
from autoclave.sandbox import Sandbox, validate_host
from autoclave.sandbox.bootstrap import require_current_parts


def test_every_check_says_why_and_how_to_fix():
    checks = validate_host()
    assert {"user namespace", "mount namespace", "seccomp", "pivot_root", "landlock"} <= {c.name for c in checks}
    assert {"control group: memory", "control group: cpu", "control group: pids"} <= {c.name for c in checks}
    assert all(check.why and check.fix for check in checks)
    assert all(check.detail for check in checks if not check.is_present)


def test_where_cells_work_every_required_check_is_present(sandbox: Sandbox):
    assert sandbox.level == "sealed"
    assert [check for check in validate_host() if check.is_required and not check.is_present] == []


def test_a_compiled_part_older_than_its_source_is_refused_in_a_checkout_only(tmp_path: Path):
    package = tmp_path / "src/autoclave/sandbox"
    (package / "guest").mkdir(parents=True)
    for name in ("guest/_cell", "_streams"):
        (package / f"{name}.abi3.so").touch()
        (package / f"{name}.c").touch()
        os.utime(package / f"{name}.c", (0, 0))
    require_current_parts(package)
    os.utime(package / "_streams.abi3.so", (0, 0))
    os.utime(package / "_streams.c", (9, 9))
    require_current_parts(package)  # an installed package
    (tmp_path / "hatch_build.py").touch()
    with pytest.raises(HostError, match=r"_streams\.abi3\.so: is older than its source _streams\.c\. Fix: make setup"):
        require_current_parts(package)


OPENING = """
import sys
from autoclave.config.sandbox import SandboxConfig
from autoclave.core import IsolationError
from autoclave.sandbox import open_sandbox
try:
    open_sandbox(SandboxConfig())
except IsolationError as error:
    sys.exit(f"refused {error}")
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and the tool `unshare`")
def test_a_host_that_forbids_namespaces_is_refused_with_the_fix():
    # In a user namespace whose limit of further ones is 0, as on a hardened host.
    script = f'echo 0 > /proc/sys/user/max_user_namespaces; exec {sys.executable} -c "$PROGRAM"'
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script],
        env=dict(os.environ, PROGRAM=OPENING), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr.startswith("refused")
    assert "user namespace" in done.stderr
    assert "Fix: as root: sysctl" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_cells_work_for_an_ordinary_user_too():
    interpreter = shutil.which("python3.11", path="/usr/bin")
    if interpreter is None or sys.version_info[:2] != (3, 11):
        pytest.skip("no interpreter outside of root's home that fits this environment")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    source = Path(autoclave.sandbox.__file__).parents[2]
    program = (
        "from autoclave.sandbox.backend import NamespaceBackend\n"
        "from autoclave.config.sandbox import SandboxConfig\n"
        "from autoclave.sandbox.start import try_level\n"
        "import os\nassert os.getuid() == 65534\n"
        "try_level(SandboxConfig(), NamespaceBackend(), 'sealed')\nprint('sealed')"
    )
    done = subprocess.run(
        [interpreter, "-c", program], env={"PYTHONPATH": f"{source}:{site}", "PYTHONDONTWRITEBYTECODE": "1"},
        user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "Permission denied" in done.stderr and "autoclave" not in done.stderr:
        pytest.skip("the sources are in a private folder")
    assert done.stdout == "sealed\n", done.stderr
