"""Each rule of decontamination finds its cases, with evidence, and no others."""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoclave.config.curation import DecontaminationConfig
from autoclave.core import CheckTests, Problem, StdinCase, StdinTests
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.decontamination import Contamination, ContaminationRule, Decontamination
from autoclave.problems.curation.identities import address, identities, title_words
from autoclave.problems.readers import raw_files, read_rows

WORDS = [f"{first}{middle}{last}" for first in "bdfgklm" for middle in ("ato", "eru", "ino", "opa") for last in "nrkx"]


def text(seed: int, number: int = 60) -> str:
    return " ".join(random.Random(seed).sample(WORDS, number))


def problem(
    statement: str, *cases: tuple[str, str], released: datetime.date | None = None, **origin: str
) -> ProblemCandidate:
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases or [(statement[:9], "1")]])
    return ProblemCandidate(
        Problem(id="p", statement=statement, tests=tests, released=released), Origin("set", "row", **origin)
    )


def hit(evaluation: ProblemCandidate, training: ProblemCandidate, **settings: Any) -> Contamination | None:
    others = [problem(text(seed), ("x", f"{seed}")) for seed in range(100, 105)]
    return Decontamination([evaluation, *others], DecontaminationConfig(**settings)).find(training)


def rule(evaluation: ProblemCandidate, training: ProblemCandidate, **settings: Any) -> str | None:
    found = hit(evaluation, training, **settings)
    return found and found.rule.value


# --- Names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://codeforces.com/contest/1349/problem/A", "codeforces/1349/a"),
        ("http://www.codeforces.com/problemset/problem/1349/A/", "codeforces/1349/a"),
        ("m1.codeforces.com/contest/1349/problem/a?locale=ru#top", "codeforces/1349/a"),
        ("https://codeforces.com//contest/1349//problem/A", "codeforces/1349/a"),
        ("https://codeforces.com/gym/1349/problem/A", "codeforces/gym1349/a"),
        ("https://codeforces.com/problemset/problem/1987/G1", "codeforces/1987/g1"),
        ("https://leetcode.com/problems/two-sum/description/", "leetcode/two-sum"),
        ("https://leetcode.cn/contest/weekly-contest-1/problems/two-sum", "leetcode/two-sum"),
        ("https://atcoder.jp/contests/abc300/tasks/abc300_a?lang=en", "atcoder/abc300_a"),
        ("http://abc300.contest.atcoder.jp/tasks/abc300_a", "atcoder/abc300_a"),
        ("https://www.codechef.com/problems/FLOW001", "codechef/flow001"),
        ("https://www.codechef.com/START01/problems/FLOW001?tab=statement", "codechef/flow001"),
        ("https://www.codewars.com/kata/5266876b8f4bf2da9b000362/train/python", "codewars/5266876b8f4bf2da9b000362"),
        ("https://www.hackerrank.com/contests/x/challenges/solve-me", "hackerrank/solve-me"),
        ("https://www.example.org/tasks/7/", "example.org/tasks/7"),
        ("https://example.org/", ""),
        ("", ""),
        ("http://[broken", ""),
    ],
)
def test_a_page_has_one_name_in_all_its_addresses(url: str, name: str):
    assert address(url) == name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("codeforces/1349/A", {"codeforces/1349/a"}),
        ("cf1349A", {"codeforces/1349/a"}),
        ("codeforces/1349_A", {"codeforces/1349/a"}),
        ("abc300_a", {"atcoder/abc300_a"}),
        ("leetcode/two-sum", {"leetcode/two-sum"}),
        ("HumanEval/12", {"humaneval/12"}),
        ("17", set()),
        ("", set()),
    ],
)
def test_a_key_names_a_problem_only_with_its_site(key: str, name: set[str]):
    assert identities(problem("x", key=key)) == name


def test_titles_lose_their_letter_and_common_ones_are_ignored():
    assert title_words("A. Short Sort", 2) == title_words("1873A - Short  SORT", 2) == "short sort"
    assert title_words("B. Sum", 2) == title_words("Two Sum", 2) == title_words("", 2) == ""


# --- Rules ---------------------------------------------------------------------------------------------------------


def test_the_same_page_is_found_whatever_the_statement():
    found = hit(problem(text(1), url="https://codeforces.com/contest/5/problem/B"), problem(text(2), key="cf5B"))
    assert found is not None
    assert (found.rule, found.matched) == (ContaminationRule.IDENTITY, "codeforces/5/b")
    assert found.evaluation is not None
    assert found.evaluation.row == "row"


def test_the_same_title_is_found_unless_many_have_it():
    assert rule(problem(text(1), title="A. Odd Castle"), problem(text(2), title="Odd castle")) == "title"
    assert rule(problem(text(1), title="A. Game"), problem(text(2), title="Game")) is None
    assert rule(problem(text(1)), problem(text(2))) is None


def test_the_same_words_are_found_in_other_mark_up():
    assert rule(problem(f"{text(1)} $a_1$"), problem(f"<p>{text(1)} a<sub>1</sub></p>")) == "exact"


def test_a_long_run_of_words_is_found_with_its_words():
    run = " ".join(text(1).split()[10:50])
    found = hit(problem(text(1)), problem(f"{text(2)} {run} {text(3)}"), rules=("ngrams",))
    assert found is not None
    assert found.longest_run >= 40
    assert found.share == pytest.approx(31 / 51, abs=0.03)  # runs of 10 in 40 words, and in 60
    assert found.matched.startswith(" ".join(run.split()[:5]))


def test_ngrams_of_several_evaluation_problems_do_not_count():
    manner = text(9, 40)
    evaluation = [problem(f"{manner} {text(seed)}", ("y", f"{seed}")) for seed in range(5)]
    against = Decontamination(evaluation, DecontaminationConfig(rules=("ngrams",)))
    assert against.find(problem(f"{manner} {text(77)}")) is None


