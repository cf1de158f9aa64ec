"""C++ programs: compiled in a cell of their own, run in another, judged like any other program."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from autoclave.config import CppConfig, JudgeConfig, SandboxConfig
from autoclave.core import Ended, HostError, InputError, Problem, Program, Status, StdinCase, StdinTests, Verdict
from autoclave.judge import JudgeJob, LocalJudge, run_program
from autoclave.judge.environments import MESSAGE_BYTES, Cpp, first_error, reports_kill
from autoclave.judge.profiles import PROFILES, Built, CompileError
from autoclave.judge.toolchain import find_toolchain
from autoclave.sandbox import Cell, Limits, Profile, Runner, Sandbox, open_sandbox

from .conftest import JUDGE, SANDBOX

CPP = CppConfig(time_limit_s=6.0, memory_limit_mb=384, program_limit_mb=4)
SUM = '#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b << "\\n"; }'
ADD = Problem("s", StdinTests("stdin", [StdinCase("3 4\n", "7\n"), StdinCase("1 1\n", "2\n")]), id="p", language="cpp")

Judged = Callable[..., Verdict]


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        find_toolchain("g++")
    except HostError as error:
        pytest.skip(f"this host has no C++ compiler: {error}")


@pytest.fixture(scope="module")
def cpp_judge(judge: LocalJudge) -> Iterator[LocalJudge]:
    """A judge with small limits on compilation; `judge` tells whether cells can be made at all."""
    with LocalJudge(SANDBOX, JUDGE.model_copy(update={"cpp": CPP, "workers": 1})) as opened:
        yield opened


@pytest.fixture
def judged(cpp_judge: LocalJudge) -> Judged:
    """judged(source, output=...): the verdict on a problem whose only test expects that output, or on `ADD`."""

    def verdict_of(source: str, output: str | None = None) -> Verdict:
        tests = ADD.tests if output is None else StdinTests("stdin", [StdinCase("", output)])
        problem = Problem("s", tests, id="p", language="cpp")
        return cpp_judge.submit(JudgeJob(problem, Program(source, "cpp"), "x")).result(timeout=300)

    return verdict_of


def test_a_right_program_is_accepted(judged: Judged):
    assert judged(SUM).status is Status.ACCEPTED


FAILURES = {
    "wrong output": ('#include <cstdio>\nint main() { puts("8"); }', Status.WRONG_ANSWER, "the output does not match"),
    "exit code": ("int main() { return 3; }", Status.RUNTIME_ERROR, "exit code 3"),
    "signal": ("int main() { volatile int* p = nullptr; *p = 1; }", Status.RUNTIME_ERROR, "killed by SIGSEGV"),
    "abort": ("#include <cstdlib>\nint main() { abort(); }", Status.RUNTIME_ERROR, "killed by SIGABRT"),
    "standard exception": (
        '#include <stdexcept>\nint main() { throw std::out_of_range("text of a test"); }',
        Status.RUNTIME_ERROR,
        "uncaught std::out_of_range",
    ),
    "own exception": (
        "struct text_of_a_test {}; int main() { throw text_of_a_test(); }",
        Status.RUNTIME_ERROR,
        "uncaught exception",
    ),
    "endless loop": ("int main() { for (volatile int i = 0;; i++); }", Status.TIME_LIMIT, "time limit"),
    "endless allocation": (
        "#include <vector>\nint main() { std::vector<std::vector<int>> v; for (;;) v.emplace_back(1 << 20, 1); }",
        Status.MEMORY_LIMIT,
        "memory limit",
    ),
    "refused allocation": (
        "#include <vector>\nint main() { std::vector<char> v(4ull << 30); return v[5]; }",
        Status.MEMORY_LIMIT,
        "memory limit (std::bad_alloc)",
    ),
    "large static data": ("char a[3ull << 29]; int main() { return a[7]; }", Status.MEMORY_LIMIT, "memory limit"),
    "endless file": (
        '#include <cstdio>\nint main() { FILE* f = fopen("f", "w"); for (;;) if (putc(7, f) < 0) return 3; }',
        Status.RUNTIME_ERROR,
        "disk limit",
    ),
    "endless threads": (
        "#include <thread>\n#include <unistd.h>\nint main() { for (;;) new std::thread([] { sleep(9); }); }",
        Status.RUNTIME_ERROR,
        "process limit (std::system_error)",
    ),
    "endless descriptors": (
        "#include <filesystem>\n#include <unistd.h>\n"
        'int main() { while (dup(0) >= 0) {} return std::filesystem::directory_iterator("/tmp")->is_fifo(); }',
        Status.RUNTIME_ERROR,
        "open files limit (exception)",
    ),
    "endless output": (
        '#include <cstdio>\nint main() { for (;;) puts("aaaaaaaaaaaaaaaa"); }',
        Status.OUTPUT_LIMIT,
        "output limit",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_has_its_status_and_message(judged: Judged, failure: str):
    source, status, message = FAILURES[failure]
    verdict = judged(source)
    assert verdict.status is status
    assert message in verdict.message
    assert "text" not in verdict.message


HONEST = {
    "every header": "#include <bits/stdc++.h>\nusing namespace std;\nint main() { cout << string(1, '7'); }",
    "deep recursion": (
        "#include <cstdio>\nint f(int n) { volatile char b[100]; b[0] = 0; return n ? f(n - 1) + b[0] + 1 : 0; }\n"
        'int main() { printf("%d", f(1000000) - 999993); }'
    ),
    "thread": "#include <iostream>\n#include <thread>\nint main() { std::thread([] { std::cout << 7; }).join(); }",
    "exceptions": '#include <cstdio>\nint main() { try { throw 7; } catch (int n) { printf("%d", n); } }',
    "file": (
        '#include <fstream>\n#include <iostream>\nint main() { { std::ofstream("a") << 7; } int n; '
        'std::ifstream("a") >> n; std::cout << n; }'
    ),
    "static data": 'int a[40000000];\n#include <cstdio>\nint main() { a[39999999] = 7; printf("%d", a[39999999]); }',
    "mathematics": '#include <cmath>\n#include <cstdio>\nint main() { volatile double x = 49; printf("%.0f", pow(x, 0.5)); }',
}


@pytest.mark.parametrize("way", HONEST)
def test_an_honest_program_is_accepted(judged: Judged, way: str):
    verdict = judged(HONEST[way], "7")
    assert (verdict.status, verdict.message) == (Status.ACCEPTED, "")


COMPILE_ERRORS = {
    "syntax": ("int main() {\n  int x = ;\n}", "expected primary-expression before ';' token (line 2)"),
    "missing function": ("int f();\nint main() { return f(); }", "undefined reference to `f()'"),
    "a file of the host": ('#include "/etc/passwd"\nint main() {}', "passwd: No such file or directory (line 1)"),
    "a file of the host by the assembler": (
        'asm(".incbin \\"/etc/passwd\\"");\nint main() {}',
        "file not found: passwd",
    ),
    "an endless file": ("#include </dev/zero>\nint main() {}", "compilation needs more than 384 MiB"),
    "templates without end": (
        "template<int N, int M> struct A : A<N - 1, 2 * M>, A<N - 1, 2 * M + 1> {};\n"
        "template<int M> struct A<0, M> {};\nA<25, 0> a;\nint main() {}",
        "compilation ",
    ),
    "a huge program": ("int a[1 << 20] = {1}, b[1 << 20] = {1};\nint main() { return a[5] + b[5]; }", "the compiled program is larger than 4 MiB"),
    "huge data": ("int a[1 << 28] = {1};\nint main() { return a[5]; }", "File too large"),
    "the message of a killed compiler": (
        "#error g++: fatal error: Killed signal terminated program cc1plus",
        "#error g++: fatal error: Killed signal terminated",
    ),
    "its own source": ("#include __FILE__\nint main() {}", "#include nested depth 200 exceeds maximum of 200"),
}  # fmt: skip


@pytest.mark.parametrize("attack", COMPILE_ERRORS)
def test_what_does_not_compile_within_the_limits_is_a_compile_error(judged: Judged, attack: str):
    source, message = COMPILE_ERRORS[attack]
    verdict = judged(source)
    assert verdict.status is Status.COMPILE_ERROR
    assert message in verdict.message


ISOLATION = {
    "files of the host": '#include <unistd.h>\nint main() { return access("/etc/passwd", 0) == 0 || access("/usr/include", 0) == 0; }',
    "the compiler": '#include <unistd.h>\nint main() { return access("/usr/bin/as", 0) == 0; }',
    "sockets": "#include <sys/socket.h>\nint main() { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }",
    "other descriptors": "#include <unistd.h>\nint main() { for (int d = 3; d < 64; d++) if (dup(d) >= 0) return 1; }",
    "its own file": '#include <cstdio>\nint main() { return fopen("/program/program", "r+") != nullptr || remove("/program/program") == 0; }',
    "other processes": "#include <signal.h>\nint main() { return kill(1, 0) == 0; }",
}


@pytest.mark.parametrize("target", ISOLATION)
def test_a_program_cannot_reach(judged: Judged, target: str):
    verdict = judged(ISOLATION[target], "")
    assert (verdict.status, verdict.message) == (Status.ACCEPTED, "")


def test_a_test_does_not_see_the_files_of_another(judged: Judged):
    verdict = judged(
        SUM.replace(
            "int main() {",
            '#include <fstream>\nint main() { if (std::ifstream("a")) return 1; std::ofstream("a") << 1;',
        )
    )
    assert verdict.status is Status.ACCEPTED


def test_a_closed_pipe_ends_a_program_as_it_does_outside(judged: Judged):
    source = (
        '#include <signal.h>\n#include <cstdio>\nint main() { puts(signal(SIGPIPE, SIG_IGN) == SIG_DFL ? "7" : "0"); }'
    )
    assert judged(source, "7").status is Status.ACCEPTED


class Counting:
    """A sandbox that counts the cells it opens, by profile."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.level = sandbox.level
        self._sandbox = sandbox
        self.opened: list[str] = []

    def open(self, content: bytes, profile: Profile, limits: Limits, runner: Runner) -> Cell:
        self.opened.append(profile.name)
        return self._sandbox.open(content, profile, limits, runner)

    def close(self) -> None:
        self._sandbox.close()


