"""A store of the last release is opened by this program, and servers of both work on it side by side."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from autoclave.config import RemoteJudgeConfig
from autoclave.core import Program
from autoclave.judge import JudgeJob
from autoclave.service.client import RemoteJudge
from autoclave.service.store.sql import Store
from autoclave.service.tokens import Limits, Scope, create_token

from .conftest import RIGHT, LiveServer, problem, until

LAST = "f35ba2acd1efca6be2fdd892c99c85f2ad4f5778"
"""Commit whose store has the tables of the last release."""


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the last release, from the history of the repository."""
    root = Path(__file__).parents[2]
    found = subprocess.run(["git", "archive", LAST, "src/autoclave"], cwd=root, capture_output=True, check=False)
    if found.returncode:
        pytest.skip("the history of the repository is not here")
    folder = tmp_path_factory.mktemp("last")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def run_last(source: Path, *words: str) -> str:
    """Run the last release's Python and return what it printed."""
    done = subprocess.run(
        [sys.executable, *words], env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FILL = """
import sys
from autoclave.compose.service import open_store
from autoclave.core import Problem, StdinCase, StdinTests
from autoclave.service.store.records import Batch, JobSpec
store = open_store(sys.argv[1])
problem = Problem("Add.", StdinTests("stdin", [StdinCase("3 4\\n", "7\\n")]), id="add", profile="plain")
store.put_problems([problem])
store.add_batch(Batch("b", "c", "k", "print", 4, 1.0), [("1", JobSpec(problem.digest, b"1")), ("2", JobSpec("", b"2"))])
store.close()
"""
WORK = """
import sys
from autoclave.compose.service import open_store
from autoclave.core import Problem, StdinCase, StdinTests
from autoclave.service.store.records import Batch, Bounds, JobSpec
store = open_store(sys.argv[1])
assert not hasattr(store, "charge")  # this is the last release
store.join(); store.beat(2, 1.0)
assert len(store.tokens()) == 3, store.tokens()
assert store.token(sys.argv[2]).scopes == {"judge"}
store.put_problems([Problem("Old.", StdinTests("stdin", [StdinCase("", "1")]), id="old", profile="plain")])
assert len(store.list_problems("", 9)) == 2
store.add_batch(Batch("o", "c", "o", "print", 4, 1.0), [("3", JobSpec("", b"3"))], Bounds(9, 9))
claimed = [job.id for job in store.claim(9, 0.0)]
assert store.finish([(id, "{}") for id in claimed]) == claimed
store.purge(0.0); store.leave(); store.close()
print(*claimed)
"""


def test_programs_of_both_releases_use_one_store(open_node: Callable[[], Store], place: str, last_release: Path):
    run_last(last_release, "-m", "autoclave", "serve", "token", "create", "--scope", "judge", f"store={place}")
    run_last(last_release, "-c", FILL, place)
    store = open_node()
    (old,) = store.tokens()
    assert (old.limits, old.scopes) == (Limits(), {Scope.JUDGE})
    assert [record.id for record in store.list_problems("", 9)] == ["add"]
    assert not store.delete_problem(problem().digest, old.id)  # nobody's: only an admin may
    _, limited = create_token("", frozenset({Scope.JUDGE, Scope.ADMIN}), 2.0, None, Limits(queue=3))
    _, admin = create_token("", frozenset({Scope.ADMIN}), 3.0, None)
    for record in (limited, admin):
        store.add_token(record)
    (job,) = store.claim(1, 0.0)
    assert (job.id, job.created, job.request) == ("1", 1.0, "")
    assert store.finish([("1", "{}")], {"c": 1.0}) == ["1"]
    assert run_last(last_release, "-c", WORK, place, limited.id).split() == ["2", "3"]
    assert store.is_finished("b")
    assert store.token(limited.id) == limited
    assert {record.id for record in store.list_problems("", 9)} == {"add", "old"}
    open_node()  # again


def test_servers_of_both_releases_judge_side_by_side(
    postgres_url: str, last_release: Path, start_server: Callable[..., LiveServer], tmp_path: Path, unused_port: int
):
    words = [sys.executable, "-m", "autoclave", "serve", f"port={unused_port}", f"store={postgres_url}"]
    with (tmp_path / "log").open("wb") as log:
        old = subprocess.Popen(
            [*words, "judge.workers=1", "drain_s=1"],
            env=os.environ | {"PYTHONPATH": str(last_release)},
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{unused_port}"
        until(lambda: "Serving at" in (tmp_path / "log").read_text() or old.poll() is not None)
        assert old.poll() is None, (tmp_path / "log").read_text()
        new = start_server(store=postgres_url, node_lease_s=15.0)  # adds to the tables under the other one
        with RemoteJudge(RemoteJudgeConfig(urls=(url, new.url), programs_per_request=2)) as judge:
            futures = [judge.submit(JudgeJob(problem(), Program(f"{RIGHT}  # {i}"), str(i))) for i in range(24)]
            assert all(future.result(120).is_accepted for future in futures)
        # Each one answers for the other's batches.
        with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as client:
            body = {"problem": problem().digest, "source": RIGHT}
            for first, second in ((client, new.client), (new.client, client)):
                job = first.post("/v1/jobs", json=body).json()["job"]
                assert second.get(f"/v1/jobs/{job}", params={"wait_s": 60}).json()["verdict"]["status"] == "accepted"
        judged = {line["action"] for line in map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())}
        assert "verdict" in judged  # by the old one too
    finally:
        old.terminate()
        assert old.wait(60) == 0
