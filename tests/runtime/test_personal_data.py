"""Personal data is hidden behind placeholders that are always the same, and comes back whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.runtime.personal_data import PersonalData
from autoclave.runtime.proposals import Answer, Call, with_placeholders


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("to ann@example.com, bob@example.com and ann@example.com", "to <EMAIL_1>, <EMAIL_2> and <EMAIL_1>"),
        ("call +49 30 1234567 or 0044 (20) 7946 0958.", "call <PHONE_1> or <PHONE_2>."),
        ("4111 1111 1111 1111, not 4111 1111 1111 1112", "<CARD_1>, not 4111 1111 1111 1112"),
        ("DE89 3704 0044 0532 0130 00 GB29NWBK60161331926819", "<BANK_ACCOUNT_1> <BANK_ACCOUNT_2>"),
        ("GB28NWBK60161331926819", "GB28NWBK60161331926819"),
        (
            "10.0.0.1 and 2001:db8::1, not 1.2.3.400 or 12:30:05",
            "<IP_ADDRESS_1> and <IP_ADDRESS_2>, not 1.2.3.400 or 12:30:05",
        ),
        ("123-45-6789 000-45-6789", "<SOCIAL_SECURITY_1> 000-45-6789"),
        ("version 2.10.3 of 2024-05-06, std::vector", "version 2.10.3 of 2024-05-06, std::vector"),
        ("<EMAIL_1> is no address, a@b.de is", "<TEXT_1> is no address, <EMAIL_1> is"),
    ],
)
def test_known_forms_are_hidden(text: str, hidden: str):
    personal = PersonalData()
    assert personal.hide(text) == hidden
    assert personal.restore(hidden) == text


_WORDS = st.sampled_from(
    ["ann@example.com", "<EMAIL_1>", "<TEXT_2>", "4111111111111111", "10.0.0.1", " ", "x", "<", "_1>"]
)


@given(st.lists(st.one_of(st.text(), st.lists(_WORDS).map("".join))))
def test_what_was_hidden_comes_back(texts: list[str]):
    personal = PersonalData()
    assert [personal.restore(personal.hide(text)) for text in texts] == texts
    assert [personal.restore(each) for each in [personal.hide(text) for text in texts]] == texts


def test_a_model_sees_placeholders_and_its_calls_have_the_values():
    seen: list[str] = []

    def chat(messages, tools) -> Answer:
        seen.append(json.dumps([messages, tools]))
        arguments = json.dumps({"path": "<EMAIL_1>.txt", "content": 'quoted "<PHONE_1>"'})
        return Answer("written to <EMAIL_1>", (Call("1", "write", arguments), Call("2", "write", "{broken")))

    given: list[dict[str, Any]] = [{"role": "user", "content": "ann@example.com has +49 30 1234567"}]
    given.append({"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": '"ann@example.com"'}}]})
    answer = with_placeholders(chat, PersonalData())(given, [])
    assert "ann@" not in seen[0]
    assert "1234567" not in seen[0]
    assert answer.text == "written to ann@example.com"
    assert json.loads(answer.calls[0].arguments) == {
        "path": "ann@example.com.txt",
        "content": 'quoted "+49 30 1234567"',
    }
    assert answer.calls[1].arguments == "{broken"
