"""A file is whole or as it was, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from autoclave.core import HostError, InputError
from autoclave.core.files import atomic_folder, atomic_writer, write_atomically

# Kills a fresh process at the n-th executed line of the writer, for n = 1, 2, 3 ... until one ends by itself.
KILLED_AT_EVERY_LINE = """
import os, signal, sys
from pathlib import Path
from autoclave.core import files

path, old, new = Path(sys.argv[1]), b"old" * 100_000, b"new" * 100_000

def write():
    with files.atomic_writer(path, text=False) as file:
        for start in range(0, len(new), 100_000):
            file.write(new[start : start + 100_000])

def killed_at(last):
    steps = 0
    def trace(frame, event, argument):
        nonlocal steps
        if frame.f_code.co_filename not in (files.__file__, write.__code__.co_filename):
            return None
        steps += event == "line"
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    write()
    sys.settrace(None)

for last in range(1, 1000):
    path.write_bytes(old)
    child = os.fork()
    if not child:
        killed_at(last)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    content = path.read_bytes()
    print({old: "old", new: "new"}.get(content, "torn"))
    if ended == 0:
        print("finished")
        break
"""

TOO_LARGE = """
import sys
from pathlib import Path
from autoclave.core.files import write_atomically
write_atomically(Path(sys.argv[1]), "x" * 10_000_000)
"""


def run(code: str, path: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120, check=False, **options
    )


def test_a_writer_killed_at_any_line_leaves_the_old_content_or_the_new(tmp_path: Path):
    *states, end = run(KILLED_AT_EVERY_LINE, tmp_path / "file").stdout.split()
    assert end == "finished"
    assert len(states) > 15
    turn = states.index("new")
    assert states == ["old"] * turn + ["new"] * (len(states) - turn)


@pytest.mark.parametrize("content", ["text é\n", b"bytes \xff\n", "", b""])
def test_content_is_written_as_it_is(tmp_path: Path, content: str | bytes):
    write_atomically(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == (content.encode() if isinstance(content, str) else content)


def test_folders_on_the_way_are_made(tmp_path: Path):
    write_atomically(tmp_path / "a" / "b" / "file", "x")
    assert (tmp_path / "a" / "b" / "file").read_text() == "x"


def test_an_exception_in_the_block_leaves_the_old_content_and_nothing_else(tmp_path: Path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(TypeError), atomic_writer(path) as file:
        file.writelines(["new", 5])  # the second cannot be written
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_readers_see_the_old_content_until_the_end(tmp_path: Path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    with atomic_writer(path) as file:
        file.write("new" * 100_000)
        file.flush()
        seen = path.read_text()
    assert seen == "old"
    assert path.read_text() == "new" * 100_000


def test_text_that_has_no_utf_8_form_leaves_nothing(tmp_path: Path):
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "file", "\ud800")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_content_and_says_so(tmp_path: Path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    limit = (1_000_000, 1_000_000)
    ended = run(TOO_LARGE, path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert f"{HostError.__name__}: {path}: cannot be written (File too large); the old content stays" in ended.stderr
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_file_has_the_mode_that_the_users_mask_gives(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"


def test_a_long_name_is_no_obstacle(tmp_path: Path):
    write_atomically(tmp_path / ("é" * 127), "x")  # 254 bytes of at most 255
    assert os.listdir(tmp_path) == ["é" * 127]


def test_a_folder_is_not_replaced(tmp_path: Path):
    with pytest.raises(InputError, match="is a folder; give the name of a file"):
        write_atomically(tmp_path, "x")


def test_a_pipe_or_device_is_not_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        write_atomically(tmp_path / "pipe", "x")
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_name_below_a_file_is_bad_input(tmp_path: Path):
    write_atomically(tmp_path / "file", "x")
    with pytest.raises(InputError, match=r"cannot be written \(Not a directory\)|cannot be written \(File exists\)"):
        write_atomically(tmp_path / "file" / "inner", "x")


WRITER = """
import sys
from pathlib import Path
from autoclave.core.files import atomic_writer
with atomic_writer(Path(sys.argv[1])) as file:
    print("writing", flush=True)
    sys.stdin.readline()
"""


def test_what_a_killed_writer_left_goes_with_the_next_write_and_what_a_living_one_writes_stays(tmp_path: Path):
    command = [sys.executable, "-c", WRITER]
    killed, living = (
        subprocess.Popen([*command, str(tmp_path / name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in ("killed", "living")
    )
    for writer in (killed, living):
        assert writer.stdout
        assert writer.stdout.readline() == b"writing\n"
    killed.kill()
    killed.communicate()
    (tmp_path / ".mine.partial").touch()  # not of this kind
    assert len(os.listdir(tmp_path)) == 3
    subprocess.run([*command, str(tmp_path / "third")], input=b"\n", capture_output=True, check=True)
    assert not list(tmp_path.glob(".killed.*"))
    assert len(list(tmp_path.glob(".living.*"))) == 1
    living.communicate(b"\n")
    assert sorted(os.listdir(tmp_path)) == [".mine.partial", "living", "third"]


# --- Folders -------------------------------------------------------------------------------------------------------


def test_a_folder_appears_when_it_is_filled_in_place_of_what_was_there(tmp_path: Path):
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "model") as folder:
            (folder / "inner").mkdir()
            (folder / "inner" / content).write_text(content)
            assert os.listdir(folder / "inner") == [content]
            assert (tmp_path / "model").exists() == (content == "new")
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(tmp_path / "model" / "inner") == ["new"]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(RuntimeError("no"), RuntimeError), (OSError(errno.ENOSPC, "No space left on device"), HostError)],
)
def test_a_folder_that_cannot_be_filled_leaves_the_old_one(tmp_path: Path, failure, raised):
    def fill(content: str, failure: Exception | None = None) -> None:
        with atomic_folder(tmp_path / "model") as folder:
            (folder / content).write_text(content)
            if failure:
                raise failure

    fill("old")
    (tmp_path / ".model.partial").mkdir()  # of a process that was killed
    with pytest.raises(raised):
        fill("new", failure)
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(tmp_path / "model") == ["old"]
