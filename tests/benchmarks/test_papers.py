"""The page of the papers is rendered from its data, and what each row names exists."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import papers

PAPERS = papers.read()
SECTIONS = {
    "thesis": "1.1 1.2 2.1 2.2 2.3 3.1 3.2 3.3 3.4 3.5 4.1 4.2 5.1 5.2 5.3 5.4 5.5 6 A",
    "deepcoder": "A1 A2 A3 A4 A5 A6",
    "ppo": "1 2.1.1 2.1.2 2.1.3 2.1.4 2.2.1 2.2.2 2.2.3 3.1.1 3.1.2 3.2 3.3.1 3.3.2 4",
    "coderl-plus": "1 2 3.1 3.2 4.1 4.2 4.3 5 Limitations A B C D E",
}
"""Numbers of the sections of each paper, by its table of contents."""
ROW = {
    "what": "Training",
    "module": ["autoclave.judge.local.LocalJudge.submit"],
    "test": ["tests/judge/test_plain_run.py::TestFilesAndValues::test_limits_hold"],
    "command": ["autoclave train recipes/demo.yaml --steps 2 group_size=4"],
    "status": "tested",
}


def test_every_module_test_command_and_setting_of_a_row_exists():
    assert list(papers.problems(PAPERS)) == []


@pytest.mark.parametrize("paper", SECTIONS)
def test_every_section_of_a_paper_has_rows(paper: str):
    found = PAPERS[paper]["sections"]
    assert {name.partition(" ")[0] for name in found} == {*SECTIONS[paper].split()}
    assert all(found.values())


def test_the_page_is_that_of_the_data():
    page = papers.PAGE.read_text(encoding="utf-8")
    assert papers.rendered(page, PAPERS) == page


def test_a_row_whose_names_exist_has_no_problems():
    assert list(papers.problems_of(ROW)) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"module": ["autoclave.judge.local.NoJudge"]}, "no symbol autoclave.judge.local.NoJudge"),
        ({"module": ["autoclave.nothing"]}, "no symbol autoclave.nothing"),
        ({"module": ["recipes/nothing.yaml"]}, "no symbol recipes/nothing.yaml"),
        ({"module": []}, "needs module"),
        ({"test": ["tests/judge/test_plain_run.py::test_limits_hold"]}, "no test tests/judge"),
        ({"test": ["tests/nothing.py::test_it"]}, "no test tests/nothing.py::test_it"),
        ({"test": ["tests/judge/test_plain_run.py::TestFilesAndValues::runner"]}, "no test tests/judge"),
        ({"command": ["autoclave nothing"]}, "No such command"),
        ({"command": ["autoclave act nothing"]}, "No such command"),
        ({"command": ["autoclave train recipes/demo.yaml --nothing"]}, "No such option"),
        ({"command": ["autoclave train recipes/demo.yaml grup_size=4"]}, "no such setting"),
        ({"command": ["autoclave train recipes/nothing.yaml"]}, "recipes/nothing.yaml"),
        ({"command": ["autoclave curate recipes/curate-deepcoder.yaml --out x group_size=4"]}, "no such setting"),
        ({"command": ["autoclave serve group_size=4"]}, "no such setting"),
        ({"command": ["autoclave evaluate model --benchmark nothing"]}, "nothing.yaml"),
        ({"command": ["autoclave act connect database shop nothing=4 --root ."]}, "nothing, engine: not a setting"),
        ({"command": ["make nothing"]}, "no target"),
        ({"command": ["python benchmarks/nothing.py"]}, "no benchmarks/nothing.py"),
        ({"command": ["python -m benchmarks.figures --nothing"]}, "no option --nothing"),
        ({"command": ["pytest tests/nothing.py"]}, "no tests/nothing.py"),
        ({"command": ["rm -rf build"]}, "not a command of this project"),
        ({"note": "see `optimizer.learning`"}, "no setting optimizer.learning"),
        ({"status": "partly"}, "needs note"),
        ({"status": "done"}, "'done' is not one of"),
        ({"modules": []}, "unknown fields ['modules']"),
    ],
)
def test_a_name_that_does_not_exist_is_reported(changed: dict[str, Any], expected: str):
    assert expected in "\n".join(papers.problems_of(ROW | changed))