@pytest.fixture
def counting(judge: LocalJudge) -> Iterator[Counting]:
    sandbox = Counting(open_sandbox(SANDBOX))
    yield sandbox
    sandbox.close()


def test_a_program_is_compiled_once(counting: Counting):
    cpp = Cpp(CPP)
    for source in ("int main() {}", "int main() { return 1; }", "int main() {}", "int x = ;", "int x = ;"):
        cpp.build(counting, Program(source, "cpp"), PROFILES["lcb"], "stdin")
    assert counting.opened == ["compile_cpp"] * 3


def test_other_flags_are_another_compilation(counting: Counting):
    program = Program("#if __cplusplus < 202002L\n#error old\n#endif\nint main() {}", "cpp")
    new = Cpp(CPP).build(counting, program, PROFILES["lcb"], "stdin")
    old = Cpp(CppConfig(flags=("-O0", "-std=c++17"))).build(counting, program, PROFILES["lcb"], "stdin")
    assert isinstance(new, Built)
    assert old == CompileError("#error old (line 2)")


def test_a_program_that_does_not_fit_the_memory_for_compiled_ones_is_compiled_again(counting: Counting):
    cpp = Cpp(CPP.model_copy(update={"cache_mb": 0}))
    for _ in range(2):
        assert isinstance(cpp.build(counting, Program("int main() {}", "cpp"), PROFILES["lcb"], "stdin"), Built)
    assert counting.opened == ["compile_cpp"] * 2


