"""Random tool uses: changes of a tree by plain calls, of every kind that a tool can make."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

NAMES = ("new", "line\nbreak", "odd \udcff", "-rf", "ü", "a b", ".hidden")


def entries(root: Path) -> list[Path]:
    return sorted(Path(folder) / name for folder, folders, files in os.walk(root) for name in (*folders, *files))


def files(root: Path) -> list[Path]:
    return [path for path in entries(root) if path.is_file() and not path.is_symlink()]


def folders(root: Path) -> list[Path]:
    return [root, *(path for path in entries(root) if path.is_dir() and not path.is_symlink())]


def use_tool(draw: random.Random, root: Path) -> None:
    """Do one to four random changes; some fail, as those of tools do."""
    for _ in range(draw.randint(1, 4)):
        with contextlib.suppress(OSError, IndexError, shutil.Error):
            draw.choice(KINDS)(draw, root)


def fresh(draw: random.Random, root: Path) -> Path:
    return draw.choice(folders(root)) / f"{draw.choice(NAMES)}{draw.randrange(50)}"


def write_new(draw: random.Random, root: Path) -> None:
    fresh(draw, root).write_bytes(draw.randbytes(draw.randrange(5000)))


def write_in_place(draw: random.Random, root: Path) -> None:
    with draw.choice(files(root)).open("r+b") as file:
        file.seek(draw.randrange(20))
        file.write(draw.randbytes(draw.randrange(1, 30)))


def write_same_size(draw: random.Random, root: Path) -> None:
    """Change content, and put back size and times."""
    path = draw.choice([each for each in files(root) if each.stat().st_size])
    about = path.stat()
    with path.open("r+b") as file:
        file.write(bytes([draw.randrange(256)]))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def write_mapped(draw: random.Random, root: Path) -> None:
    path = draw.choice([each for each in files(root) if each.stat().st_size])
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[draw.randrange(len(mapped))] = draw.randrange(256)


def truncate(draw: random.Random, root: Path) -> None:
    os.truncate(draw.choice(files(root)), draw.randrange(100_000))


def replace(draw: random.Random, root: Path) -> None:
    path = draw.choice(files(root))
    new = path.with_name("temporary")
    new.write_bytes(draw.randbytes(50))
    new.replace(path)


def rename(draw: random.Random, root: Path) -> None:
    draw.choice(entries(root)).rename(fresh(draw, root))


def rename_over(draw: random.Random, root: Path) -> None:
    draw.choice(entries(root)).replace(draw.choice(entries(root)))


def remove(draw: random.Random, root: Path) -> None:
    draw.choice([each for each in entries(root) if not each.is_dir() or each.is_symlink()]).unlink()


def remove_folder(draw: random.Random, root: Path) -> None:
    shutil.rmtree(draw.choice(folders(root)[1:]))


def make_folders(draw: random.Random, root: Path) -> None:
    place = fresh(draw, root) / "in" / "it"
    place.mkdir(parents=True)
    (place / "file").write_text("new")


def copy_folder(draw: random.Random, root: Path) -> None:
    shutil.copytree(draw.choice(folders(root)[1:]), root / f"copy{draw.randrange(50)}", symlinks=True)


def change_mode(draw: random.Random, root: Path) -> None:
    draw.choice([each for each in entries(root) if not each.is_symlink()]).chmod(
        draw.choice([0o600, 0o755, 0o4711, 0o700])
    )


def touch(draw: random.Random, root: Path) -> None:
    os.utime(draw.choice(entries(root)), ns=(1, draw.randrange(10**18)), follow_symlinks=False)


def make_symlink(draw: random.Random, root: Path) -> None:
    fresh(draw, root).symlink_to(draw.choice(["nowhere", "..", "a.txt"]))


def make_hard_link(draw: random.Random, root: Path) -> None:
    os.link(draw.choice(files(root)), fresh(draw, root))


def make_fifo(draw: random.Random, root: Path) -> None:
    os.mkfifo(fresh(draw, root))


def set_attribute(draw: random.Random, root: Path) -> None:
    os.setxattr(draw.choice(files(root) + folders(root)[1:]), "user.note", draw.randbytes(4))


def file_to_folder(draw: random.Random, root: Path) -> None:
    path = draw.choice(files(root))
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def nothing(draw: random.Random, root: Path) -> None:
    """Leave everything as it was, after a change."""
    path = fresh(draw, root)
    path.write_text("temporary")
    path.unlink()


KINDS: tuple[Callable[[random.Random, Path], None], ...] = (
    *(write_new, write_in_place, write_same_size, write_mapped, truncate, replace, rename, rename_over, remove),
    *(remove_folder, make_folders, copy_folder, change_mode, touch, make_symlink, make_hard_link, make_fifo),
    *(set_attribute, file_to_folder, nothing),
)
