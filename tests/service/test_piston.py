"""Piston's protocol, asked as open-r1 asks."""

from __future__ import annotations

import base64
import sys

import pytest

from .conftest import RIGHT, LiveServer

VERSION = ".".join(map(str, sys.version_info[:3]))


def execute(server: LiveServer, content: str, language: str = "python", **fields: object) -> dict[str, object]:
    body = {"files": [{"name": "main", "content": content}], "language": language, "version": "*"} | fields
    reply = server.client.post("/api/v2/execute", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_runtimes_lists_the_supported_languages(compatible: LiveServer):
    found = {one["language"]: one for one in compatible.client.get("/api/v2/runtimes").json()}
    assert found["python"]["version"] == VERSION
    assert "py3" in found["python"]["aliases"]
    assert execute(compatible, "print(1)", "py3", version=VERSION)["run"]["stdout"] == "1\n"
    for language, one in found.items():
        assert execute(compatible, "int main() {}", language, version=one["version"])["version"] == one["version"]


@pytest.mark.parametrize(
    ("content", "code", "signal", "status"),
    [
        ("print(input())", 0, None, None),
        ("import sys; sys.exit(3)", 3, None, "RE"),
        ("print(", 1, None, "RE"),
        ("import os; os.abort()", None, "SIGABRT", "SG"),
        ("while True: pass", None, "SIGKILL", "TO"),
        ("import time; time.sleep(60)", None, "SIGKILL", "TO"),
        ("import os\nwhile True: os.write(1, bytes(1 << 16))", None, "SIGKILL", "OL"),
        ("import os\nwhile True: os.write(2, bytes(1 << 16))", None, "SIGKILL", "EL"),
        ("import os\nwhile True: os.dup(0)", None, "SIGKILL", "SG"),
    ],
)
def test_a_stage_reports_how_the_program_ended(compatible: LiveServer, content, code, signal, status):
    run = execute(compatible, content, stdin="7", run_cpu_time=500, run_timeout=1500)["run"]
    assert (run["code"], run["signal"], run["status"]) == (code, signal, status)
    if code == 0:
        assert (run["stdout"], run["stderr"], run["output"]) == ("7\n", "", "7\n")


def test_a_compiled_program_has_two_stages(compatible: LiveServer):
    good = execute(compatible, '#include <cstdio>\nint main() { puts("hi"); }', "c++")
    assert (good["compile"]["code"], good["run"]["stdout"]) == (0, "hi\n")
    bad = execute(compatible, "int main() { return }", "c++17")
    assert bad["compile"]["code"] == 1
    assert bad["run"] == bad["compile"]


def test_files_are_in_the_working_folder(compatible: LiveServer):
    files = [
        {"content": "print(open('a.txt').read(), open('b').read(), open('file3.code').read())"},
        {"name": "a.txt", "content": base64.b64encode(b"x").decode(), "encoding": "base64"},
        {"name": "b", "content": "79", "encoding": "hex"},
        {"content": "z"},
    ]
    assert execute(compatible, "", files=files)["run"]["stdout"] == "x y z\n"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"language": "cms_ioi"}, "cms_ioi-* runtime is unknown"),
        ({"version": "2.7"}, "python-2.7 runtime is unknown"),
        ({"args": ["a"]}, "args"),
        ({"files": []}, "files"),
        ({"files": [{"content": "x", "encoding": "hex"}]}, "not hex"),
        ({"compile_memory_limit": 5}, "compile_memory_limit"),
        ({"something": 5}, "something"),
    ],
)
def test_unsupported_options_are_refused_with_a_message(compatible: LiveServer, fields, message: str):
    body = {"files": [{"content": "1"}], "language": "python", "version": "*"} | fields
    reply = compatible.client.post("/api/v2/execute", json=body)
    assert reply.status_code == 400
    assert message in reply.json()["message"]


def test_limits_beyond_those_of_the_server_are_clipped_and_named(compatible: LiveServer):
    stage = execute(compatible, "print(7)", run_timeout=99_000, run_cpu_time=13_000, run_memory_limit=1 << 40)["run"]
    assert (stage["code"], stage["stdout"]) == (0, "7\n")
    assert stage["message"].startswith("run_memory_limit = 1.09951e+12 was clipped to the server's limit of ")
    assert "; run_cpu_time = 13000 was clipped" in stage["message"]


def test_requests_must_have_the_content_type_of_json(compatible: LiveServer):
    body = '{"files": [{"content": "1"}], "language": "python", "version": "*"}'
    for headers in ({}, {"Content-Type": "text/plain"}):
        reply = compatible.client.post("/api/v2/execute", content=body, headers=headers)
        assert (reply.status_code, list(reply.json())) == (415, ["message"])


# --- The requests of open-r1's Codeforces reward -------------------------------------------------------------------


def graded(content: str, extension: str = "py", **files: str) -> dict[str, object]:
    named = {"input.txt": "3 4\n", "correct_output.txt": "7\n"} | files
    named.setdefault("grader_config", "TIME_LIMIT=1.0\nMEMORY_LIMIT=256.0\nINPUT_MODE=stdio")
    rest = [{"name": name, "content": text} for name, text in named.items()]
    return {"files": [{"name": f"main.{extension}", "content": content}, *rest], "run_timeout": 4000}


