"""The judge's end of a test's streams, in C and in Python: both do the same."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import HostError, SandboxFault
from autoclave.sandbox import streams


@pytest.fixture(params=["compiled", "python"], autouse=True)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(streams, "_compiled", None)
    elif not streams.is_compiled():
        pytest.skip("the compiled part was not built")
    return request.param


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The judge's end of the connection to a first process, not blocking, and the other."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_a_test_is_handed_its_input_and_fresh_streams(ends: tuple[socket.socket, socket.socket], size: int):
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    out, err = streams.start_test(ends[0], content)
    order, theirs, _, _ = socket.recv_fds(ends[1], 1, 4)
    assert (order, len(theirs)) == (b"T", 3)
    with open(theirs[0], "rb") as stdin:
        assert stdin.seekable()
        assert stdin.read() == content
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(stdin.fileno(), b"x")
    os.write(theirs[1], b"out")
    os.write(theirs[2], b"err")
    for descriptor in theirs[1:]:
        assert os.get_blocking(descriptor)
        os.close(descriptor)
    assert streams.drain(out, 100) == (b"out", 0)
    assert streams.drain(err, 100) == (b"err", 0)
    os.close(out)
    os.close(err)


def test_the_channel_goes_along(ends: tuple[socket.socket, socket.socket]):
    channel, far = socket.socketpair()
    with channel, far:
        opened = streams.start_test(ends[0], b"", far.fileno())
        theirs = socket.recv_fds(ends[1], 1, 4)[1]
        os.write(theirs[3], b"frame")
        assert channel.recv(10) == b"frame"
        far.send(b"still open")
    for descriptor in (*opened, *theirs):
        os.close(descriptor)


def test_a_cell_that_is_gone_is_a_fault_and_leaves_nothing_open(ends: tuple[socket.socket, socket.socket]):
    ends[1].close()
    before = open_descriptors()
    with pytest.raises(SandboxFault, match="the cell does not take a test"):
        streams.start_test(ends[0], b"input")
    with pytest.raises(SandboxFault, match="the cell does not take a test"):
        streams.run_tests(ends[0], [(b"input", b"")], 10, 100, 1, -1)
    assert open_descriptors() == before


def test_an_order_waits_for_nobody(ends: tuple[socket.socket, socket.socket]):
    with contextlib.suppress(BlockingIOError):
        while True:
            ends[0].send(bytes(1 << 16))
    before = open_descriptors()
    with pytest.raises(SandboxFault):
        streams.start_test(ends[0], b"input")
    assert open_descriptors() == before


def answer(end: socket.socket, reports: list[bytes], printed: list[bytes], before_each: Callable[[], object]) -> None:
    """Answer orders as a cell does: the outputs are closed before the report."""
    for report, content in zip(reports, printed, strict=True):
        _, theirs, _, _ = socket.recv_fds(end, 1, 4)
        os.write(theirs[1], content)
        for descriptor in theirs:
            os.close(descriptor)
        before_each()
        end.send(report)


@pytest.fixture
def run_tests(ends: tuple[socket.socket, socket.socket]) -> Callable[..., list[tuple[bytes, Any, Any]]]:
    """run_tests(reports, printed): the runs of TESTS, in a cell that answers so."""

    def run(
        reports: list[bytes], printed: list[bytes], kills: int = -1, before_each: Callable[[], object] = int
    ) -> list[tuple[bytes, Any, Any]]:
        with ThreadPoolExecutor() as threads:
            answered = threads.submit(answer, ends[1], reports, printed, before_each)
            runs = streams.run_tests(ends[0], TESTS, 10, 100, 5000, kills)
            answered.result()
        return runs

    return run


COMPILED = pytest.mark.parametrize("variant", ["compiled"], indirect=True)
"""Python starts one test at a time."""
GOOD, BAD = bytes(10), b"\1" + bytes(9)
TESTS = [(b"1", b"one\n"), (b"2", b"two"), (b"3", b"three")]


@COMPILED
@pytest.mark.parametrize(
    ("reports", "printed"),
    [
        ([GOOD, GOOD, GOOD], [b"one", b"two \n", b"three\n"]),  # blanks at the end are for a checker to judge
        ([GOOD, GOOD], [b"one\n", b"2"]),
        ([GOOD, BAD], [b"one\n", b"two"]),
        ([GOOD], [b""]),
        ([GOOD], [b"one\n" * 30]),
    ],
)
def test_tests_follow_until_one_is_not_as_expected(run_tests, reports: list[bytes], printed: list[bytes]):
    runs = run_tests(reports, printed)
    assert [report for report, _, _ in runs] == reports
    assert [out for _, out, _ in runs] == [(content[:100], max(0, len(content) - 100)) for content in printed]


@COMPILED
def test_none_follows_a_kill_or_where_kills_are_unknown(run_tests, tmp_path: Path):
    file = tmp_path / "events"
    file.write_text("oom_kill 1\n")
    with open(file, "rb") as kills:
        assert len(run_tests([GOOD] * 3, [b"one", b"two", b"three"], kills.fileno())) == 3
        counts = iter(("oom_kill 1\n", "oom_kill 2\n"))
        runs = run_tests([GOOD] * 2, [b"one", b"two"], kills.fileno(), lambda: file.write_text(next(counts)))
        assert len(runs) == 2
    assert len(run_tests([GOOD], [b"one"], -2)) == 1


def test_a_compiled_part_from_before_this_function_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch, ends):
    monkeypatch.setattr(streams, "_compiled", SimpleNamespace(__file__="_streams.abi3.so"))
    with pytest.raises(HostError, match=r"_streams\.abi3\.so: is older than its source _streams\.c\. Fix: make setup"):
        streams.run_tests(ends[0], TESTS, 10, 100, 1, -1)


@pytest.mark.parametrize("sent", [b"", b"abc"])
def test_a_test_that_takes_longer_is_handed_over_as_it_runs(ends: tuple[socket.socket, socket.socket], sent: bytes):
    ends[1].send(sent)
    ((report, out, err),) = streams.run_tests(ends[0], TESTS, 10, 100, 1, -1)
    assert (report or ends[0].recv(10) if sent else report) == sent  # Python reads nothing yet
    _, theirs, _, _ = socket.recv_fds(ends[1], 1, 4)
    os.write(theirs[1], b"out")
    assert os.read(out, 10) == b"out"
    for descriptor in (*theirs, out, err):
        os.close(descriptor)


@given(printed=st.binary(max_size=3000), limit=st.integers(0, 3000), is_closed=st.booleans())
def test_what_is_kept_and_what_is_cut_add_up(printed: bytes, limit: int, is_closed: bool):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, printed)
    if is_closed:
        os.close(writer)
    content, num_cut = streams.drain(reader, limit)
    assert content == printed[:limit]
    assert num_cut == len(printed) - len(content)
    os.close(reader)
    if not is_closed:
        os.close(writer)


def test_a_flood_is_read_no_further_than_the_limit():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    os.write(writer, bytes(1 << 16))
    content, num_cut = streams.drain(reader, 1000)
    assert (len(content), num_cut) == (1000, (1 << 16) - 1000)
    os.write(writer, bytes(1 << 16))
    assert streams.drain(reader, 0) == (b"", 1 << 16)
    os.close(reader)
    os.close(writer)