def test_a_reordered_statement_is_found_by_its_words_unless_its_tests_differ():
    words = text(1).split()
    shuffled = " ".join(random.Random(5).sample(words, len(words)))
    assert rule(problem(text(1), ("1", "2")), problem(shuffled, ("7", "2"))) == "near"
    assert rule(problem(text(1), ("1", "2")), problem(shuffled, ("1", "3"))) is None


def test_the_same_tests_are_found_where_a_few_words_agree():
    tests = (("1 2", "3"), ("5 6", "11"), ("7 8", "15"))
    other = " ".join([*text(1).split()[:20], *text(50).split()[:30]])
    assert rule(problem(text(1), *tests), problem(other, *tests), rules=("tests",)) == "tests"
    assert rule(problem(text(1), *tests), problem("nothing of the kind here", *tests), rules=("tests",)) is None


def test_days_outside_of_the_window_are_found():
    window = {"released_from": datetime.date(2023, 5, 1), "released_before": datetime.date(2024, 8, 1)}
    days = {
        datetime.date(2023, 4, 30): "date",
        datetime.date(2023, 5, 1): None,
        datetime.date(2024, 7, 31): None,
        datetime.date(2024, 8, 1): "date",
        None: None,
    }
    assert {day: rule(problem(text(1)), problem(text(2), released=day), **window) for day in days} == days


def test_an_empty_evaluation_set_or_statement_finds_nothing():
    assert Decontamination([], DecontaminationConfig()).find(problem(text(1))) is None
    assert rule(problem("", ("p", "1")), problem("", ("q", "2"))) is None


def test_a_stream_gives_its_hits_in_order():
    evaluation = [problem(text(seed), ("x", f"{seed}")) for seed in range(3)]
    against = Decontamination(evaluation, DecontaminationConfig())
    hits = [hit for seed in (2, 8, 0) if (hit := against.find(problem(text(seed))))]
    assert [found.rule.value for found in hits] == ["exact", "exact"]


def test_an_empty_window_of_dates_is_an_error():
    day = datetime.date(2024, 1, 1)
    with pytest.raises(ValueError, match="released_from = 2024-01-01: must be before released_before, 2024-01-01"):
        DecontaminationConfig(released_from=day, released_before=day)


def test_an_evaluation_statement_within_a_longer_one_is_found():
    words = text(1, 30).split()
    longer = " ".join([*random.Random(2).sample(words, len(words)), *text(60, 40).split()])
    assert rule(problem(text(1, 30), ("1", "2")), problem(longer, ("7", "2"))) == "near"


# --- Tests without words -------------------------------------------------------------------------------------------


def checked(statement: str, *lines: str, name: str = "candidate", note: str = "") -> ProblemCandidate:
    source = f"def check({name}):\n" + "".join(f"    {line}{note}\n" for line in lines).replace("candidate", name)
    return ProblemCandidate(
        Problem(statement, CheckTests("check", "f", source, "check(f)"), id="p"), Origin("set", "row")
    )


PALINDROMES = [f"assert candidate({word!r}) == {word == word[::-1]}" for word in ("", "aba", "aaaaa", "zbcd", "xywyx")]


def test_the_same_test_code_is_found_under_another_sentence():
    training = checked("Shipments that read alike.", *PALINDROMES, name="ship", note="  # from the warehouse")
    assert rule(checked(text(1), *PALINDROMES), training) == "tests"
    assert rule(checked(text(1), *PALINDROMES), checked("Shipments.", *reversed(PALINDROMES[:3]))) is None


def test_enough_equal_cases_are_found_whatever_the_words():
    cases = [(f"{n} {n + 1}", f"{n * n + 7}") for n in range(5)]
    other = "nothing of the kind here"
    assert rule(problem(text(1), *cases), problem(other, *cases, ("9", "9"))) == "tests"
    assert rule(problem(text(1), *cases), problem(other, *cases[:4])) is None
    assert rule(problem(text(1), *((given, "1") for given, _ in cases)), problem(other, *cases[:4])) is None


def test_one_trivial_assertion_is_not_evidence():
    evaluation = checked(text(1), "assert candidate(1) == 1")
    assert rule(evaluation, checked("Another one.", "assert candidate(1) == 1")) is None
    similar = " ".join([*text(1).split()[:20], *text(50).split()[:30]])
    assert rule(evaluation, checked(similar, "assert candidate(1) == 1"), rules=("tests",)) is None


_WORDS = {
    "Check": "Decide",
    "return": "give back",
    "Given": "For",
    "given": "supplied",
    "string": "text",
    "list": "row",
}


def test_reworded_rows_of_humaneval_are_found(data: Path):
    file = raw_files(data / "humaneval.jsonl.gz")
    rows = [row for row in read_rows("humaneval", "humaneval", file.rows()) if isinstance(row, ProblemCandidate)]
    against = Decontamination(rows, DecontaminationConfig())
    ids = {f"HumanEval/{number}" for number in (8, 32, 38, 48, 50, 61, 72, 100, 127, 150)}
    few = [row for row in rows if row.problem.id in ids]
    assert len(few) == len(ids)
    for row in few:
        statement = row.problem.statement
        for old, new in _WORDS.items():
            statement = statement.replace(old, new)
        for each in (statement, "Write the function that our warehouse needs for its shipments."):
            hit = against.find(ProblemCandidate(replace(row.problem, id="t", statement=each), Origin("train", "t")))
            assert hit is not None, row.problem.id
            assert hit.evaluation is not None
            assert hit.evaluation.id == row.problem.id
