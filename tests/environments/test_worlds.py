"""Worlds: whatever an episode changes, a reset undoes, also one that was killed; forks do not touch their world."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoclave.core import HostError, InputError, UsageError
from autoclave.environments.world_state import changes_between, resources_of
from autoclave.environments.worlds import World
from autoclave.runtime.files import steps
from autoclave.runtime.journal import Journal
from autoclave.runtime.policy.grants import Grant
from benchmarks.world_changes import ALL, build, manifest_of, random_changes
from tests.runtime.deaths import dies_within

COMMAND = "rm folder-0/file-1.txt; mkdir new; echo x > new/a; chmod 600 folder-0/file-2.txt"
CHANGES = [
    {"do": "run", "command": ["sh", "-c", COMMAND]},
    {"do": "move", "path": "folder-0/file-3.txt", "to": "new/b"},
    {"do": "sql", "database": "shop", "statements": ["UPDATE orders SET cents = 0 WHERE id < 20", "DELETE FROM notes"]},
]


def small(tree: Path) -> None:
    build(tree, 8, 40)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "place", small, check_every=3) as made:
        yield made


def change(world: World) -> None:
    world.begin([ALL])
    for each in CHANGES:
        done = world.session.attempt(each)
        assert not done.is_error, done


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(each, marks=pytest.mark.soak) for each in range(2, 60))])
def test_a_reset_undoes_random_changes(world: World, seed: int):
    drawn, prepared = random.Random(seed), manifest_of(world.tree)
    for _ in range(4):
        world.begin([ALL])
        for each in random_changes(world.tree, drawn):
            world.session.attempt(each)
        world.reset()
        assert manifest_of(world.tree) == prepared


def test_a_database_is_the_same_in_its_dump(world: World):
    def dump() -> list[str]:
        with closing(sqlite3.connect(world.tree / "shop.db")) as database:
            return list(database.iterdump())

    before = dump()
    change(world)
    assert dump() != before
    world.reset()
    assert dump() == before


def test_a_killed_reset_is_completed_by_the_next_process(tmp_path: Path):
    place = tmp_path / "place"
    with World(place, small) as world:
        prepared = manifest_of(world.tree)

    def work(dying: Callable[..., Any]) -> None:
        with World(place, small) as opened:
            change(opened)
            for name in ("_add", "seal"):
                setattr(Journal, name, dying(getattr(Journal, name)))
            libc: Any = steps._libc
            steps._libc = SimpleNamespace(renameat2=dying(libc.renameat2), syncfs=libc.syncfs)
            opened.reset()

    deadly, num_differing = 1, 0
    while dies_within(deadly, work):
        num_differing += manifest_of(place / "world") != prepared
        with World(place, small) as opened:
            assert manifest_of(opened.tree) == prepared
            opened.begin([])
        deadly += 11
    assert deadly > 8
    assert num_differing


def test_a_world_that_was_half_made_is_made_again(tmp_path: Path):
    def fails(tree: Path) -> None:
        small(tree)
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        World(tmp_path / "place", fails)
    with World(tmp_path / "place", small) as world:
        assert (world.tree / "files" / "folder-0" / "file-7.txt").exists()


def test_a_difference_stops(world: World):
    change(world)
    world.reset()  # the second one, and each third one compares
    (world.tree / "files" / "folder-0" / "file-7.txt").write_text("by another")
    change(world)
    for _ in range(2):  # it does not become usable by asking again
        with pytest.raises(HostError, match="differs from its preparation after a reset"):
            world.reset()


def test_no_transaction_outlives_an_action(world: World):
    world.begin([ALL])
    open_ = {"do": "sql", "database": "shop", "mode": "transaction", "statements": ["DELETE FROM orders"]}
    assert world.session.attempt(open_).is_error


def test_a_grant_is_not_used_up_by_earlier_episodes(world: World):
    grant = Grant(resources=("files/a",), verbs=("create",), max_uses=1)
    for _ in range(2):
        world.begin([grant])
        assert not world.session.attempt({"do": "write", "path": "a", "content": ""}).is_error
        world.reset()


def test_what_another_changed_of_a_change_stops(world: World):
    change(world)
    (world.tree / "files" / "new" / "a").write_text("by another")
    with pytest.raises(InputError, match="somebody else has changed"):
        world.reset()
    with pytest.raises(UsageError, match="in use by an episode"):
        world.begin([])


def test_snapshots_of_an_episode(world: World):
    change(world)
    found = manifest_of(world.tree)
    middle = world.snapshot()
    for text in ("one", "two"):
        assert not world.session.attempt({"do": "write", "path": "new/a", "content": text}).is_error
        world.restore(middle)
        assert manifest_of(world.tree) == found


def test_without_grants_nothing_is_permitted(world: World):
    write = {"do": "write", "path": "a", "content": ""}
    assert world.session.attempt(write).is_error
    world.begin([Grant(resources=("files/a",), verbs=("create",))])
    assert not world.session.attempt(write).is_error
    assert world.session.attempt({"do": "write", "path": "b", "content": ""}).is_error
    world.reset()
    assert world.session.attempt(write).is_error


def test_forks_do_not_see_each_other(world: World):
    prepared = manifest_of(world.tree)
    one_row = "import sqlite3; d = sqlite3.connect('shop.db'); d.execute('DELETE FROM orders WHERE id > 0'); d.commit()"
    count = "import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT count(*) FROM orders').fetchone()[0])"
    with world.fork() as one, world.fork() as two:
        assert one.run(["python3", "-c", one_row]).exit_code == 0
        assert [each.run(["python3", "-c", count]).stdout for each in (one, two)] == [b"1\n", b"40\n"]
        snapshot = one.snapshot()
        one.run(["sh", "-c", "rm -r files; echo > more"])
        assert one.run(["ls"]).stdout == b"more\nshop.db\n"
        one.restore(snapshot)
        assert one.run(["sh", "-c", "ls; ls files"]).stdout == b"files\nshop.db\nfolder-0\nlink\n"
        assert one.run(["python3", "-c", count]).stdout == b"1\n"
        one.reset()
        assert one.run(["python3", "-c", count]).stdout == b"40\n"
        with pytest.raises(UsageError, match="in use by an episode or a fork"):
            world.begin([])
    assert manifest_of(world.tree) == prepared
    assert list((world.place / "forks").iterdir()) == []
    world.begin([])
    with pytest.raises(UsageError, match="cannot be forked"), world.fork():
        pass


def test_values_that_python_takes_for_equal_are_changes():
    before = {"databases/d/main/t/1": [1, 5, 1], "databases/d/main/t/2": [2, "ab"]}
    after = {"databases/d/main/t/1": [1, 5.0, 1], "databases/d/main/t/2": [2, b"\xab"]}
    found = changes_between(before, after)
    assert [repr(found[name][1]) for name in before] == ["[1, 5.0, 1]", "[2, {'hex': 'ab'}]"]


def test_changes_are_named_as_in_grants(world: World):
    before = resources_of(world.tree)
    change(world)
    found = changes_between(before, resources_of(world.tree))
    assert found["files/folder-0/file-1.txt"] == ["delete", None]
    assert found["files/new"][0] == "create"
    assert found["files/folder-0/file-2.txt"][0] == "modify"
    assert found["databases/shop/main/orders/3"] == ["modify", [3, "client 3", 0, "open"]]
    assert found["databases/shop/main/notes/row 0"] == ["delete", None]
    assert "files/folder-0" not in found  # but for its time
    world.reset()
    assert changes_between(before, resources_of(world.tree)) == {}
