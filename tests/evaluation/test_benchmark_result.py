"""Figures of graded responses, counted by hand, and the folder that keeps them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from autoclave.core import DataError, InputError
from autoclave.evaluation.benchmark_result import BenchmarkResult, GradedResponse, load_result
from autoclave.evaluation.comparison import compare_results, sign_test
from autoclave.evaluation.intervals import bootstrap_interval, share_interval, wilson_interval
from autoclave.evaluation.questions import QuestionInfo
from autoclave.report.evaluation import comparison_page, result_page


def graded(id: str, *scores: float | None, **more) -> list[GradedResponse]:
    names = {1.0: "accepted", None: ""}
    return [
        GradedResponse(
            id, place, names.get(score, "wrong_answer"), score, f"{id}/{place}", f"code {id}/{place}", **more
        )
        for place, score in enumerate(scores)
    ]


A = QuestionInfo("a", "easy", "2024-08-03", "atcoder", ("x", "y"))
B = QuestionInfo("b", "hard", "2024-08-30", "leetcode")
C = QuestionInfo("c", "hard", "", "leetcode", ("x",))
RESULT = BenchmarkResult(
    "bench",
    "model",
    (A, B, C),
    tuple(graded("a", 1.0, 0.0, 0.0, 1.0) + graded("b", 0.0, 0.0, None, 0.0) + graded("c", 1.0, 1.0, 1.0, 1.0)),
    k=(1, 2, 4),
    tables=("difficulty", "month", "source", "tag"),
)


def test_pass_at_k_is_the_mean_over_problems_with_enough_verdicts():
    figures = RESULT.to_metrics()
    assert figures["pass@1"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert figures["pass@2"] == pytest.approx(((1 - 1 / 6) + 0 + 1) / 3)  # 1 - C(2, 2) / C(4, 2)
    assert figures["pass@4"] == pytest.approx((1 + 1) / 2)  # b has three verdicts


def test_the_interval_is_over_problems():
    around = share_interval([0.5, 0.0, 1.0])
    assert RESULT.to_metrics()["interval"] == [around.lower, around.upper]
    assert "wilson_interval" not in RESULT.to_metrics()


def test_with_one_response_each_there_is_an_interval_by_wilson():
    one = replace(RESULT, samples=tuple(graded("a", 1.0) + graded("b", 0.0) + graded("c", 1.0)), k=(1,))
    around = wilson_interval(2, 3)
    assert one.to_metrics()["wilson_interval"] == [around.lower, around.upper]


def test_responses_without_a_verdict_are_counted_and_not_wrong():
    figures = RESULT.to_metrics()
    assert figures["no_verdict_share"] == 1 / 12
    assert RESULT.rates["b"] == 0.0
    assert figures["statuses"] == {"accepted": 6, "no_verdict": 1, "wrong_answer": 5}


def test_a_problem_that_was_not_answered_is_counted_and_has_no_rate():
    part = replace(RESULT, samples=tuple(graded("a", 1.0)), k=(1,))
    assert part.to_metrics()["unanswered"] == 2
    assert part.to_metrics()["pass@1"] == 1.0


def test_tables_are_by_difficulty_month_source_and_tag():
    tables = RESULT.to_metrics()["tables"]
    assert tables["difficulty"] == {"easy": {"problems": 1, "pass@1": 0.5}, "hard": {"problems": 2, "pass@1": 0.5}}
    assert set(tables["month"]) == {"2024-08", "unknown"}
    assert tables["source"]["leetcode"]["pass@1"] == 0.5
    assert tables["tag"] == {
        "unknown": {"problems": 1, "pass@1": 0.0},
        "x": {"problems": 2, "pass@1": 0.75},
        "y": {"problems": 1, "pass@1": 0.5},
    }


def test_truncation_and_length_are_over_responses_that_have_them():
    samples = (
        graded("a", 1.0, finish="length", tokens=10) + graded("b", 1.0, finish="stop", tokens=4) + graded("c", 0.0)
    )
    figures = replace(RESULT, samples=tuple(samples), k=(1,)).to_metrics()
    assert figures["truncated_share"] == 0.5
    assert figures["response_length"] == {"mean": 7.0, "median": 7.0, "most": 10}


def test_a_share_of_tests_is_a_score_and_only_all_of_them_is_solved():
    samples = graded("a", 0.5) + graded("b", 1.0) + graded("c", 0.0)
    figures = replace(RESULT, samples=tuple(samples), k=(1,), score="share_of_tests").to_metrics()
    assert figures["mean_score"] == 0.5
    assert figures["pass@1"] == pytest.approx(1 / 3)


def test_a_result_is_kept_and_read_back(tmp_path):
    result = replace(RESULT, rating={"rating": 1500.0}, account={"requests": 3}, settings={"samples": 4})
    result.save(tmp_path / "out")
    assert load_result(tmp_path / "out") == result
    kept = json.loads((tmp_path / "out/result.json").read_text())
    assert kept["format"] == "autoclave-evaluation/1"
    assert kept["metrics"]["pass@1"] == pytest.approx(0.5)


def test_a_folder_without_a_result_is_named(tmp_path):
    with pytest.raises(InputError, match=r"has no result\.json"):
        load_result(tmp_path)


def test_a_damaged_line_is_named(tmp_path):
    RESULT.save(tmp_path)
    (tmp_path / "samples.jsonl").write_text('{"problem_id": 3}\n')
    with pytest.raises(DataError, match=r"samples.jsonl:1"):
        load_result(tmp_path)


def test_a_damaged_result_is_named(tmp_path):
    RESULT.save(tmp_path)
    kept = json.loads((tmp_path / "result.json").read_text())
    for changed in ({**kept, "k": "one"}, {name: value for name, value in kept.items() if name != "model"}, {"a": 1}):
        (tmp_path / "result.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match=r"result\.json"):
            load_result(tmp_path)


def test_comparison_is_paired():
    other = replace(
        RESULT,
        model="other",
        problems=(A, B, C, QuestionInfo("d")),
        samples=tuple(graded("a", 1.0, 1.0) + graded("b", 0.0, 1.0) + graded("c", 0.0, 1.0) + graded("d", 1.0)),
    )
    found = compare_results(RESULT, other)
    assert (found.problems, found.left_out) == (3, 1)
    assert found.first == pytest.approx(0.5)
    assert found.second == pytest.approx(2 / 3)
    assert [pair.id for pair in found.won] == ["a", "b"]
    assert [pair.id for pair in found.lost] == ["c"]
    assert found.p_value == 1.0
    around = bootstrap_interval([0.5, 0.5, -0.5])
    assert found.interval == around


def test_a_pair_shows_a_right_and_a_wrong_response():
    other = replace(RESULT, samples=tuple(graded("a", 0.0, 1.0, 1.0, 1.0) + graded("b", 0.0) + graded("c", 1.0, 0.0)))
    found = compare_results(RESULT, other)
    (won,), (lost,) = found.won, found.lost
    assert (won.id, won.first_sample.is_right, won.second_sample.is_right) == ("a", False, True)
    assert (lost.id, lost.first_sample.is_right, lost.second_sample.is_right) == ("c", True, False)


@pytest.mark.parametrize(("won", "lost", "p"), [(0, 0, 1.0), (5, 0, 2 / 32), (1, 9, 2 * 11 / 1024), (4, 4, 1.0)])
def test_the_sign_test_is_exact(won, lost, p):
    assert sign_test(won, lost) == pytest.approx(p)
    assert sign_test(lost, won) == pytest.approx(p)


def test_results_with_nothing_in_common_are_not_compared():
    other = replace(RESULT, problems=(QuestionInfo("z"),), samples=tuple(graded("z", 1.0)))
    with pytest.raises(InputError, match="no problem in common"):
        compare_results(RESULT, other)


def test_scores_of_different_kinds_are_not_compared():
    with pytest.raises(InputError, match="share_of_tests"):
        compare_results(RESULT, replace(RESULT, score="share_of_tests"))


def test_a_comparison_notes_different_settings():
    first = replace(RESULT, settings={"prompt": "code", "temperature": 0.6, "judge": 1})
    assert compare_results(first, replace(first, settings={**first.settings, "judge": 2})).notes == ()
    other = replace(first, benchmark="other", settings={**first.settings, "temperature": 1.0})
    found = compare_results(first, other)
    assert found.notes == ("the benchmarks have different names: bench and other", "temperature differs: 0.6 and 1.0")
    assert "temperature differs" in comparison_page(first, other, found)
    assert len(compare_results(first, replace(first, recorded=True)).notes) == 1


def test_samples_of_another_result_are_named(tmp_path):
    RESULT.save(tmp_path / "one")
    replace(RESULT, problems=(QuestionInfo("z"),), samples=tuple(graded("z", 1.0))).save(tmp_path / "other")
    (tmp_path / "other/samples.jsonl").replace(tmp_path / "one/samples.jsonl")
    with pytest.raises(DataError, match=r"samples\.jsonl:1: problem_id = 'z'"):
        load_result(tmp_path / "one")


def test_replacing_a_result_removes_it_before_its_samples(tmp_path, monkeypatch):
    RESULT.save(tmp_path)
    monkeypatch.setattr("autoclave.evaluation.benchmark_result.write_atomically", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        replace(RESULT, samples=()).save(tmp_path)
    with pytest.raises(InputError, match=r"has no result\.json"):
        load_result(tmp_path)


def test_pages_escape_output_of_models():
    evil = "</pre><script>alert(1)</script>\u202e"
    samples = tuple(replace(each, response=evil, submission=None) for each in RESULT.samples)
    result = replace(RESULT, samples=samples, model=evil)
    for page in (result_page(result), comparison_page(result, RESULT, compare_results(result, RESULT))):
        assert "<script>alert" not in page
        assert "\u202e" not in page


def test_missing_figures_are_nan():
    empty = replace(RESULT, samples=())
    assert math.isnan(empty.to_metrics()["pass@1"])
    assert "not measured" in result_page(empty)
