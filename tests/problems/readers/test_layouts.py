"""A row of each layout, and the problem made of it."""

from __future__ import annotations

import datetime
import json

import pytest

from autoclave.core import AnswerTests, CallCase, CallTests, CheckTests, InputError, StdinCase, StdinTests
from autoclave.problems.candidate import ProblemCandidate, SkippedRow
from autoclave.problems.readers import LAYOUTS, read_rows
from autoclave.problems.readers.row import RawRow

ADD = "print(sum(map(int, input().split())))"
STDIN = StdinTests("stdin", [StdinCase("1 2\n", "3\n"), StdinCase("4 5\n", "9\n")])
COLUMNS = {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}
RECORDS = [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]
TACO = {
    "question": "Add.\r\n",
    "solutions": json.dumps([ADD]),
    "starter_code": "",
    "input_output": json.dumps(COLUMNS),
    "difficulty": "EASY",
    "name": "Adding",
    "source": "codeforces",
    "tags": "['Math', 'Sums']",
    "skill_types": "[]",
    "url": "https://codeforces.com/problemset/problem/1/A",
    "time_limit": "2.0 seconds",
    "memory_limit": "64.0 megabytes",
    "date": "2019-03-01",
}


def test_taco(read):
    found = read("taco", **TACO)
    problem = found.problem
    assert problem.statement == "Add."
    assert problem.tests == STDIN
    assert problem.solutions == [ADD]
    assert (problem.source, problem.difficulty, problem.tags) == ("codeforces", "EASY", ["Math", "Sums"])
    assert (problem.time_limit_s, problem.memory_limit_mb) == (2.0, 256)
    assert problem.released == datetime.date(2019, 3, 1)
    assert problem.id == "taco/made-1"
    assert (found.origin.row, found.origin.url, found.origin.title) == ("made.jsonl:1", TACO["url"], "Adding")


ASKED = "Write Python code to solve the problem. Present the code in \n```python\nYour code\n```\nat the end."


@pytest.mark.parametrize("solutions", [[ADD], json.dumps([ADD]), repr([ADD])])
def test_solutions_are_a_list_or_a_list_in_text(read, solutions):
    assert read("taco_verified", **TACO | {"solutions": solutions}).problem.solutions == [ADD]


@pytest.mark.parametrize("solutions", [None, "", "[]", []])
def test_a_problem_may_have_no_solutions(read, solutions):
    assert read("taco", **TACO | {"solutions": solutions}).problem.solutions == []


def test_apps_as_a_folder_and_as_a_table(read):
    files = {
        "question.txt": "Add.",
        "input_output.json": json.dumps(COLUMNS),
        "solutions.json": json.dumps([ADD]),
        "metadata.json": '{"difficulty": "interview", "url": "https://www.codewars.com/kata/1"}',
    }
    folder = read("apps", problem="0042", files=files).problem
    table = read(
        "apps",
        problem_id=42,
        question="Add.",
        input_output=json.dumps(COLUMNS),
        solutions=json.dumps([ADD]),
        difficulty="interview",
        url="https://www.codewars.com/kata/1",
        starter_code="",
    ).problem
    assert folder == table
    assert (folder.id, folder.source, folder.difficulty) == ("apps/0042", "codewars", "interview")


@pytest.mark.parametrize("value", ["", None])
def test_a_problem_without_tests_is_named(read, value):
    assert read("apps", question="Add.", input_output=value).reason == "no_tests"


def test_synthetic1(read):
    info = {"language": "python", "test_cases": [case | {"type": "stdin_stdout"} for case in RECORDS]}
    prompt = "Solve the following coding problem using the programming language python:\n\nAdd."
    row = {
        "source": "apps",
        "task_type": "verifiable_code",
        "prompt": prompt,
        "gold_standard_solution": f"```python\n{ADD}\n```",
        "verification_info": repr(info),  # older exports
        "metadata": '{"difficulty": "interview", "problem_url": "https://atcoder.jp/contests/abc1/tasks/abc1_a"}',
        "problem_id": "vcp_7",
    }
    problem = read("synthetic1", **row).problem
    assert (problem.id, problem.statement, problem.tests, problem.solutions) == ("vcp_7", "Add.", STDIN, [ADD])
    assert (problem.source, problem.difficulty) == ("atcoder", "interview")
    assert read("synthetic1", **row | {"gold_standard_solution": "```cpp\nint main() {}\n```"}).problem.solutions == []
    assert read("synthetic1", **row | {"gold_standard_solution": None}).problem.solutions == []
    assert read("synthetic1", **row | {"task_type": "llm_judgeable"}).reason == "not_code"


