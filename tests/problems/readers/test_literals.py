"""Values in fields of text."""

import pytest

from autoclave.problems.readers import row as literals
from autoclave.problems.readers.row import HugeInteger, value_of_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"inputs": ["1\\n"], "flag": true}', {"inputs": ["1\n"], "flag": True}),
        ("{'inputs': ['1\\n'], 'flag': True, 'none': None}", {"inputs": ["1\n"], "flag": True, "none": None}),
        (" [1, 2]\n", [1, 2]),
        ("[123456789012345678901234567890]", [123456789012345678901234567890]),
        ("['123', -98765432109876543210]", ["123", -98765432109876543210]),
    ],
)
def test_json_and_python_literals_are_read(text, value):
    assert value_of_text(text) == value


@pytest.mark.parametrize("text", ["", "print(1)", "__import__('os')", "[" * 100_000, "-" * 100_000 + "1", "'\0'"])
def test_other_text_is_an_error(text):
    with pytest.raises(ValueError, match="must be JSON or a Python literal"):
        value_of_text(text)


def test_a_long_text_that_is_not_json_is_not_parsed_as_python(monkeypatch):
    monkeypatch.setattr(literals, "PYTHON_LITERAL_LIMIT", 5)
    with pytest.raises(ValueError, match="too long"):
        value_of_text("['a', 'b']")


def test_integers_that_python_would_not_read_keep_their_digits():
    found = value_of_text(f"[1, {'9' * 5000}]")
    assert found == [1, "9" * 5000]
    assert isinstance(found[1], HugeInteger)
