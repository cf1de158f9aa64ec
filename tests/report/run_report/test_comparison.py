from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.report.run_report import write_comparison
from tests.report.conftest import write_run

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, add_lines) -> Make:
    """`make("a", share=0.4, settings="seed: 3", task=0.25)`: a run with that share of alignment samples, and a held-out
    task."""

    def write(name: str, *, share: float | None = None, settings: str = "", task: float | None = None, **more) -> Path:
        folder = write_run(tmp_path / name, steps=more.pop("steps", 4), **more)
        if share is not None:
            rows = [{"kind": "train", "step": step, "alignment/share": share} for step in range(1, 5)]
            add_lines(folder / "metrics.jsonl", rows)
        if task is not None:
            words = {"problems": 50, "pass@1": task, "pass@1/low": task - 0.1, "pass@1/high": task + 0.1}
            add_lines(folder / "metrics.jsonl", [{"kind": "evaluation/trace_inference", "step": 4, **words}])
        if settings:
            (folder / "config.yaml").write_text(settings)
        return folder

    return write


def page(*folders: Path) -> str:
    return write_comparison(folders).read_text("utf-8")


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def section(text: str, name: str) -> str:
    return text.partition(f'<section id="{name}">')[2].partition("</section>")[0]


def test_the_page_lies_in_the_first_run_or_where_it_is_asked_to(make: Make, tmp_path: Path):
    folders = [make("a"), make("b")]
    assert write_comparison(folders) == tmp_path / "a" / "comparison.html"
    assert write_comparison(folders, tmp_path / "c.html").is_file()
    assert not (tmp_path / "a" / "report.html").exists()


def test_runs_are_lines_of_one_chart(make: Make):
    heldout = section(page(make("a", task=0.5), make("b", task=0.25)), "heldout")
    assert heldout.count("<svg") == 2
    problems, task = heldout.split("<svg")[1:]
    assert "step 0\na: 31.0%\nb: 31.0%" in problems
    assert "step 4\na: 50.0%\nb: 25.0%" in task
    assert task.count('class="band ') == 2


def test_a_task_that_one_run_lacks_is_drawn_for_the_others(make: Make):
    text = page(make("a", task=0.5), make("b", steps=10))
    assert "step 4\na: 50.0%</title>" in section(text, "heldout")
    row = section(text, "result").split("<tr>")[-1]
    assert words(row).startswith("b finished, step 10 300 31.0% 27.5% to 34.5% 44.1% 40.7% to 47.6%")
    assert words(row).endswith("– –")


def test_the_last_figures_stand_with_their_intervals_and_the_measured_mix(make: Make):
    text = section(page(make("a", share=0.25, task=0.5), make("b")), "result")
    assert "50.0% 40.0% to 60.0% 25.0%" in words(text.split("<tr>")[-2])


def test_results_of_an_earlier_step_are_said_to_be_so(make: Make):
    said = words(section(page(make("a", steps=13), make("b", steps=10)), "result"))
    assert "a finished, step 13; evaluated at step 10" in said
    assert "b finished, step 10 300" in said


def test_the_measured_mix_is_drawn(make: Make):
    training = section(page(make("a", share=0.25), make("b", share=0.5)), "training")
    assert "step 4\na: 25.0%\nb: 50.0%" in training


def test_only_settings_that_differ_are_listed(make: Make):
    folders = [
        make("a", settings="seed: 0\nsteps: 4\nalignment:\n  share: 0.4\n"),
        make("b", settings="seed: 1\nsteps: 4\nalignment: null\n"),
    ]
    said = words(section(page(*folders), "settings"))
    assert said == ("Settings that differ Setting a b seed 0 1 alignment.share 0.4 not set alignment not set null")


def test_equal_settings_are_said_to_be_so(make: Make):
    assert "All settings are equal." in section(page(make("a"), make("b")), "settings")


def test_runs_of_one_name_are_told_apart_by_their_paths(make: Make, tmp_path: Path):
    text = page(make("one/demo"), make("two/demo"))
    assert f"{tmp_path}/one/demo, {tmp_path}/two/demo" in text.partition("<h1>")[2].partition("</h1>")[0]


def test_a_run_that_just_began_can_be_compared(make: Make):
    text = page(make("a"), make("b", steps=0, sft=False, evaluated=False, is_finished=False))
    assert "b still going, or cut off, step 0" in words(section(text, "result"))


def test_a_run_is_not_compared_with_itself(make: Make, tmp_path: Path):
    folder = make("a")
    with pytest.raises(InputError, match="the same run twice"):
        write_comparison([folder, tmp_path / "." / "a"])


def test_more_runs_than_colours_are_refused(make: Make, tmp_path: Path):
    with pytest.raises(InputError, match=r"--against: 9 runs are too many for one chart; give at most 7"):
        write_comparison([tmp_path / str(number) for number in range(9)])


def test_a_folder_that_is_no_run_is_refused_and_nothing_is_written(make: Make, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"config\.yaml is missing"):
        write_comparison([make("a"), tmp_path / "empty"])
    assert not (tmp_path / "a" / "comparison.html").exists()


def test_hostile_names_and_settings_are_text(make: Make):
    evil = "<script>alert(1)<\\/script>"
    folders = [make(f"a{evil.split('<')[1]}", settings=f'x: "{evil}"\n'), make('b" onclick="x', settings='x: "y"\n')]
    (folders[0] / "config.yaml").write_text("x: '</script><script>alert(1)</script>'\n")
    text = page(*folders)
    assert text.count("<script") == 1
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert not re.search(r"<[^>]*\sonclick=", text)


def test_the_page_loads_nothing(make: Make):
    text = page(make("a", share=0.3, task=0.3), make("b"))
    assert not re.search(r"@import|url\(|https?://", text)
    assert [link for link in re.findall(r'(?:href|src)="([^"]*)"', text) if not link.startswith("#")] == []
    assert {f"#{name}" for name in re.findall(r'<section id="(\w+)"', text)} == set(re.findall(r'href="(#\w+)"', text))
