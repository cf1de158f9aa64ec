"""Frames of bytes between the judge and a running test."""

from __future__ import annotations

from autoclave.core import Ended
from autoclave.sandbox import Runner

ECHO = Runner(
    "echo",
    "import os\n"
    "def read(size):\n"
    "    data = b''\n"
    "    while len(data) < size:\n"
    "        part = os.read(3, size - len(data))\n"
    "        if not part: os._exit(0)\n"
    "        data += part\n"
    "    return data\n"
    "def run(test):\n"
    "    exec(test.program, test.main.__dict__)\n"
    "    for _ in range(test.main.frames):\n"
    "        frame = read(int.from_bytes(read(4), 'big'))\n"
    "        answer = memoryview(len(frame).to_bytes(4, 'big') + frame)\n"
    "        while answer: answer = answer[os.write(3, answer):]\n"
    "    os._exit(0)\n",
)


def test_frames_go_both_ways_whole(open_cell):
    with open_cell("frames = 3", ECHO) as cell:
        session = cell.session()
        for frame in (b"", b"small", bytes(range(256)) * 3000):
            session.send(frame)
            assert session.receive() == frame
        assert session.receive() is None
        assert session.close().exit_code == 0


def test_prints_do_not_disturb_frames(open_cell):
    with open_cell("print('x' * 9, flush=True); frames = 1", ECHO) as cell:
        session = cell.session()
        session.send(b"frame")
        assert session.receive() == b"frame"
        assert session.close().stdout == b"xxxxxxxxx\n"


def test_a_program_that_ends_or_closes_the_channel_gives_no_frame(open_cell):
    for source in ("import os; os._exit(3)", "import os; os.close(3); frames = 0", "frames = 0"):
        with open_cell(source, ECHO) as cell:
            session = cell.session()
            session.send(b"x" * 500_000)
            assert session.receive() is None
            session.close()


def test_a_program_that_does_not_answer_hits_its_limits(open_cell):
    with open_cell("while True: pass", ECHO, cpu_s=0.3) as cell:
        session = cell.session()
        session.send(b"?")
        assert session.receive() is None
        assert session.close().ended is Ended.CPU_TIME


def test_a_flood_of_frames_is_stopped_at_the_cap(open_cell):
    source = "import os\nwhile True: os.write(3, b'\\xff' * 65536)"
    with open_cell(source, ECHO) as cell:
        session = cell.session()
        assert session.receive() is None
        assert session.close().ended is Ended.OUTPUT
