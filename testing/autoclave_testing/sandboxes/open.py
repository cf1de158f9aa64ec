"""Requirements at every level: how tests end, limits, streams, sessions, and that nothing of a test survives it."""

import threading
import time

import pytest

from autoclave.core import Ended, SandboxFault
from autoclave.core.outcome import LIMIT_OF_ERRNO
from autoclave.sandbox.interface import Profile, Sandbox
from autoclave_testing.sandboxes.cells import ECHO, EXECUTE, CellFixtures, OpenCell, Run


class SandboxConformance(CellFixtures):
    """Requirements at every level, `open` included."""

    def test_the_level_is_the_one_that_these_tests_are_for(self, sandbox: Sandbox):
        assert sandbox.level == self.level

    def test_a_program_that_ends_by_itself_has_its_exit_code_and_output(self, run: Run):
        outcome = run("import sys; print(sys.stdin.read().upper()); sys.stderr.write('e'); sys.exit", b"abc")
        assert (outcome.ended, outcome.exit_code, outcome.signal) == (Ended.EXITED, 0, None)
        assert (outcome.stdout, outcome.stderr, outcome.stdout_cut, outcome.stderr_cut) == (b"ABC\n", b"e", 0, 0)

    @pytest.mark.parametrize("code", [1, 42, 255])
    def test_an_exit_code_is_reported(self, run: Run, code: int):
        assert run(f"import os; os._exit({code})").exit_code == code

    def test_a_signal_is_named(self, run: Run):
        aborted, crashed = run("import os; os.abort()"), run("import ctypes; ctypes.string_at(0)")
        assert (aborted.ended, aborted.signal, aborted.exit_code) == (Ended.SIGNALLED, 6, None)
        assert (crashed.ended, crashed.signal) == (Ended.SIGNALLED, 11)

    def test_a_source_that_does_not_compile_is_a_compile_error_with_its_line(self, open_cell: OpenCell):
        with open_cell("x = 1\nif x\n") as cell:
            assert cell.compile_error is not None
            assert cell.compile_error.endswith("(line 2)")

    def test_a_source_that_compiles_forever_or_crashes_the_compiler_does_not_stall(self, open_cell: OpenCell):
        started = time.monotonic()
        for source in ("(" * 100_000, "-" * 1_000_000 + "1", "x = " + "[" * 5000 + "]" * 5000, "a\0b", "\ud800"):
            with open_cell(source) as cell:
                assert cell.compile_error
        assert time.monotonic() - started < 30

    def test_a_placed_file_can_be_executed(self, open_cell: OpenCell):
        with open_cell("not a program", EXECUTE) as cell:
            assert [cell.run(b"").stdout for _ in range(2)] == [b"8\n"] * 2  # ENOEXEC: found, executable, no format

    def test_an_endless_loop_in_c_code_is_stopped_by_cpu_time(self, run: Run):
        outcome = run("sum(range(10**12))", cpu_s=0.5)
        assert outcome.ended is Ended.CPU_TIME
        assert 0.45 < outcome.cpu_s < 1.5

    def test_the_kernels_part_of_the_cpu_time_is_reported(self, run: Run):
        calls = run("import os\nwhile True: os.urandom(1 << 20)", cpu_s=0.5)
        assert 0.5 * calls.cpu_s < calls.system_s <= calls.cpu_s + 0.1
        assert run("while True: pass", cpu_s=0.5).system_s < 0.2

    def test_the_kernels_limit_of_cpu_time_is_above_ours(self, run: Run):
        outcome = run("import resource; print(*resource.getrlimit(resource.RLIMIT_CPU))", cpu_s=3)
        assert all(int(limit) > 2 * 3 for limit in outcome.stdout.split())

    def test_cpu_time_of_child_processes_counts(self, run: Run):
        source = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
        assert run(source, cpu_s=0.8, wall_s=20).ended is Ended.CPU_TIME

    def test_a_sleeping_program_is_stopped_by_the_wall_clock(self, run: Run):
        outcome = run("import time; time.sleep(100)", wall_s=0.6)
        assert outcome.ended is Ended.WALL_TIME
        assert 0.5 < outcome.wall_s < 6
        assert outcome.cpu_s < 0.3

    def test_a_stopped_program_is_ended_by_the_wall_clock(self, run: Run):
        assert run("import os; os.kill(os.getpid(), 19)", wall_s=0.6).ended is Ended.WALL_TIME

    def test_a_huge_allocation_fails_inside_the_program(self, run: Run):
        source = "try:\n    x = [0] * 10**10\nexcept MemoryError:\n    print('refused')"
        assert run(source).stdout == b"refused\n"

    def test_memory_that_grows_is_stopped_at_the_limit(self, run: Run):
        outcome = run("x = []\nwhile True: x.append(bytearray(1 << 20))", cpu_s=10, wall_s=31)
        assert outcome.ended is Ended.MEMORY
        assert outcome.memory_mb > 256

    def test_memory_is_the_sum_over_all_processes(self, run: Run):
        # 8 x 60 MiB; no process exceeds 256 alone
        source = "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(60 << 20)\ntime.sleep(20)"
        assert run(source, cpu_s=10, wall_s=15).ended is Ended.MEMORY

    def test_pages_shared_between_processes_count_once(self, run: Run):
        source = "import os, time\nx = bytearray(100 << 20)\nfor _ in range(3): os.fork()\ntime.sleep(0.5)"
        assert run(source, cpu_s=10, wall_s=31).ended is Ended.EXITED

    @pytest.mark.parametrize("descriptor", [1, 2])
    def test_endless_output_is_stopped_and_cut_at_the_cap(self, run: Run, descriptor: int):
        outcome = run(f"import os\nwhile True: os.write({descriptor}, b'x' * 65536)", output_bytes=100_000)
        assert outcome.ended is Ended.OUTPUT
        assert len(outcome.stdout if descriptor == 1 else outcome.stderr) == 100_000
        assert (outcome.stdout_cut if descriptor == 1 else outcome.stderr_cut) > 0

    def test_output_of_exactly_the_cap_is_whole(self, run: Run):
        outcome = run("print('x' * 99_999)", output_bytes=100_000)
        assert (outcome.ended, len(outcome.stdout)) == (Ended.EXITED, 100_000)

    def test_a_fork_bomb_is_contained(self, run: Run):
        source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        assert run(source, cpu_s=0.5, wall_s=10).ended in (Ended.CPU_TIME, Ended.PROCESSES)

    def test_a_program_cannot_exceed_its_process_limit(self, run: Run):
        source = (
            "import os, time\nn = 1\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n"
            "        if n > 10: time.sleep(0.2)\n"
            "except OSError:\n    print(n)"
        )
        outcome = run(source, processes=10)
        assert outcome.ended is Ended.PROCESSES or outcome.stdout == b"10\n"

    def test_a_file_cannot_outgrow_the_scratch_disk(self, run: Run):
        source = (
            "f = open('f', 'wb', 0)\ntry:\n    while True: f.write(b'x' * 65536)\nexcept OSError as e: print(e.errno)"
        )
        assert run(source).stdout in (b"27\n", b"28\n")  # EFBIG or ENOSPC

    @pytest.mark.parametrize(("num_files", "size"), [(100, 1 << 20), (100_000, 0)])
    def test_many_files_are_refused_or_end_the_test(self, run: Run, num_files: int, size: int):
        source = (
            "import time\ntry:\n"
            f"    for i in range({num_files}):\n"
            f"        with open(f'f{{i}}', 'wb') as f: f.write(b'x' * {size})\n"
            "    time.sleep(60)\n"
            "except OSError as e: print(e.errno)"
        )
        outcome = run(source, cpu_s=10, wall_s=31)
        assert outcome.ended is Ended.DISK or outcome.stdout == b"28\n"

    def test_a_program_that_fails_by_the_limit_of_open_files_is_ended_by_it(self, open_cell: OpenCell):
        source = (
            "import os, resource\ntry: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\nexcept ValueError: pass\n"
            "try:\n    while True: last = os.dup(0)\n"
            "except OSError:\n    if not os.read(0, 1): raise\n    os.write(1, b'%d' % last)"
        )
        with open_cell(source, open_files=20) as cell:
            failed, caught = cell.run(b""), cell.run(b"caught")
        assert (failed.ended, failed.exit_code is not None) == (Ended.OPEN_FILES, True)
        assert (caught.ended, caught.exit_code, caught.stdout) == (Ended.EXITED, 0, b"19")

    @pytest.mark.parametrize(("number", "name"), LIMIT_OF_ERRNO.items())
    def test_the_limit_behind_an_error_ended_the_test(self, run: Run, number: int, name: str):
        assert run(f"raise OSError({number}, '')").ended == name

    def test_an_unknown_limit_in_the_account_of_a_failed_test_is_a_fault(self, run: Run):
        with pytest.raises(SandboxFault, match="'no_such'"):
            run("import os, sys\nsys._getframe(1).f_locals['test'].report('no_such - 0')\nos._exit(1)")

    def test_a_limit_ends_one_test_and_the_next_runs(self, open_cell: OpenCell):
        source = "import sys\nif sys.stdin.read() == 'loop':\n    while True: pass\nprint('fine')"
        with open_cell(source, cpu_s=0.3) as cell:
            outcomes = [cell.run(stdin) for stdin in (b"", b"loop", b"")]
        assert [outcome.ended for outcome in outcomes] == [Ended.EXITED, Ended.CPU_TIME, Ended.EXITED]

    def test_input_larger_than_a_pipe_arrives_whole(self, run: Run):
        outcome = run("import sys; data = sys.stdin.read(); print(len(data), data[-3:])", b"x" * 3_000_000 + b"end")
        assert outcome.stdout == b"3000003 end\n"

    def test_output_larger_than_a_pipe_arrives_whole(self, run: Run):
        assert run("print('y' * 1_000_000)").stdout == b"y" * 1_000_000 + b"\n"

    def test_bytes_that_are_not_utf_8_arrive_unchanged(self, run: Run):
        source = "import os; data = os.read(0, 1000); os.write(1, data); os.write(2, data[::-1])"
        outcome = run(source, bytes(range(256)))
        assert (outcome.stdout, outcome.stderr) == (bytes(range(256)), bytes(range(256))[::-1])

    def test_standard_input_cannot_be_written(self, run: Run):
        assert run("import os\ntry: os.write(0, b'x')\nexcept OSError: print('read-only')").stdout == b"read-only\n"

    def test_a_program_that_closes_its_streams_still_ends(self, run: Run):
        outcome = run("import os; os.write(1, b'said'); os.close(0); os.close(1); os.close(2); os._exit(3)")
        assert (outcome.exit_code, outcome.stdout) == (3, b"said")

    def test_the_environment_has_only_the_variables_of_reproducible_runs(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
        names = run("import os; print(*sorted(os.environ))").stdout.decode().split()
        assert set(names) - {"TMPDIR"} == {"LANG", "PYTHONHASHSEED", "TZ"}

    def test_no_descriptor_is_inherited(self, run: Run):
        source = "import os\nfor i in range(1024):\n    try: os.fstat(i); print(i, end=' ')\n    except OSError: pass"
        assert run(source).stdout == b"0 1 2 "

    def test_hash_seed_and_random_state_are_the_same_in_every_test(self, open_cell: OpenCell):
        outputs: set[bytes] = set()
        profile = Profile("random", modules=("random",))
        for _ in range(2):
            with open_cell("import random; print(hash('a'), random.random())", profile=profile) as cell:
                outputs |= {cell.run(b"").stdout for _ in range(2)}
        assert len(outputs) == 1

    def test_the_preamble_of_the_profile_has_run_in_the_module_of_the_program(self, open_cell: OpenCell):
        profile = Profile("prepared", preamble="from math import gcd\nready = True")
        with open_cell("print(ready, gcd(12, 18))", profile=profile) as cell:
            assert cell.run(b"").stdout == b"True 6\n"

    def test_a_test_finds_nothing_of_the_test_before(self, open_cell: OpenCell):
        source = (
            "import os, sys\n"
            "print(os.listdir('.'))\n"
            "open('left', 'w').write(sys.stdin.read())\n"
            "if os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(60)\n"
        )
        with open_cell(source) as cell:
            outcomes = [cell.run(b"secret") for _ in range(3)]
        assert [outcome.stdout for outcome in outcomes] == [b"[]\n"] * 3
        with open_cell(source) as cell:  # nor does another program
            assert cell.run(b"").stdout == b"[]\n"

    def test_files_made_to_resist_removal_are_removed(self, open_cell: OpenCell):
        source = (
            "import os\n"
            "print(os.listdir('.'), flush=True)\n"
            "os.mkdir('shut'); open('shut/file', 'w').close(); os.mkdir('shut/inner')\n"
            "os.symlink('/', 'shut/link'); os.symlink('nowhere', 'link'); os.mkfifo('pipe')\n"
            "open('\\udcff\\n', 'w').close(); os.mkdir('0'); os.mkdir('0/0'); os.mkdir('0/1')\n"
            "try: os.chmod('shut', 0); os.chmod('.', 0o100)\n"
            "except PermissionError: pass\n"
            "os.umask(0o777); os.mkdir('closed') if os.access('.', os.W_OK) else None; os.umask(0)\n"
            "try:\n"
            "    for _ in range(1500): os.mkdir('d' * 99); os.chdir('d' * 99)\n"
            "except OSError: pass\n"
        )
        with open_cell(source, cpu_s=5, wall_s=20) as cell:
            outcomes = [cell.run(b"") for _ in range(2)]
        assert [outcome.stdout for outcome in outcomes] == [b"[]\n"] * 2

    def test_a_daemon_is_gone_and_cannot_print_after_the_end(self, open_cell: OpenCell):
        source = (
            "import os, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork() == 0:\n"
            "        while True: os.write(1, b'late'); time.sleep(0.01)\n"
            "    os._exit(0)\n"
            "os.wait()"
        )
        with open_cell(source) as cell:
            started = [cell.run(b"").wall_s for _ in range(3)]
        assert max(started) < 6  # the limit is 7

    def test_neither_frames_nor_heap_hold_the_input_of_another_test(self, open_cell: OpenCell):
        source = (
            "import gc, sys\n"
            "frame, found = sys._getframe(), []\n"
            "while frame: found.append(repr(frame.f_locals)); frame = frame.f_back\n"
            "gc.unfreeze() if hasattr(gc, 'unfreeze') else None\n"
            "found += [o for o in gc.get_objects() if type(o) in (str, bytes)]\n"
            "mark = 'first' + 'secret'\n"
            "print(any(mark in str(text) for text in found))\n"
        )
        with open_cell(source) as cell:
            cell.run(b"firstsecret")
            assert cell.run(b"").stdout == b"False\n"

    def test_the_path_of_autoclave_on_the_host_is_hidden(self, run: Run):
        source = (
            "import sys\nframe = sys._getframe()\n"
            "while frame: print(frame.f_code.co_filename, frame.f_locals); frame = frame.f_back\n"
            "print(sys.argv, sys.orig_argv, sys.path, list(sys.modules))"
        )
        assert b"autoclave" not in run(source).stdout

    def test_frames_go_both_ways_whole(self, open_cell: OpenCell):
        with open_cell("frames = 3", ECHO) as cell:
            session = cell.session()
            for frame in (b"", b"small", bytes(range(256)) * 3000):
                session.send(frame)
                assert session.receive() == frame
            assert session.receive() is None
            assert session.close().exit_code == 0

    def test_prints_do_not_disturb_frames(self, open_cell: OpenCell):
        with open_cell("print('x' * 9, flush=True); frames = 1", ECHO) as cell:
            outcome, answer = cell.exchange(b"frame")
            assert (outcome.stdout, answer) == (b"xxxxxxxxx\n", b"frame")

    @pytest.mark.parametrize("source", ["import os; os._exit(3)", "import os; os.close(3); frames = 0", "frames = 0"])
    def test_a_program_that_ends_or_closes_the_channel_gives_no_frame(self, open_cell: OpenCell, source: str):
        with open_cell(source, ECHO) as cell:
            session = cell.session()
            session.send(b"x" * 500_000)
            assert session.receive() is None
            session.close()

    def test_a_program_that_does_not_answer_hits_its_limits(self, open_cell: OpenCell):
        with open_cell("while True: pass", ECHO, cpu_s=0.3) as cell:
            session = cell.session()
            session.send(b"?")
            assert session.receive() is None
            assert session.close().ended is Ended.CPU_TIME

    @pytest.mark.parametrize("length", ["b'\\xff\\xff\\xff\\xff'", "b'\\0\\0\\0\\x05abc'", "b'\\0'"])
    def test_a_frame_shorter_than_its_length_is_not_received(self, open_cell: OpenCell, length: str):
        with open_cell(f"import os; os.write(3, {length}); os._exit(0)", ECHO) as cell:
            outcome, answer = cell.exchange(None)
            assert (outcome.exit_code, answer) == (0, None)

    def test_a_flood_of_frames_is_stopped_at_the_cap(self, open_cell: OpenCell):
        source = "import os\nwhile True: os.write(3, b'\\xff' * 65536)"
        with open_cell(source, ECHO) as cell:
            session = cell.session()
            assert session.receive() is None
            assert session.close().ended is Ended.OUTPUT

    def test_a_frame_that_is_sent_just_before_the_end_arrives_whole(self, open_cell: OpenCell):
        size = 150_000  # fits into the kernel's buffer, so the program can end while all of it is in flight
        source = f"import os\nos.write(3, ({size}).to_bytes(4, 'big') + bytes({size}))\nframes = 0"
        with open_cell(source, ECHO) as cell:
            assert all(len(cell.exchange(None)[1] or b"") == size for _ in range(40))

    def test_a_session_that_is_closed_early_ends_the_test_and_the_next_runs(self, open_cell: OpenCell):
        with open_cell("import time; time.sleep(60); frames = 0", ECHO, wall_s=0.5) as cell:
            assert [cell.session().close().ended for _ in range(2)] == [Ended.WALL_TIME] * 2

    def test_cells_of_several_threads_do_not_mix(self, open_cell: OpenCell):
        found: dict[int, list[bytes]] = {}

        def judge(number: int) -> None:
            with open_cell(f"print({number}, input())") as cell:
                found[number] = [cell.run(b"%d" % test).stdout for test in range(3)]

        threads = [threading.Thread(target=judge, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert found == {number: [b"%d %d\n" % (number, test) for test in range(3)] for number in range(3)}

    def test_an_exception_of_the_caller_leaves_the_sandbox_usable(self, open_cell: OpenCell, run: Run):
        with pytest.raises(ZeroDivisionError), open_cell("pass"):
            raise ZeroDivisionError
        assert run("print('fine')").stdout == b"fine\n"
