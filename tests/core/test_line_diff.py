"""A difference turns the old text into the new one, and takes a bounded time whatever the texts are."""

from __future__ import annotations

import difflib
import random
import time

import pytest

from autoclave.core.line_diff import Work, lines_of, unified

MANY = 20_000


def patched(old: list[str], patch: list[str]) -> list[str]:
    found, place = list[str](), 0
    for line in patch[2:]:
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            until = int(first) - (count != "0")
            found, place = found + old[place:until], until
            continue
        if line[0] != "+":
            assert old[place] == line[1:]
            place += 1
        if line[0] != "-":
            found.append(line[1:])
    return found + old[place:]


@pytest.mark.parametrize("steps", [0, 100, 600_000])
def test_the_old_lines_with_the_patch_are_the_new_ones_however_little_work_is_left(steps: int):
    draw = random.Random(steps)
    for _ in range(500):
        names = [f"{number}" for number in range(draw.randint(1, 8))]
        old = draw.choices(names, k=draw.randrange(40))
        new = [draw.choice(names) if draw.random() < 0.1 else each for each in old if draw.random() < 0.9]
        assert patched(old, list(unified(old, new, "a", "b", Work(steps)))) == new


def test_a_patch_is_as_that_of_difflib():
    old = [f"line {number}" for number in range(100)]
    new = [*old[:9], "new", *old[12:50], "new", "new", *old[50:99]]
    assert list(unified(old, new, "a", "b", Work())) == list(difflib.unified_diff(old, new, "a", "b", lineterm=""))
    assert list(unified(old, old, "a", "b", Work())) == []


def test_a_change_within_a_long_text_is_found_without_any_work():
    old = [f"{number % 7}" for number in range(MANY)]
    patch = list(unified(old, [*old[:9], "new", *old[9:]], "a", "b", Work(0)))
    assert (patch[2], len(patch)) == ("@@ -7,6 +7,7 @@", 10)


def test_only_a_line_feed_ends_a_line_and_a_last_line_without_it_is_marked():
    assert lines_of("a\rb\u2028c\n\nd") == ["a\rb\u2028c", "", "d\n\\ no line break at the end"]
    assert lines_of("a\n") == ["a"]
    assert lines_of("") == []


def interleaved(side: str, count: int) -> list[str]:
    return [each for number in range(count // 2) for each in (f"same {number % 50}", f"{side} {number}")]


UNIQUE = [f"line {number}" for number in range(MANY)]
TEXTS = {
    "interleaved 3000": (interleaved("old", 3000), interleaved("new", 3000)),
    "interleaved 8000": (interleaved("old", 8000), interleaved("new", 8000)),
    "shuffled": (UNIQUE, random.Random(1).sample(UNIQUE, MANY)),
    "every second line": (UNIQUE, [each if number % 2 else "new" for number, each in enumerate(UNIQUE)]),
    "some of few lines": (random.Random(1).choices("abc", k=199), random.Random(2).choices("abc", k=199)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_time_of_a_difference_is_bounded(name: str):
    old, new = TEXTS[name]
    began = time.thread_time()
    patch = list(unified(old, new, "a", "b", Work()))
    assert time.thread_time() - began < 0.5  # some 0.1
    assert patched(old, patch) == new
