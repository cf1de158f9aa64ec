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
    """counts("source of tests", NAME="value"): how many passed, failed ... in a run of pytest of their own."""

    def run(source: str, **environment: str) -> dict[str, int]:
        rules = (HERE / "conftest.py").read_text()
        (tmp_path / "conftest.py").write_text(rules.replace("_GRACE_S = 5.0", "_GRACE_S = 0.5"))
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: g\n    root: r\n")
        (tmp_path / "test_it.py").write_text(f"import os, subprocess, sys\nimport pytest\n{source}")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOCLAVE", "PYTEST"))}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", str(tmp_path)]
        ended = subprocess.run(
            command, cwd=tmp_path, env=outside | environment, capture_output=True, text=True, timeout=120, check=False
        )
        summary = ended.stdout.strip().splitlines()[-1]
        return {
            word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", summary.split(" in ")[0])
        }

    return run


LEAVES_A_PROCESS = "processes = []\ndef test_it():\n    processes.append(subprocess.Popen(['sleep', '60']))\n"


def test_a_test_that_leaves_a_process_behind_fails_and_the_next_one_does_not(counts: Callable[..., dict[str, int]]):
    assert counts(LEAVES_A_PROCESS + "def test_next(): pass\n") == {"passed": 2, "error": 1}


def test_a_process_of_a_fixture_of_many_tests_may_live_as_long_as_the_fixture(counts: Callable[..., dict[str, int]]):
    fixture = (
        "@pytest.fixture(scope='module')\ndef server():\n"
        "    with subprocess.Popen(['sleep', '60']) as process:\n        yield\n        process.kill()\n"
    )
    assert counts(fixture + "def test_a(server): pass\ndef test_b(server): pass\n") == {"passed": 2}


def test_a_process_that_such_a_fixture_forgets_is_found_at_its_end(counts: Callable[..., dict[str, int]]):
    fixture = (
        "processes = []\n@pytest.fixture(scope='module')\ndef server():\n"
        "    processes.append(subprocess.Popen(['sleep', '60']))\n    yield\n"
    )
    assert counts(fixture + "def test_a(server): pass\ndef test_b(server): pass\n") == {"passed": 2, "error": 1}


SKIPS = (
    "def test_a(): pytest.skip('no podman')\n"
    "@pytest.mark.skipif(True, reason='no redis')\ndef test_b(): pass\n"
    "def test_c(): pytest.skip('no GPU')\n"
    "@pytest.mark.xfail\ndef test_d(): assert False\n"
)


def test_skips_are_skips_by_default(counts: Callable[..., dict[str, int]]):
    assert counts(SKIPS) == {"skipped": 3, "xfailed": 1}


def test_where_everything_must_run_skips_fail_except_for_a_missing_gpu(counts: Callable[..., dict[str, int]]):
    assert counts(SKIPS, AUTOCLAVE_REQUIRE_ALL="1") == {"failed": 1, "error": 1, "skipped": 1, "xfailed": 1}


def test_where_everything_must_run_a_file_that_skips_as_a_whole_fails(counts: Callable[..., dict[str, int]]):
    source = "pytest.importorskip('no_such_library')\ndef test_a(): pass\n"
    assert counts(source) == {"skipped": 1}
    assert counts(source, AUTOCLAVE_REQUIRE_ALL="1") == {"error": 1}
