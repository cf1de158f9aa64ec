"""Places of variables, counted by hand, in any text."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.evaluation.probing.places import last_occurrences, shared_names, token_at
from tests.training_parts import tiny_policy


def line_and_column(program: str, name: str) -> tuple[int, int] | None:
    place = last_occurrences(program).get(name)
    if place is None:
        return None
    before = program[: place[0]]
    return before.count("\n") + 1, len(before) - before.rfind("\n") - 1


@pytest.mark.parametrize(
    ("program", "name", "expected"),
    [
        ("n = 1  # m\rm = n # m\r", "m", (1, 11)),  # a carriage return ends a line too
        ("n = 1\nm = n + 2\nprint(m)", "n", (2, 4)),
        ("n = 1\nnn = 2\nn2 = _n = an = 3", "n", (1, 0)),  # parts of other identifiers
        ("n = 1\nprint('n', \"n\", '''n\nn''', r'n\\'n', b\"n\")", "n", (1, 0)),
        ("n = 1\nprint('it''s', 'a\\'n')  # n\nm = 2", "n", (1, 0)),
        ("n = 1  # a ' and a \" in a comment\nm = n", "n", (2, 4)),
        ('n = 1\nm = """ \' " "" n """ ; k = n', "n", (2, 27)),
        ("n = 1\nx.n = 2\ny = x.n", "n", (1, 0)),  # attributes
        ("n = 1\nprint(f'n {n} n')", "n", (2, 11)),
        ("n = 1\nprint(f'{{n}} {m:n} {m!r:{n}} n')", "n", (2, 26)),
        ("n = 1\nprint(f'{m if m != n else 3} n')", "n", (2, 19)),
        ("n = 1\nprint(f\"{d['n']} {d[n:2]}\")", "n", (2, 20)),
        ("n = 1\nprint(rf'\\{n}')", "n", (2, 11)),
        ("n = 1\nprint('{n}')", "n", (1, 0)),  # no f-string
        ("n = 1\nx = 1 if n else'n'", "n", (2, 9)),
        ("f = 1\nprint(f'{f}', f)", "f", (2, 14)),
        ("größe = 1\nприм = größe\nx = 'größe'", "größe", (2, 7)),
        ("ﬁ = 1\nfi = 2", "fi", (2, 0)),  # one name for Python, which reads the ligature as two letters
        ("fi = 1\nﬁ = 2", "fi", (2, 0)),
        ("x = 'n×n'\nn = 1\ny = '×n'", "n", (2, 0)),
        ("m = 1", "n", None),
        ("m = 'n'", "n", None),
    ],
)
def test_the_last_occurrence_is_a_whole_word_outside_of_strings_and_comments(program, name, expected):
    ast.parse(program)  # the example is a program
    assert line_and_column(program, name) == expected


@pytest.mark.parametrize(
    "program",
    [
        "'",
        '"""n',
        "f'{",
        "f'{{{n",
        "f'{f\"{f'''{n",
        "n = (",
        "\\",
        "\x00n",
        "n\ud800",
        "f'{n!",
        "{" * 50_000,
        "f'" * 50_000,
    ],
)
def test_text_that_is_not_a_program_is_scanned(program: str):
    assert all(program[start:stop] for start, stop in last_occurrences(program).values())


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["f'{", 'f"{f\\"{', "'\\", '"""', "f'{[", "n.", "n'", "{{"])
def test_the_scan_takes_linear_time_on_any_text(piece: str):
    last_occurrences(piece * 20_000)


@given(st.text(st.sampled_from("nm1 .'\"#\\{}[]()f:!=\n\u00e9"), max_size=60))
def test_every_place_holds_its_name(text: str):
    for name, (start, stop) in last_occurrences(text).items():
        assert text[start:stop] == name
        assert text[stop : stop + 1] not in ("n", "m", "1", "f")
        assert text[max(0, start - 1) : start] not in ("n", "m", "1", "f", ".")


WORDS = st.sampled_from(
    ["n", "nn", "n1", "total", "'n'", "'total n'", '"""n"""', "1", "0x1f", "+", "(", ")", "x.n", "é"]
)


@given(st.lists(WORDS, max_size=20))
def test_the_names_are_those_of_pythons_own_tokens(words: list[str]):
    text = " ".join(words)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError:
        return  # an open bracket
    expected = {
        token.string: token.start[1]
        for before, token in zip([None, *tokens], tokens, strict=False)
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string) and not (before and before.string == ".")
    }
    assert {name: start for name, (start, _) in last_occurrences(text).items()} == expected


def test_names_of_the_module_and_of_its_main_function_share_their_places():
    assert shared_names(["n", "total", "main.n", "main.k"]) == {"n", "main.n"}


# --- Tokens --------------------------------------------------------------------------------------------------------


def decode(tokens) -> str:
    return bytes(tokens).decode("utf-8", "replace")


def test_a_name_of_several_tokens_is_read_at_its_last_one():
    pieces = ["def f", "oo", "b", "ar", "(", "x)"]
    assert token_at("def foobar(x)", 10, range(6), lambda ids: "".join(pieces[i] for i in ids)) == 3


def test_a_token_may_hold_more_than_the_name():
    pieces = ["x", " = n + 1\n", "y"]
    assert token_at("x = n + 1\ny", 5, range(3), lambda ids: "".join(pieces[i] for i in ids)) == 1


@given(st.text(st.characters(exclude_characters="\ufffd"), min_size=1, max_size=30), st.data())  # decoders write it
def test_of_single_bytes_the_token_is_the_last_byte_of_the_last_character(text: str, data: st.DataObject):
    content = text.encode("utf-8", "replace")
    text = content.decode()
    stop = data.draw(st.integers(1, len(text)))
    assert token_at(text, stop, list(content), decode) == len(text[:stop].encode()) - 1


def test_text_that_the_tokens_do_not_decode_to_has_no_token():
    assert token_at("other", 5, list(b"text"), decode) is None
    assert token_at("", 0, [], decode) is None


def test_tokens_of_a_tokenizer_are_found_as_its_offsets_say():
    tokenizer = tiny_policy().tokenizer
    text = "größe = int(input())\nprint(größe + 14)"
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    stop = last_occurrences(text)["größe"][1]
    found = token_at(text, stop, encoded.input_ids, tokenizer.decode)
    offsets = encoded.offset_mapping
    assert found == max(i for i, (start, end) in enumerate(offsets) if start < stop <= end)
    assert found is not None
    assert found > 0
