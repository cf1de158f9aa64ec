"""The rules that `tests/conftest.py` holds all tests to, on small test files of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def counts(tmp_path: Path) -> Callable[..., dict[str, int]]:
    """counts("source of tests", ..., NAME="value"): how many passed, failed ... in a run of pytest of their own."""

    def run(*sources: str, **environment: str) -> dict[str, int]:
        rules = (HERE / "conftest.py").read_text()
        (tmp_path / "conftest.py").write_text(rules.replace("_GRACE_S = 20.0", "_GRACE_S = 0.5"))
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: g\n    root: r\n")
        for number, source in enumerate(sources):
            (tmp_path / f"test_{number}.py").write_text(f"import subprocess\nimport pytest\n{source}")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOCLAVE", "PYTEST"))}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--color=no",
            "--continue-on-collection-errors",
            str(tmp_path),
        ]
        ended = subprocess.run(
            command, cwd=tmp_path, env=outside | environment, capture_output=True, text=True, timeout=600, check=False
        )
        summary = ended.stdout.strip().splitlines()[-1]
        return {
            word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", summary.split(" in ")[0])
        }

    return run


def test_a_test_that_leaves_a_process_behind_fails_and_the_next_one_does_not(counts: Callable[..., dict[str, int]]):
    source = "processes = []\ndef test_it():\n    processes.append(subprocess.Popen(['sleep', '60']))\n"
    assert counts(source + "def test_next(): pass\n") == {"passed": 2, "error": 1}


def test_a_process_may_live_as_long_as_its_fixture_of_many_tests_and_no_longer(counts: Callable[..., dict[str, int]]):
    source = (
        "@pytest.fixture(scope='module')\ndef server():\n"
        "    with subprocess.Popen(['sleep', '60']) as process:\n        yield\n        process.kill()\n"
        "def test_a(server): pass\ndef test_b(server): pass\n"
        "processes = []\n@pytest.fixture(scope='class')\ndef forgets():\n"
        "    processes.append(subprocess.Popen(['sleep', '60']))\n    yield\n"
        "@pytest.mark.usefixtures('forgets')\nclass TestIt:\n    def test_c(self): pass\n    def test_d(self): pass\n"
    )
    assert counts(source) == {"passed": 4, "error": 1}


SKIPS = (
    "def test_a(): pytest.skip('no podman')\n"
    "@pytest.mark.skipif(True, reason='no redis')\ndef test_b(): pass\n"
    "def test_c(): pytest.skip('no GPU')\n"
    "@pytest.mark.xfail\ndef test_d(): assert False\n"
)
SKIPS_WHOLE = "pytest.importorskip('no_such_library')\ndef test_e(): pass\n"


def test_skips_are_skips_by_default(counts: Callable[..., dict[str, int]]):
    assert counts(SKIPS, SKIPS_WHOLE) == {"skipped": 4, "xfailed": 1}


def test_where_everything_must_run_skips_fail_except_for_a_missing_gpu(counts: Callable[..., dict[str, int]]):
    found = counts(SKIPS, SKIPS_WHOLE, AUTOCLAVE_REQUIRE_ALL="1")
    assert found == {"failed": 1, "error": 2, "skipped": 1, "xfailed": 1}