def test_verifiable_coding_problems_python(read):
    row = {
        "problem_statement": "Add.",
        "verification_info": {
            "language": "python",
            "test_cases": [{"fn_name": None, "type": "stdin_stdout"} | c for c in RECORDS],
        },
        "metadata": {"difficulty": "easy"},
    }
    assert read("verifiable_coding_problems", **row).problem.tests == STDIN


def test_eurus2(read):
    row = {
        "data_source": "codecontests",
        "prompt": [
            {"role": "system", "content": "Think."},
            {
                "role": "user",
                "content": f"Add.\n\n{ASKED}",
            },
        ],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(COLUMNS)},
        "extra_info": {"split": "train", "index": 7},
    }
    problem = read("eurus2", **row).problem
    assert (problem.statement, problem.tests, problem.source) == ("Add.", STDIN, "codecontests")
    assert problem.id == "eurus2/train-7"
    assert read("eurus2", **row | {"ability": "math"}).reason == "not_code"


@pytest.mark.parametrize(
    "tests",
    [
        COLUMNS,
        RECORDS,
        [case | {"type": "stdin_stdout", "fn_name": None} for case in RECORDS],
        [case | {"testtype": "stdin"} for case in RECORDS],
    ],
    ids=["taco", "codeforces", "primeintellect", "lcbv5"],
)
@pytest.mark.parametrize("written", [json.dumps, lambda tests: tests], ids=["text", "value"])
def test_all_configs_of_deepcoder(read, tests, written):
    problem = read("deepcoder", problem="Add.", solutions=[ADD], tests=written(tests), metadata="{}").problem
    assert (problem.tests, problem.solutions) == (STDIN, [ADD])


def test_rllm_with_a_check(read):
    check = "def check(candidate):\n    assert candidate(1, 2) == 3\n\ncheck(Solution().add)"
    statement = (
        "Please solve the programming task below using a self-contained code snippet in a markdown code block.\n\n"
        "Add.\nPlease complete the following python code precisely:\n"
        "```python\nclass Solution:\n    def add(self, a, b):\n```"
    )
    problem = read("rllm", problem=statement, solutions="class Solution: ...", tests={"functional": check}).problem
    assert problem.tests == CheckTests("check", "Solution.add", check, "")
    assert (problem.statement, problem.starter_code) == ("Add.", "class Solution:\n    def add(self, a, b):")
    assert problem.solutions == ["class Solution: ..."]


LCB = {
    "question_title": "A. Add",
    "question_content": "Add.",
    "platform": "codeforces",
    "question_id": "1_A",
    "contest_date": "2023-08-21T00:00:00",
    "difficulty": "easy",
    "starter_code": "",
    "public_test_cases": json.dumps([RECORDS[0] | {"testtype": "stdin"}]),
    "private_test_cases": json.dumps([RECORDS[1] | {"testtype": "stdin"}]),
    "metadata": "{}",
}


def test_livecodebench(read):
    found = read("livecodebench", **LCB)
    assert found.problem.tests == STDIN
    assert found.problem.released == datetime.date(2023, 8, 21)
    assert (found.problem.id, found.origin.key, found.origin.title) == ("livecodebench/1_A", "1_A", "A. Add")
    assert read("livecodebench", **LCB | {"private_test_cases": "nonsense!"}).reason == "damaged_tests"


