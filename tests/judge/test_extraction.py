"""Where the program stands in a response."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.extraction import EXTRACTION_RULES, program_place

last_fence, lcb, whole = (EXTRACTION_RULES[name] for name in ("last_fence", "lcb", "whole"))


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("text\n```python\nprint(1)\n```\nmore", "print(1)"),
        ("```py\na\n```\n```python\nb\n```", "b"),
        ("```python\na\n```\n```\noutput\n```", "a"),
        ("```\na\n```\n```text\nb\n```", "b"),
        ("```python\na\n```\n```python\nunfinished", "a"),
        ("  ```Python3\r\na\r\n  ```", "a\r"),
        ("````python\n```\ninner\n```\n````", "```\ninner\n```"),
        ("```python\n```", ""),
        ("1. So:\n   ```python\n   def f():\n       return 1\n\n  # less\n   ```", "def f():\n    return 1\n\n# less"),
        ("\t```\n\tif a:\n\t\tb\n\t```", "if a:\n\tb"),
        ("no program", None),
        ("```python\nunfinished", None),
        ("inline ```code``` only", None),
        ("", None),
    ],
)
def test_last_fence_takes_the_last_closed_block_python_first(response: str, program: str | None):
    assert last_fence(response) == program


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na\n```", "a"),
        ("```\na\n```\nb\n```", "b"),
        ("x ``` y\na\nz ```", "a"),
        ("```python\na", None),
        ("", None),
    ],
)
def test_lcb_takes_what_is_between_the_last_two_marks(response: str, program: str | None):
    assert lcb(response) == program


@given(st.text())
def test_whole_takes_everything(text: str):
    assert whole(text) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="`\r")), st.text(st.characters(exclude_characters="`")))
def test_a_fenced_program_is_found_as_it_was_written(program: str, around: str):
    response = f"{around}\n```python\n{program}\n```\n{around}"
    assert last_fence(response) == program
    assert lcb(response) == program


@given(st.lists(st.sampled_from(["```", "```python", "````", " ```", "a = 1", "", "\r", "x ``` y"]), max_size=12))
def test_the_place_of_a_program_holds_it(lines: list[str]):
    response = "\n".join(lines)
    for name, rule in EXTRACTION_RULES.items():
        place, program = program_place(response, name), rule(response)
        if program is None or place is None:
            assert program is place
        else:  # but for the indentation of a fence
            found = response[slice(*place)]
            assert [line.lstrip(" ") for line in program.split("\n")] == [
                line.lstrip(" ") for line in found.split("\n")
            ]


def test_of_two_equal_programs_the_place_is_that_of_the_one_that_is_taken():
    response = "```python\na\n```\n```python\na\n```\n```\na\n```"
    assert program_place(response, "last_fence") == (26, 27)
    assert program_place(response, "lcb") == (36, 37)


@pytest.mark.timeout(20)  # quadratic time would take minutes
def test_a_long_run_of_blanks_behind_a_fence_costs_no_time():
    assert EXTRACTION_RULES["last_fence"]("```" + " " * 200_000 + "`") is None
