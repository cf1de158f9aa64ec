from __future__ import annotations

import pytest

from autoclave.core.errors import DataError, InputError
from autoclave.runs.reader import number, read_run


def test_of_repeated_steps_the_last_wins(make_run, add_lines):
    folder = make_run(steps=20)
    again = [{"kind": "train", "step": 12, "time": 2e9, "reward/mean": 0.125}]
    add_lines(folder / "metrics.jsonl", again)
    train = read_run(folder).train
    assert [row["step"] for row in train] == list(range(1, 21))
    assert train[11]["reward/mean"] == 0.125


def test_a_line_cut_by_a_kill_is_left_out(make_run):
    folder = make_run(steps=20)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 21, "rew')
    assert read_run(folder).steps_done == 20


def test_lines_after_a_cut_one_count(make_run, add_lines):
    folder = make_run(steps=20)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind": "train", "step": 21, "x": "\xe2\n')
    add_lines(folder / "metrics.jsonl", [{"kind": "train", "step": 21, "reward/mean": 0.5}])
    assert read_run(folder).steps_done == 21


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: no such folder"):
        read_run(tmp_path / "nowhere")


def test_a_folder_of_something_else_is_named_with_what_it_lacks(tmp_path):
    with pytest.raises(InputError) as error:
        read_run(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "config.yaml is missing" in str(error.value)


@pytest.mark.parametrize("content", ["a: [", "- a\n- b\n"])
def test_a_configuration_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(InputError, match=r"config\.yaml: (not valid YAML|expected a mapping)"):
        read_run(tmp_path)


def test_a_damaged_summary_is_named(make_run):
    folder = make_run(steps=1)
    (folder / "summary.json").write_text("{")
    with pytest.raises(DataError, match=r"summary\.json"):
        read_run(folder)


def test_rollout_files_are_in_order_of_steps_and_others_are_ignored(make_run):
    folder = make_run(steps=20)
    for name in ("step-1000000.jsonl.gz", ".step-000030.jsonl.gz.x.partial", "notes.txt"):
        (folder / "rollouts" / name).touch()
    names = [path.name for path in read_run(folder).rollout_files]
    assert names == ["step-000010.jsonl.gz", "step-000020.jsonl.gz", "step-1000000.jsonl.gz"]


@pytest.mark.parametrize("value", [None, "0.5", True, float("nan"), float("inf")])
def test_what_is_no_finite_number_is_no_number(value):
    assert number({"x": value}, "x") is None