def test_livecodebench_calls(read):
    case = {"input": '[1, 2]\n"a"', "output": "[3]", "testtype": "functional"}
    row = LCB | {
        "platform": "leetcode",
        "starter_code": "class Solution:\n    def f(self, xs, s) -> List[int]:\n",
        "public_test_cases": json.dumps([case]),
        "private_test_cases": "[]",
        "metadata": '{"func_name": "f"}',
    }
    assert read("livecodebench", **row).problem.tests == CallTests("call", "Solution.f", [CallCase([[1, 2], "a"], [3])])


def test_livecodebench_execution_and_test_output(read):
    row = {"question_id": "2", "id": "sample_2", "code": "def f(x):\n    return x", "input": "f(x = 3)", "output": "3"}
    execution = read("livecodebench_execution", **row).problem
    assert execution.tests == AnswerTests("answer", "3", "value")
    assert "f(x = 3)" in execution.statement
    case = {"input": "[1]\n2", "output": "3", "testtype": "functional"}
    row = LCB | {"function_name": "f", "test_id": 1, "test": json.dumps([case])}
    output = read("livecodebench_test_output", **row).problem
    assert output.tests == AnswerTests("answer", "3", "value")
    assert "f([1], 2)" in output.statement


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("f([1, 2], 'a')", [[1, 2], "a"]),
        ("f(s = 'a', xs = [1])", [[1], "a"]),
        ("f([1], k=3)", [[1], "b", 3]),
        ("f([1])", [[1]]),
    ],
)
def test_a_call_is_the_test_of_the_program_that_it_calls(read, call, arguments):
    code = "def f(xs, s='b', k=0):\n    return [xs, s, k]\n"
    found = read("livecodebench_execution_program", id="one", code=code, input=call, output="(1, 2)").problem
    assert found.tests == CallTests("call", "f", [CallCase(arguments, None)])
    assert found.solutions == [code.strip()]
    assert read("cruxeval_program", id="one", code=code, input="[1], 's'", output="[1]").problem.tests == CallTests(
        "call", "f", [CallCase([[1], "s"], [1])]
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [("f((1, 2))", "not_plain"), ("f({1: 2})", "not_plain"), ("f(g(1))", "malformed"), ("g(1)", "malformed")],
)
def test_a_row_with_an_unsuitable_call_is_skipped(read, call, reason):
    row = {"id": "one", "code": "def f(x):\n    return x\n", "input": call, "output": "1"}
    assert read("livecodebench_execution_program", **row).reason == reason


def test_leetcode_of_old_and_new_releases(read):
    row = {
        "task_id": "two-sum",
        "prompt": "import math\n",
        "completion": "class Solution: ...",
        "entry_point": "Solution().twoSum",
        "test": "def check(candidate): ...",
        "query": "long prompt",
        "meta": {"difficulty": "Meidum", "question_title": "Two numbers.", "lang_code": "class Solution:"},
    }
    found = read("leetcode", **row)
    assert found.problem.tests == CheckTests(
        "check", "Solution.twoSum", "def check(candidate): ...", "check(candidate)", "import math\n"
    )
    assert (found.problem.difficulty, found.problem.statement) == ("Medium", "Two numbers.")
    assert (found.problem.starter_code, found.origin.key) == ("class Solution:", "leetcode/two-sum")
    new = {name: value for name, value in row.items() if name != "meta"} | {
        "difficulty": "Easy",
        "problem_description": "Two numbers.",
        "starter_code": "class Solution:",
        "estimated_date": "2024-07-03",
        "tags": ["Array"],
    }
    problem = read("leetcode", **new).problem
    assert (problem.released, problem.tags) == (datetime.date(2024, 7, 3), ["Array"])
    assert (problem.statement, problem.starter_code) == ("Two numbers.", "class Solution:")


