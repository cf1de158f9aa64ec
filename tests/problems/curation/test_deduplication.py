"""Rules of deduplication, the choice of the kept problem, and independence of the order."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoclave.config.curation import DeduplicationConfig
from autoclave.core import CallCase, CallTests, CheckTests, InputError, Problem, StdinCase, StdinTests
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.deduplication import Duplicates, find_duplicates
from autoclave.problems.curation.features import CASES_LIMIT, FeatureStore, features_of
from autoclave.problems.curation.similarity import TestRelation, WordFrequencies, compare_tests, measure_similarity

WORDS = [f"{first}{middle}{last}" for first in "bdfgklm" for middle in ("ato", "eru", "ino", "opa") for last in "nrkx"]
STORY = " ".join(random.Random(0).sample(WORDS, 60))


def stdin(*cases: tuple[str, str]) -> StdinTests:
    return StdinTests("stdin", [StdinCase(given, expected) for given, expected in cases])


def some(number: int, statement: str, tests: Any = None, set: str = "a", solutions: int = 0) -> ProblemCandidate:
    tests = tests or stdin((f"{number}", f"{number}"))
    problem = Problem(id=f"p{number}", statement=statement, tests=tests, solutions=["print(1)"] * solutions)
    return ProblemCandidate(problem, Origin(set, f"{set}.jsonl:{number}"))


def found(folder: Path, *candidates: ProblemCandidate, sources: tuple[str, ...] = (), **settings: Any) -> Duplicates:
    return find_duplicates(candidates, DeduplicationConfig(**settings), sources, folder)


def rows(duplicates: Duplicates) -> list[tuple[str, str, str]]:
    return [(each.dropped.id, each.kept.id, each.reason.value) for each in duplicates.dropped]


def test_the_same_words_in_other_mark_up_are_exact(tmp_path: Path):
    duplicates = found(tmp_path, some(1, f"{STORY} $n \\le 5$"), some(2, f"<p>{STORY.upper()}</p> n &lt;= 5"))
    assert rows(duplicates) == [("p2", "p1", "exact")]
    assert duplicates.num_statements == 2


def test_the_preferred_set_then_more_tests_then_more_solutions_then_the_row_is_kept(tmp_path: Path):
    two = stdin(("1", "1"), ("2", "2"))
    assert rows(found(tmp_path, some(1, STORY, set="a"), some(2, STORY, set="b"), sources=("b",))) == [
        ("p1", "p2", "exact")
    ]
    assert rows(found(tmp_path, some(1, STORY), some(2, STORY, two))) == [("p1", "p2", "exact")]
    assert rows(found(tmp_path, some(1, STORY), some(2, STORY, solutions=1))) == [("p1", "p2", "exact")]
    assert rows(found(tmp_path, some(2, STORY), some(1, STORY))) == [("p2", "p1", "exact")]


def test_the_order_of_the_input_changes_nothing(tmp_path: Path):
    chance = random.Random(4)
    candidates = [
        some(number, " ".join(chance.sample(STORY.split(), 54)) if number % 2 else STORY, set="ab"[number % 3 == 0])
        for number in range(30)
    ]
    first = found(tmp_path, *candidates)
    assert len(first.dropped) == 15
    for _ in range(3):
        chance.shuffle(candidates)
        assert found(tmp_path, *candidates) == first


def test_the_representative_of_a_dropped_problem_is_kept(tmp_path: Path):
    words = STORY.split()
    chain = [some(number, " ".join(words[number * 3 : number * 3 + 45])) for number in range(6)]
    duplicates = found(tmp_path, *chain, *(some(10 + n, each.problem.statement) for n, each in enumerate(chain)))
    dropped = {each.dropped for each in duplicates.dropped}
    assert dropped
    assert not dropped & {each.kept for each in duplicates.dropped}


def test_equal_inputs_with_different_outputs_keep_similar_statements_apart(tmp_path: Path):
    other = STORY.replace(STORY.split()[0], "zzzzz")
    left, right = stdin(("3", "4"), ("5", "6")), stdin(("3", "9"), ("5", "10"))
    assert rows(found(tmp_path, some(1, STORY, left), some(2, other, left))) == [("p2", "p1", "near")]
    assert rows(found(tmp_path, some(1, STORY, left), some(2, other, right))) == []


def test_versions_of_one_problem_are_kept_apart(tmp_path: Path):
    easy = f"This is the easy version of the problem. {STORY} up to 100"
    hard = f"This is the hard version of the problem. {STORY} up to 100000"
    assert rows(found(tmp_path, some(1, easy), some(2, hard))) == []
    assert rows(found(tmp_path, some(1, easy), some(2, f"<b>{easy}</b> now"))) == [("p2", "p1", "near")]


def test_equal_tests_are_one_problem_whatever_the_story(tmp_path: Path):
    tests = stdin(("1 2", "3"), ("4 5", "9"), ("7 7", "14"))
    spaced = stdin(("1 2\n", "3\n"), ("4  5", "9"), ("7 7", "14"), ("1 1", "2"))
    one, other = some(1, STORY, tests), some(2, "How many apples do both of them have after lunch?", spaced)
    assert rows(found(tmp_path, one, other)) == [("p1", "p2", "behaviour")]
    assert rows(found(tmp_path, one, other, behaviour=False)) == []


def test_few_undistinctive_tests_are_not_evidence(tmp_path: Path):
    tests = stdin(("1", "YES"), ("2", "NO"))
    assert rows(found(tmp_path, some(1, STORY, tests), some(2, "Is the number of the house odd?", tests))) == []


def test_short_statements_that_differ_in_a_word_are_kept(tmp_path: Path):
    last, first = "Find the last position of an element in a list.", "Find the first position of an element in a list."
    assert rows(found(tmp_path, some(1, last), some(2, first))) == []
    assert rows(found(tmp_path, some(1, last), some(2, last))) == [("p2", "p1", "exact")]


def test_empty_statements_are_not_the_same(tmp_path: Path):
    assert rows(found(tmp_path, *(some(number, "") for number in range(5)))) == []
    assert rows(found(tmp_path)) == []


def test_reasons_can_be_switched_off(tmp_path: Path):
    same = (some(1, STORY), some(2, STORY))
    assert rows(found(tmp_path, *same, exact=False)) == [("p2", "p1", "near")]
    assert rows(found(tmp_path, *same, exact=False, near=False)) == []


def test_many_copies_of_one_problem_leave_one(tmp_path: Path):
    words = STORY.split()
    copies = [
        some(number, " ".join([*words[:-1], f"word{chr(97 + number // 26)}{chr(97 + number % 26)}"]))
        for number in range(300)
    ]
    tests = CheckTests("check", "f", "def check(candidate): pass", "check(candidate)")
    copies = [replace(each, problem=replace(each.problem, tests=tests)) for each in copies]
    duplicates = found(tmp_path, *copies, bucket_limit=8)
    assert len(duplicates.dropped) == 299
    assert duplicates.num_large_buckets > 0


def test_a_row_that_occurs_twice_is_an_error(tmp_path: Path):
    with pytest.raises(InputError, match=r'a: row "a.jsonl:1" occurs twice'):
        found(tmp_path, some(1, "x"), some(1, "y"))


def test_the_store_leaves_no_file(tmp_path: Path):
    found(tmp_path, some(1, STORY), some(2, STORY))
    assert list(tmp_path.iterdir()) == []


# --- Tests as evidence ---------------------------------------------------------------------------------------------


def check(*lines: str) -> CheckTests:
    source = "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)
    return CheckTests("check", "f", source, "check(candidate)")


def relation(left: Any, right: Any) -> TestRelation:
    return compare_tests(features_of(some(1, "x", left)), features_of(some(2, "y", right))).relation


def test_calls_and_assertions_with_the_same_arguments_are_the_same_tests():
    call = CallTests("call", "Solution.g", [CallCase([[1, 2], "a b"], True), CallCase([[], "c"], None)])
    asserted = check("assert candidate(nums = [1, 2], s='a b') == True", 'assert candidate([], "c") == None  # empty')
    assert relation(call, asserted) is TestRelation.SAME
    assert relation(call, check("assert candidate([1, 2], 'a b') == False")) is TestRelation.CONTRADICTING
    assert relation(call, check("assert candidate([1, 2], 'd') == False")) is TestRelation.UNKNOWN


def test_tests_of_one_shape_without_a_common_input_are_disjoint():
    assert relation(stdin(("1", "2")), stdin(("3", "4"))) is TestRelation.DISJOINT
    assert relation(stdin(("1", "2")), stdin(("a b", "4"))) is TestRelation.UNKNOWN


def test_samples_are_found_among_more_tests_than_are_compared():
    many = [(f"{number}", f"{number * 2}") for number in range(20 * CASES_LIMIT)]
    assert relation(stdin(*many), stdin(*many[::2])) is TestRelation.SAME
    assert relation(stdin(*many), stdin(*((given, "0") for given, _ in many))) is TestRelation.CONTRADICTING


def test_similarity_is_symmetric_and_1_for_equal_problems():
    left, right = features_of(some(1, STORY)), features_of(some(2, STORY[:200] + " and more of it"))
    frequencies = WordFrequencies()
    frequencies.add(left.topic)
    assert measure_similarity(left, right, frequencies) == measure_similarity(right, left, frequencies)
    assert measure_similarity(left, left, frequencies).similarity == pytest.approx(1)
    assert 0 < measure_similarity(left, right, frequencies).similarity < 1


def test_features_survive_a_round_trip_to_disk(tmp_path: Path):
    coded = CheckTests("check", "f", LOOP, "check(f)")
    problems = [
        some(1, STORY, stdin(("1", "2"), ("3", "4"))),
        some(2, "", coded),
        some(3, "the easy version of this problem"),
    ]
    with FeatureStore(tmp_path) as store:
        for each in problems:
            store.add(features_of(each))
        for each, kept in zip(problems, store, strict=True):
            wanted = features_of(each)
            assert (kept.text, kept.code, kept.shape, kept.num_tests, kept.version) == (
                wanted.text,
                wanted.code,
                wanted.shape,
                wanted.num_tests,
                wanted.version,
            )
            for name in ("words", "topic", "inputs", "outputs"):
                assert getattr(kept, name).tolist() == getattr(wanted, name).tolist()


# --- Finer points --------------------------------------------------------------------------------------------------


def test_tests_count_before_solutions(tmp_path: Path):
    few, many = some(1, STORY, solutions=3), some(2, STORY, stdin(("1", "1"), ("2", "2")))
    assert rows(found(tmp_path, few, many)) == [("p1", "p2", "exact")]


def test_a_copy_of_a_dropped_problem_is_dropped_for_the_kept_one(tmp_path: Path):
    reworded = STORY.replace(STORY.split()[0], "zzzzz")
    more = stdin(("1", "1"), ("8", "8"), ("9", "9"))
    duplicates = found(tmp_path, some(1, STORY, more), some(2, reworded, stdin(("1", "1"))), some(3, reworded))
    assert {(each.dropped.id, each.matched.id, each.kept.id) for each in duplicates.dropped} == {
        ("p2", "p1", "p1"),
        ("p3", "p2", "p1"),
    }


def test_versions_with_equal_tests_are_both_kept(tmp_path: Path):
    tests = stdin(("1 2", "3"), ("4 5", "9"))
    easy, hard = (f"This is the {version} version of the problem. {STORY}" for version in ("easy", "hard"))
    assert rows(found(tmp_path, some(1, easy, tests), some(2, hard, tests))) == []


def test_two_problems_of_one_site_are_duplicates_only_with_equal_words(tmp_path: Path):
    other = " ".join(["zzzzz", "yyyyy", "xxxxx", *STORY.split()[3:]])
    tests = check("assert candidate(1) == 1")
    unnamed = some(1, STORY, tests), some(2, other, tests=stdin(("a", "b")))
    named = [replace(each, origin=replace(each.origin, key=f"leetcode/{each.problem.id}")) for each in unnamed]
    assert rows(found(tmp_path, *unnamed)) == [("p2", "p1", "near")]
    assert rows(found(tmp_path, *named)) == []


# --- Tests against a merge, and for one ----------------------------------------------------------------------------

SQUARES = stdin(("3", "9"), ("5", "25"), ("6", "36"))
DOUBLES = stdin(("3", "6"), ("5", "10"), ("6", "12"))
MANY = stdin(*((f"{number}", f"{number}") for number in range(20, 30)))
SOME = stdin(*((f"{number}", f"{number}") for number in range(40, 45)))


def calls(*outputs: int) -> CallTests:
    return CallTests("call", "f", [CallCase([number], output) for number, output in enumerate(outputs)])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (SQUARES, DOUBLES),
        (calls(7, 8, 9), calls(1, 2, 3)),
        (check("assert candidate(1, 'a') == 5"), check("assert candidate(1, 'a') == 6")),
        (check("assert candidate(1) == 5", "assert candidate(2) == 6"), check("assert 6 == candidate(1)")),
        (check("assert abs(candidate(1) - 2.5) < 1e-6"), check("assert abs(candidate(1) - 7.5) < 1e-6")),
        (check("inputs = [[1], [2]]", "results = [3, 4]"), check("inputs = [[1], [2]]", "results = [5, 6]")),
        (calls(7, 8, 9), check("assert candidate(0) == 1")),
    ],
)
def test_one_general_statement_with_contradicting_tests_is_two_problems(tmp_path: Path, left: Any, right: Any):
    assert rows(found(tmp_path, some(1, STORY, left), some(2, STORY, right))) == []
    assert rows(found(tmp_path, some(1, STORY, left), some(2, STORY, left))) == [("p2", "p1", "exact")]


def test_each_problem_of_one_general_statement_has_its_own_copies(tmp_path: Path):
    tests = [SQUARES, DOUBLES, SQUARES, DOUBLES]
    duplicates = found(tmp_path, *(some(number, STORY, each) for number, each in enumerate(tests)), near=False)
    assert rows(duplicates) == [("p2", "p0", "exact"), ("p3", "p1", "exact")]


def test_a_group_of_duplicates_holds_no_contradicting_tests(tmp_path: Path):
    duplicates = found(tmp_path, some(1, STORY, MANY), some(2, STORY, SQUARES), some(3, STORY, DOUBLES))
    assert rows(duplicates) == [("p2", "p1", "exact")]


def test_a_chain_of_near_and_exact_copies_keeps_one_problem(tmp_path: Path):
    reworded = STORY.replace(STORY.split()[0], "zzzzz")
    squares = stdin(*((f"{number}", f"{number**2}") for number in range(10)))
    chain = [some(1, STORY, squares), some(2, reworded, SOME), some(3, reworded, DOUBLES)]
    assert rows(found(tmp_path, *chain[:2])) == [("p2", "p1", "near")]
    assert rows(found(tmp_path, *chain)) == [("p3", "p2", "exact")]


def test_inputs_with_two_outputs_in_one_problem_do_not_contradict():
    both = stdin(("3", "9"), ("3", "6"), ("4", "8"))
    assert relation(both, DOUBLES) is TestRelation.DISJOINT
    assert relation(both, stdin(("3", "9"), ("4", "8"))) is TestRelation.SAME


LOOP = """
def check(candidate):
    # words of any letters
    import random
    for _ in range(100):
        word = "".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(10, 20)))
        encoded = "".join(reversed(word)).upper() + str(len(word))
        assert candidate(encoded) == word, "wrong"
