"""The judge's end of a test's streams, in C and in Python: both do the same."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import SandboxFault
from autoclave.sandbox import streams


@pytest.fixture(params=["compiled", "python"], autouse=True)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(streams, "_compiled", None)
    elif not streams.is_compiled():
        pytest.skip("the compiled part was not built")


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
    assert open_descriptors() == before


def test_an_order_waits_for_nobody(ends: tuple[socket.socket, socket.socket]):
    with contextlib.suppress(BlockingIOError):
        while True:
            ends[0].send(bytes(1 << 16))
    before = open_descriptors()
    with pytest.raises(SandboxFault):
        streams.start_test(ends[0], b"input")
    assert open_descriptors() == before


def test_a_report_comes_whole_or_in_part_or_not_at_all(ends: tuple[socket.socket, socket.socket]):
    assert streams.await_report(ends[0], 10, 1) == b""
    ends[1].send(b"abc")
    assert streams.await_report(ends[0], 10, 1000) == b"abc"
    ends[1].send(b"0123456789more")
    assert streams.await_report(ends[0], 10, 1000) == b"0123456789"
    ends[1].close()
    assert streams.await_report(ends[0], 10, 1000) == b"more"
    assert streams.await_report(ends[0], 10, 1000) == b""


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