def test_code_contests(read):
    row = {
        "name": "1_A. Add",
        "description": "Add.",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": [], "output": []},
        "generated_tests": {"input": ["4 5\n", "1 2\n"], "output": ["9\n", "3\n"]},
        "source": 2,
        "difficulty": 7,
        "solutions": {"language": [1, 3, 2], "solution": ["print 3", ADD, "int main() {}"]},
        "cf_contest_id": 1,
        "cf_index": "A",
        "cf_tags": ["math", ""],
        "time_limit": {"seconds": 1, "nanos": 500000000},
        "memory_limit_bytes": 1 << 30,
        "input_file": "",
        "output_file": "",
    }
    found = read("code_contests", **row)
    problem = found.problem
    assert (problem.tests, problem.solutions) == (STDIN, [ADD])  # the repeated test counts once
    assert (problem.source, problem.difficulty, problem.tags) == ("codeforces", "A", ["math"])
    assert (problem.time_limit_s, problem.memory_limit_mb) == (1.5, 1024)
    assert (found.origin.key, found.origin.title) == ("codeforces/1/A", "Add")
    assert read("code_contests", **row | {"input_file": "in.txt"}).reason == "uses_files"


def test_code_contests_of_sandbox_fusion(read):
    cases = [{"input": {"stdin": c["input"]}, "output": {"stdout": c["output"]}} for c in RECORDS]
    row = {"id": 3, "content": "Add.", "labels": '{"difficulty": "MEDIUM", "source": "CODECHEF", "name": "a3"}'}
    problem = read("code_contests", **row, test=json.dumps(cases)).problem
    assert (problem.tests, problem.source, problem.difficulty) == (STDIN, "codechef", "MEDIUM")


def test_codeforces(read):
    row = {
        "contest_id": "1",
        "index": "A",
        "title": "Adding",
        "description": "Add.",
        "input_format": "Two numbers.",
        "output_format": "One number.",
        "note": "",
        "examples": [RECORDS[0]],
        "official_tests": [RECORDS[1]],
        "contest_start": 1692600000,
        "rating": 800,
        "tags": ["math"],
        "time_limit": 2.0,
        "memory_limit": 512.0,
        "input_mode": "stdio",
    }
    found = read("codeforces", **row)
    problem = found.problem
    assert (problem.id, problem.tests, problem.difficulty) == ("codeforces/1/A", STDIN, "800")
    assert problem.released == datetime.date(2023, 8, 21)
    assert [problem.statement.index(text) for text in ("Add.", "Two numbers.", "One number.", "1 2")] == sorted(
        problem.statement.index(text) for text in ("Add.", "Two numbers.", "One number.", "1 2")
    )
    assert read("codeforces", **row | {"generated_checker": "import sys"}).reason == "special_judge"
    assert read("codeforces", **row | {"interaction_format": "Ask."}).reason == "interactive"
    assert read("codeforces", **row | {"input_mode": "file"}).reason == "uses_files"
    assert read("codeforces", cf_id="1A", problem="Add.", tests=RECORDS).problem.id == "codeforces/1A"


def test_humaneval(read):
    row = {
        "task_id": "HumanEval/7",
        "prompt": "import math\n\ndef add(a, b):\n    '''Add.'''\n",
        "entry_point": "add",
        "canonical_solution": "    return a + b\n",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    }
    problem = read("humaneval", **row).problem
    assert problem.tests == CheckTests("check", "add", row["test"], "check(add)", "import math\n\n")
    assert problem.solutions == [row["prompt"] + row["canonical_solution"]]
    pack = {"task_id": "Python/7", "declaration": "def add(a, b):\n", "test": "assert add(1, 2) == 3"}
    problem = read("humanevalpack", **row | pack).problem
    assert (problem.id, problem.solutions) == ("HumanEval/7", ["def add(a, b):\n    return a + b\n"])
    assert read("humanevalpack", **row | pack | {"task_id": "Go/7"}).reason == "other_language"


def test_mbpp(read):
    row = {"task_id": 2, "text": "Add.", "code": "def add(a, b):\r\n    return a + b", "test_setup_code": ""}
    tests = {"test_list": ["assert max(add(1, 2), 0) == 3"], "challenge_test_list": []}
    problem = read("mbpp", **row, **tests).problem
    assert isinstance(problem.tests, CheckTests)
    assert (problem.id, problem.tests.entry_point) == ("mbpp/2", "add")  # not max, which is of Python
    assert problem.solutions == ["def add(a, b):\n    return a + b"]
    sanitised = {"prompt": "Add.", "test_imports": ["import math"], "test_list": ["assert add(1, 2) == 3"]}
    problem = read("mbpp", **{"task_id": 2, "code": "def add(a, b): ..."}, **sanitised).problem
    assert isinstance(problem.tests, CheckTests)
    assert "import math" in problem.tests.source
    assert read("mbpp", **row, test_list=[]).reason == "no_function"