"""


def test_the_same_test_code_under_other_names_is_one_problem_whatever_the_story(tmp_path: Path):
    renamed = LOOP.replace("candidate", "decode").replace("# words of any letters", "").replace(', "wrong"', "")
    one = CheckTests("check", "f", LOOP, "check(f)")
    other = CheckTests("check", "decode", f"METADATA = {{}}\n{renamed}", "check(decode)")
    different = CheckTests("check", "f", LOOP.replace(".upper()", ""), "check(f)")
    apples = "How many apples do both of them have after lunch?"
    assert rows(found(tmp_path, some(1, STORY, one), some(2, apples, other))) == [("p2", "p1", "behaviour")]
    assert rows(found(tmp_path, some(1, STORY, one), some(2, apples, different))) == []


def test_short_test_code_and_variables_are_not_evidence(tmp_path: Path):
    tests = check("for given, right in cases():", "    assert candidate(given) == right")
    assert rows(found(tmp_path, some(1, STORY, tests), some(2, "How many apples are there?", tests))) == []
    assert features_of(some(1, STORY, tests)).num_tests == 0


def test_deeply_nested_test_code_gives_no_cases():
    deep = check(f"assert candidate(1) == {'+'.join(['1'] * 20000)}")
    assert features_of(some(1, STORY, deep)).code == 0