def passes(result: dict[str, dict[str, object]]) -> bool:
    """As open-r1 reads it."""
    return result["run"]["code"] == 0 and result["run"]["stdout"].strip() == "1"


SPY = """
import glob, os
for folder, _, names in os.walk("/"):
    for name in names:
        try:
            text = open(os.path.join(folder, name)).read(1000) if "proc" not in folder else ""
        except Exception:
            continue
        if "SECRET" + "ANSWER" in text:
            print("SECRET" + "ANSWER"); raise SystemExit
"""


@pytest.mark.parametrize(
    ("content", "is_right"),
    [(RIGHT, True), ("print(8)", False), ("print(1)", False), ("1/0", False), ("while True: pass", False)],
)
def test_a_submission_with_its_test_is_judged(compatible: LiveServer, content: str, is_right: bool):
    result = execute(compatible, "", "cf_python3", **graded(content))
    assert passes(result) is is_right
    assert result["compile"]["code"] == 0


def test_a_submission_cannot_read_its_expected_output(compatible: LiveServer):
    body = graded(SPY, **{"correct_output.txt": "SECRETANSWER\n"})
    assert not passes(execute(compatible, "", "cf_python3", **body))


def test_a_submission_that_does_not_compile_is_reported_as_such(compatible: LiveServer):
    result = execute(compatible, "", "c++17", **graded("int main() { return }", "cpp"))
    assert result["compile"]["code"] != 0
    good = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
    assert passes(execute(compatible, "", "c++17", **graded(good, "cpp")))


CHECKER = """
import sys
def main():
    given, correct, printed = (open(path).read().split() for path in sys.argv[1:])
    assert (given, correct) == (["3", "4"], ["7"])
    print(1 if len(printed) == 2 and sum(map(int, printed)) == 7 else 0)
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("content", "checker", "is_right"),
    [
        ("print(1, 6)", CHECKER, True),
        ("print(5, 2)", CHECKER, True),
        ("print(1, 7)", CHECKER, False),
        ("print('x y')", CHECKER, False),
        ("1/0", "print(1)", False),
        ("print(7)", "import sys\nprint('1.0')\nsys.exit(0)", True),
        ("print(7)", "print(0.5)", False),
        ("print(7)", "print('accepted')", False),
    ],
)
def test_a_checker_that_comes_with_a_submission_decides(compatible: LiveServer, content, checker, is_right: bool):
    body = graded(content, **{"checker.py": checker})
    assert passes(execute(compatible, "", "cf_python3", **body)) is is_right


FILES = {"grader_config": "TIME_LIMIT=2.0\nMEMORY_LIMIT=256.0\nINPUT_MODE=file"}
CPP = "#include <bits/stdc++.h>\nusing namespace std;\nint a, b;\n"


@pytest.mark.parametrize(
    ("content", "extension", "is_right"),
    [
        ("from __future__ import annotations\na = open('input.txt').read()\n"
         "open('output.txt', 'w').write(str(sum(map(int, a.split()))))", "py", True),
        ("import sys\nsys.stdin, sys.stdout = open('input.txt'), open('output.txt', 'w')\n"
         "print(sum(map(int, input().split())))\nsys.exit()", "py", True),
        (RIGHT, "py", False),
        ("print(7)", "py", False),
        ("1/0", "py", False),
        (CPP + 'int main() { freopen("input.txt", "r", stdin); freopen("output.txt", "w", stdout);'
         "cin.tie(0)->sync_with_stdio(0); cin >> a >> b; cout << a + b; }", "cpp", True),
        (CPP + 'ifstream in("input.txt"); ofstream out("output.txt"); int main() { in >> a >> b; out << a + b; }',
         "cpp", True),
        (CPP + "int main() { cin >> a >> b; cout << a + b; }", "cpp", False),
    ],
)  # fmt: skip
def test_a_program_may_have_to_read_and_write_files(compatible: LiveServer, content, extension, is_right: bool):
    language = "cf_python3" if extension == "py" else "c++17"
    assert passes(execute(compatible, "", language, **graded(content, extension, **FILES))) is is_right


def test_a_checker_and_files_go_together(compatible: LiveServer):
    body = graded("open('output.txt', 'w').write('3 4')", **FILES, **{"checker.py": CHECKER})
    assert passes(execute(compatible, "", "cf_python3", **body))


@pytest.mark.parametrize(
    "files",
    [
        {"checker.cpp": "print(1)"},
        {"grader_config": "TIME_LIMIT=1\nMEMORY_LIMIT=64\nINPUT_MODE=interactive"},
        {"grader_config": "TIME_LIMIT=x"},
        {"grader_config": "TIME_LIMIT=1\nA=b"},
        {"grader_config": "TIME_LIMIT=1\nMEMORY_LIMIT=inf"},
    ],
)
def test_an_unsupported_grader_is_refused(compatible: LiveServer, files: dict[str, str]):
    body = graded(RIGHT, **files) | {"language": "cf_python3", "version": "*"}
    assert compatible.client.post("/api/v2/execute", json=body).status_code == 400