KODCODE = {
    "question_id": "Leetcode_1",
    "question": "Add.",
    "solution": "def add(a, b):\n    return a + b",
    "test": (
        "from solution import add\nimport pytest\n\n"
        "def test_it():\n    assert add(0.1, 0.2) == pytest.approx(0.3)\n"
        "    with pytest.raises(TypeError):\n        add(1, None)\n"
    ),
    "test_info": [{"function_name": "add"}],
}


def test_kodcode(read):
    problem = read("kodcode", **KODCODE).problem
    tests = problem.tests
    assert isinstance(tests, CheckTests)
    assert (tests.entry_point, tests.invocation) == ("add", "test_it()")
    assert "from solution" not in tests.source
    fixture = "from solution import add\nimport pytest\n\n@pytest.mark.parametrize('a', [1])\ndef test_it(a): ...\n"
    assert read("kodcode", **KODCODE | {"test": fixture}).reason == "needs_pytest"
    assert read("kodcode", **KODCODE | {"test": "def test_it(:"}).reason == "malformed"
    assert read("kodcode", **KODCODE | {"test": "x = 1"}).reason == "no_tests"


def test_rows_with_answers(read):
    row = {"id": "sample_1", "code": "def f(x):\n    return x", "input": "[1]", "output": "[1]"}
    assert read("cruxeval", **row).problem.tests == AnswerTests("answer", "[1]", "value")
    aime = read("aime", problem="What?", answer="204", year=2024, aime_number=1, problem_number=3).problem
    assert (aime.id, aime.tests) == ("aime/2024-1-3", AnswerTests("answer", "204", "math"))
    of_qwq = read("aime", prompt="What?", answer=70).problem
    assert (of_qwq.statement, of_qwq.tests) == ("What?", AnswerTests("answer", "70", "math"))
    solution = "So it is $\\boxed{\\frac{1}{2}}$."
    mathematics = read("math", problem="What?", solution=solution, level="Level 5", type="Algebra").problem
    assert mathematics.tests == AnswerTests("answer", "\\frac{1}{2}", "math")
    assert (mathematics.solutions, mathematics.tags) == ([solution], ["Algebra"])
    assert read("math", problem="What?", solution="It is 3.").reason == "no_tests"


@pytest.mark.parametrize("name", sorted(LAYOUTS))
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"question": 3, "problem": ["a"], "prompt": {}, "tests": "[", "input_output": "{", "code": b"x", "input": None},
        {"question": "\ud800", "input_output": '{"inputs": [{}], "outputs": [null]}', "problem": "x", "tests": [1, {}]},
        {
            "problem": "x",
            "tests": {"functional": []},
            "test": "[" * 1000,
            "question": "y",
            "input_output": "[" * 100_000,
        },
        {
            "description": "d",
            "public_tests": {"input": 3},
            "solutions": "[1",
            "examples": "x",
            "prompt": [],
            "test": [],
        },
    ],
)
def test_malformed_rows_have_a_reason_and_reading_continues(read, name, fields):
    found = read(name, **fields)
    assert isinstance(found, SkippedRow)
    assert found.reason.isidentifier()
    assert found.detail
    assert found.row == "made.jsonl:1"


def test_a_set_of_another_layout_is_an_error_that_names_what_is_missing():
    rows = [RawRow(f"a.jsonl:{number}", {"statement": "x"}) for number in range(1, 200)]
    with pytest.raises(InputError, match=r"set = 'taco'.*a\.jsonl:100: no field .*its fields: statement"):
        list(read_rows("taco", "mine", rows))


def test_one_good_row_is_enough_to_go_on():
    rows = [RawRow("a.jsonl:1", TACO), *(RawRow(f"a.jsonl:{number}", {}) for number in range(2, 300))]
    found = list(read_rows("taco", "mine", rows))
    assert isinstance(found[0], ProblemCandidate)
    assert len(found) == 299