def test_calls_need_python(cpp_judge: LocalJudge, call_problem: Callable[..., Problem]):
    with pytest.raises(InputError, match="problem 'p': language = 'cpp': tests of kind 'call' need 'python'"):
        cpp_judge.check(call_problem("f", ([], 1), language="cpp"))


def test_without_a_compiler_a_problem_is_refused_with_the_fix(judge: LocalJudge):
    config = JudgeConfig(workers=1, cpp=CppConfig(compiler="no-such-compiler"))
    with LocalJudge(SANDBOX, config) as poor, pytest.raises(HostError, match=r"problem 'p'.*no such command\. Fix: "):
        poor.check(ADD)


def test_flags_that_the_compiler_does_not_take_are_refused_before_anything_runs():
    config = JudgeConfig(workers=1, cpp=CppConfig(flags=("-std=c++99",)))
    problem = Problem("", StdinTests("stdin", [StdinCase("", "")]), id="p", language="cpp")
    with (
        LocalJudge(SANDBOX, config) as judge,
        pytest.raises(HostError, match=r"problem 'p'.*judge\.cpp\.flags = .*c\+\+99"),
    ):
        judge.check(problem)


def test_a_plain_run_takes_cpp_too(judge: LocalJudge):
    outcome = run_program(SandboxConfig(), Program(SUM, "cpp"), b"3 4\n")
    assert (outcome.ended, outcome.exit_code, outcome.stdout) == (Ended.EXITED, 0, b"7\n")
    refused = run_program(SandboxConfig(), Program("int x = ;", "cpp"))
    assert (refused.exit_code, refused.stderr) == (1, b"expected primary-expression before ';' token (line 1)\n")


def test_without_a_command_gcc_is_named_in_the_fix():
    assert shutil.which("g++")
    with pytest.raises(HostError, match="cc1plus"):
        find_toolchain("true")


@pytest.mark.parametrize(
    ("messages", "first"),
    [
        (b"program.cpp:3:1: error: bad\nprogram.cpp:4:1: error: worse\n", "bad (line 3)"),
        (b"/usr/include/c++/12/bits/a.h:9:2: error: in /usr/include/b.h\n", "in b.h"),
        (b"program.cpp:1:1: error: \x1b[31m" + b"x" * 999, "?[31m" + "x" * 195 + " (line 1)"),
        (b"", "the compiler reports no error that can be shown"),
        (b"\xff\xfe nonsense", "the compiler reports no error that can be shown"),
    ],
)
def test_the_first_error_is_bounded_and_names_no_folder(messages: bytes, first: str):
    assert first_error(messages) == first


KILLED = b"g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"


@pytest.mark.parametrize(
    ("messages", "is_reported"),
    [
        (KILLED, True),
        (b"program.cpp:1: note\n" + KILLED, True),
        (b"collect2: fatal error: ld terminated with signal 9 [Killed]\ncompilation terminated.\n", True),
        (b"program.cpp:1:2: error: " + KILLED, False),
        (KILLED + b"compilation terminated due to -Wfatal-errors.\n", False),
        (b"x" * MESSAGE_BYTES + b"\n" + KILLED, False),
        (b"collect2: error: ld returned 1 exit status\n", False),
    ],
)
def test_only_the_last_words_of_the_compiler_tell_that_it_was_killed(messages: bytes, is_reported: bool):
    assert reports_kill(messages) is is_reported
