"""Conformance suite of workspaces, as tests that any implementation can run. Needs pytest.

Subclass `WorkspaceConformance`, and override the fixture `workspaces`, whose limits must be `LIMITS`.
"""

from collections.abc import Callable
from typing import Any

import pytest

from autoclave.core import EndState, UsageError
from autoclave.workspaces.interface import Declared, ToolResult, Workspace, WorkspaceLimits, Workspaces

LIMITS = WorkspaceLimits(
    call_cpu_s=0.3,
    call_wall_s=2.0,
    call_output_bytes=1 << 16,
    cpu_s=1.0,
    output_bytes=1 << 17,
    memory_mb=128,
    disk_mb=8,
    processes=16,
)
FILES = {"a.txt": b"one\ntwo\n", "sub/b.py": b"print('b')\n"}
Call = Callable[..., ToolResult]


class WorkspaceConformance:
    """Tests of one implementation."""

    @pytest.fixture(scope="class")
    @classmethod
    def workspaces(cls) -> Workspaces:
        raise NotImplementedError

    @pytest.fixture
    def workspace(self, workspaces: Workspaces):
        workspace = workspaces.start(FILES, "python3 sub/b.py").result()
        yield workspace
        workspace.close()

    @pytest.fixture
    def call(self, workspace: Workspace) -> Call:
        return lambda tool, **arguments: workspace.call(tool, arguments).result()

    @pytest.fixture
    def end(self, workspace: Workspace) -> Callable[..., EndState]:
        return lambda **declared: workspace.end(Declared(**declared)).result()

    def test_tools_act_on_the_same_files(self, call: Call, end: Callable[..., EndState]):
        assert call("shell", command="cat a.txt; echo three >> a.txt").text == "one\ntwo\n"
        assert call("edit_file", path="a.txt", old="two", new="2") == ToolResult("")
        assert call("write_file", path="deep/er/c.txt", content="é\r\n") == ToolResult("")
        assert call("read_file", path="a.txt", first_line=2, num_lines=1).text == "2\n"
        assert call("search", pattern="^t").text == "a.txt:3:three\n"
        assert call("python", code="len(open('deep/er/c.txt', newline='').read())").text == "3\n"
        assert call("run_tests") == ToolResult("b\n")
        assert end(patterns=("*.txt",)) == EndState({"a.txt": b"one\n2\nthree\n", "deep/er/c.txt": "é\r\n".encode()})

    @pytest.mark.parametrize(
        ("tool", "arguments", "reason"),
        [
            ("shell", {"command": "echo out; exit 3"}, "out\n[exit code 3]\n"),
            ("shell", {"command": "kill -9 $$"}, "[ended by signal 9]\n"),
            ("shell", {}, "missing 1 required positional argument: 'command'"),
            ("edit_file", {"path": "a.txt", "old": "o", "new": ""}, "occurs 2 times"),
            ("edit_file", {"path": "a.txt", "old": "x", "new": ""}, "occurs 0 times"),
            ("read_file", {"path": "none"}, "No such file"),
            ("read_file", {"path": 3.5}, "TypeError"),
            ("search", {"pattern": "("}, "Unmatched ("),
            ("write_file", {"path": "/usr/new", "content": ""}, "Read-only"),
            ("python", {"code": "1 / 0"}, "ZeroDivisionError"),
            ("python", {"source": "1"}, "unexpected keyword argument 'source'"),
            ("browse", {"url": "x"}, "there is no tool 'browse'"),
        ],
    )
    def test_what_fails_is_a_result_with_the_reason(
        self, call: Call, tool: str, arguments: dict[str, Any], reason: str
    ):
        result = call(tool, **arguments)
        assert result.is_error
        assert reason in result.text
        assert (result.ended_by, result.is_over) == ("", False)

    @pytest.mark.parametrize(
        ("command", "limit"),
        [
            ("while :; do :; done", "cpu_time"),
            ("yes", "output"),
            ("head -c 20m /dev/zero > big", "disk"),
            ("python3 -c 'x = bytearray(1 << 29); x[::4096] = bytes(1 << 17)'", "memory"),
            ("python3 -c 'import os, time\nwhile os.fork(): pass\ntime.sleep(60)'", "processes"),
            ("mkfifo pipe; cat pipe", "wall_time"),
        ],
    )
    def test_a_limit_of_a_call_is_named_and_the_next_call_works(self, call: Call, command: str, limit: str):
        result = call("shell", command=command)
        assert (result.is_error, result.ended_by, result.is_over) == (True, limit, False), result.text[-300:]
        assert call("shell", command="ls a.txt; rm -f big; ps 2> /dev/null | grep -c python").text.startswith("a.txt")

    def test_a_limit_of_the_episode_ends_it(self, call: Call, end: Callable[..., EndState]):
        results = [call("python", code="while True: pass") for _ in range(5)]
        assert [result.ended_by for result in results] == ["cpu_time"] * 5
        assert (results[0].is_over, results[-1].is_over) == (False, True)
        assert "there are no further calls" in results[-1].text
        assert end().files == FILES

    def test_the_python_session_keeps_its_state_until_it_ends(self, call: Call):
        assert call("python", code="x = [1]\ndef f():\n    return x").text == ""
        assert call("shell", command="true").text == ""
        assert call("python", code="x.append(2); f()").text == "[1, 2]\n"
        lost = call("python", code="import os\nos._exit(5)")
        assert (lost.is_error, "[exit code 5]\n[the Python session has ended" in lost.text) == (True, True)
        assert "NameError" in call("python", code="x").text
        slept = call("python", code="import time; x = 3; time.sleep(60)")
        assert (slept.ended_by, "session has ended" in slept.text) == ("wall_time", True)
        assert "NameError" in call("python", code="x").text

    def test_nothing_runs_between_calls_or_after_the_end(self, call: Call, end: Callable[..., EndState]):
        daemon = "(setsid sh -c 'while :; do date +%N > ticks; done' > /dev/null 2>&1 &) ; sleep 0.1"
        call("shell", command=daemon)
        call("python", code=f"import os, threading\nos.system({daemon!r})")
        call(
            "python",
            code="def beat():\n    while True: open('beats', 'a').write('.')\nthreading.Thread(target=beat).start()",
        )
        first, second = (call("shell", command="cat ticks; wc -c beats; sleep 0.2").text for _ in range(2))
        assert first == second
        call("python", code="import time; time.sleep(0.2)")
        assert call("shell", command="cat ticks; wc -c beats").text != first  # its threads go on with it
        assert set(end().files) == {*FILES, "ticks", "beats"}

    def test_the_end_state_is_data(self, call: Call, end: Callable[..., EndState]):
        call(
            "shell",
            command="mkfifo fifo; ln -s /etc/passwd link; ln -s sub folder; ln a.txt hard; truncate -s 7M sparse",
        )
        call("shell", command="mkdir -p .git $(printf 'd/%.0s' $(seq 80)); echo > .git/x; chmod 0 a.txt; chmod 0 sub")
        call("python", code="import os\nopen('new\\nline', 'w').write('n'); open(b'\\xff', 'w').close()")
        call("shell", command="touch $(printf 'd/%.0s' $(seq 80))far; head -c 200 /dev/zero > large; echo z > z")
        state = end(most_bytes=100)
        assert state.files == {**FILES, "hard": FILES["a.txt"], "new\nline": b"n", "z": b"z\n"}
        reasons = {path: reason.partition(":")[0] for path, reason in state.left_out.items()}
        odd = dict.fromkeys(("fifo", "link", "folder", "d/" * 64 + "d"), "no regular file, or too many folders deep")
        large = dict.fromkeys(("sparse", "large"), "over the limit")
        assert reasons == {**odd, **large, "\\xff": "its name is not UTF-8"}

    def test_no_more_files_are_carried_out_than_declared(self, call: Call, end: Callable[..., EndState]):
        call("shell", command="mkdir many; cd many; for i in $(seq 100 120); do echo $i > $i; done")
        state = end(patterns=("many/*",), most_files=3)
        assert set(state.files) == {"many/100", "many/101", "many/102"}
        assert [*state.left_out] == ["many/103", "many/104", "many/105", "*"]

    def test_an_episode_sees_nothing_of_the_one_before(self, workspaces: Workspaces):
        seen = list[str]()
        for _ in range(2):
            workspace = workspaces.start({}).result()
            command = "ls -A . ~ /tmp /dev/shm; set -- /proc/[0-9]*; echo $#"
            seen.append(workspace.call("shell", {"command": command}).result().text)
            workspace.call("shell", {"command": "touch x ~/x /tmp/x /dev/shm/x"}).result()
            workspace.end(Declared()).result()
        assert seen[0] == seen[1]

    def test_calls_are_made_one_after_the_other_and_none_after_the_end(
        self, workspace: Workspace, end: Callable[..., EndState]
    ):
        calls = [workspace.call("shell", {"command": "[ ! -e x ] && touch x && sleep 0.1; rm x"}) for _ in range(3)]
        assert not any(call.result().is_error for call in calls)
        end()
        with pytest.raises(UsageError, match="no call after its end"):
            workspace.call("shell", {"command": "true"}).result()
