"""`autoclave curate` on records of public sets: what each stage keeps, and what others found in the same records."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from autoclave.core import read_problems
from autoclave.core.files import read_jsonl

pytest.importorskip("pyarrow", reason="needs the extra `curate`")

SETS = {
    "apps": "apps_train_5_ondisk.jsonl.gz",
    "taco": "format_taco_reencoded.jsonl.gz",
    "synthetic1": "format_synthetic1_reencoded.jsonl.gz",
    "deepcoder": "format_deepcoder_reencoded.jsonl.gz",
    "eurus2": "format_eurus2_reencoded.parquet",
    "leetcode": "leetcode_v030_dev30.jsonl.gz",
    "rllm": "rllm_leetcode_dev.jsonl.gz",
    "humaneval": "humaneval.jsonl.gz",
}
EVALUATION = {"humaneval_plus": "humaneval_plus_mini.jsonl.gz", "livecodebench": "lcb_codegen_samples.jsonl.gz"}


def recipe(data: Path, **others: Path) -> str:
    """The settings, with `others` in place of files of the real data."""
    sources = [
        {"set": name, "path": str(others.get(name, data / file)), "needs_solutions": name != "eurus2"}
        for name, file in SETS.items()
    ]
    evaluation = [{"set": name, "path": str(data / file)} for name, file in EVALUATION.items()]
    settings = {"minimum_tests": 1, "prompt_tokens": None, "strength": None, "verification": {"repeats": 2}}
    return json.dumps({"name": "real", "sources": sources, "evaluation_sets": evaluation, **settings})


def some_rows(file: Path, count: int, folder: Path) -> Path:
    """Return a file with so many rows of a set, from the whole of it."""
    rows = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    some = folder / file.stem
    some.write_bytes(b"".join(rows[2 :: len(rows) // count] if count < len(rows) else rows))
    return some


@pytest.mark.parametrize(("num_rllm", "num_leetcode"), [(15, 5), pytest.param(300, 30, marks=pytest.mark.soak)])
def test_every_row_is_kept_or_dropped_with_a_reason(
    autoclave, data: Path, tmp_path: Path, num_rllm: int, num_leetcode: int
):
    counts = {"rllm": num_rllm, "leetcode": num_leetcode}
    files = {name: some_rows(data / SETS[name], count, tmp_path) for name, count in counts.items()}
    (tmp_path / "recipe.yaml").write_text(recipe(data, **files))
    environment = os.environ | {"AUTOCLAVE_CACHE": str(tmp_path / "cache")}
    ended = autoclave("curate", "recipe.yaml", "--out", "set", env=environment)
    assert ended.returncode == 0, ended.stderr
    manifest = json.loads((tmp_path / "set" / "manifest.json").read_text())
    stages = {stage["name"]: stage for stage in manifest["stages"]}
    assert stages["read"]["kept"] == {
        **dict.fromkeys(("apps", "taco", "synthetic1", "deepcoder", "eurus2"), 5),
        "leetcode": num_leetcode,
        "rllm": num_rllm,
        "humaneval": 164,
    }
    dropped = [value for _, value in read_jsonl(tmp_path / "set" / "dropped.jsonl.zst")]
    reasons = Counter((value["stage"], value["origin"]["set"], value["reason"]) for value in dropped)
    assert reasons["decontamination", "humaneval", "identity"] == 164
    assert reasons["decontamination", "rllm", "ngrams"] == 1  # number-of-senior-citizens, which is in LiveCodeBench
    for name in ("apps", "taco", "deepcoder"):  # a `return` outside a function in solutions of problem 2287
        assert reasons["verification", name, "solution_fails"] == 1
    assert reasons["verification", "rllm", "all_solutions_fail"] == 0
    kept = list(read_problems(tmp_path / "set" / "problems.jsonl.zst"))
    assert len(kept) + len(dropped) == 5 * 5 + num_leetcode + num_rllm + 164
    assert all(value["detail"] for value in dropped)
    titles = {
        problem.statement.split()[0] for problem in kept if problem.id.startswith(("apps", "reencoded", "eurus2"))
    }
    assert len(titles) == 5  # each of the five problems once, from whichever set it passed in
    assert {value["reason"] for value in dropped if value["stage"] == "deduplication"} <= {"exact", "near", "behaviour"}
    licences = {source["name"]: source["licence"] for source in manifest["sources"]}
    assert (licences["apps"], licences["taco"]) == ("MIT", "Apache-2.0")


BROKEN = {
    "broken.jsonl.gz": (b"nonsense", "damaged gzip"),
    "cut.parquet": (b"PAR1\0\0", "cannot be read"),
    "other.jsonl": (b'{"statement": "x"}\n' * 200, "none of the first 100 rows"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_named(autoclave, tmp_path: Path, name: str):
    content, complaint = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    ended = autoclave(
        "curate", f"sources=[{{set: taco, path: {name}}}]", "verification=null", "strength=null", "--out", "x"
    )
    assert ended.returncode == 2, ended.stderr
    assert name in ended.stderr
    assert complaint in ended.stderr


def test_rows_that_cannot_be_read_are_listed(autoclave, tmp_path: Path):
    good = {"question": "Echo the word.", "input_output": '{"inputs": ["a"], "outputs": ["a"]}', "solutions": "[]"}
    lines = [json.dumps(good).encode(), b"{", b'{"question": "\xff"}', b'{"question": "x", "input_output": ""}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    ended = autoclave(
        "curate",
        "sources=[{set: taco, path: a.jsonl}]",
        "minimum_tests=1",
        "verification=null",
        "strength=null",
        "--out",
        "x",
    )
    assert ended.returncode == 0, ended.stderr
    dropped = [value for _, value in read_jsonl(tmp_path / "x" / "dropped.jsonl.zst")]
    assert [(value["origin"]["row"], value["reason"]) for value in dropped] == [
        ("a.jsonl:2", "not_json"),
        ("a.jsonl:3", "not_utf8"),
        ("a.jsonl:4", "no_tests"),
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{set: livecodebench, path: ., release: v9}", "release = 'v9' of livecodebench"),
        ("{set: taco, path: ., release: v1}", "this set has no releases"),
        ("{set: taco, path: nowhere}", "nowhere: no such file or folder"),
        ("{set: taco, path: .}", "holds no readable file"),
    ],
)
def test_unreadable_sources_are_reported_before_any_work(autoclave, tmp_path: Path, source: str, complaint: str):
    ended = autoclave("curate", f"sources=[{source}]", "--out", "x")
    assert ended.returncode == 2, ended.stderr
    assert complaint in ended.stderr
