r"""Find the final answer in a model's response. Pure text functions, of linear time; None means no answer.

The answer is data: it is compared with the expected one in a cell (`kinds/answer.py`) and never run.
"""

import re
from collections.abc import Callable, Mapping

_PARTS = re.compile(r"\\boxed[ \t]{0,8}\{|\\.|[{}]", re.DOTALL)
_ANSWER = re.compile(r"[\s*_#>\-]{0,16}(?:the )?(?:final )?answer(?: is)?[\s*_]{0,4}:", re.IGNORECASE)
_AROUND = " \t\r*_"


def boxed(response: str) -> str | None:
    r"""Return what the last complete `\boxed{...}` holds; of boxes inside each other, the outer one."""
    open_braces: list[int | None] = []
    found: tuple[int, int] | None = None
    for part in _PARTS.finditer(response):
        text = part[0]
        if text == "}":
            start = open_braces.pop() if open_braces else None
            if start is not None:
                found = start, part.start()
        elif text == "{":
            open_braces.append(None)
        elif text.endswith("{") and text != r"\{":
            open_braces.append(part.end())
    return _filled(response[slice(*found)]) if found else None


def answer_line(response: str) -> str | None:
    """The rest of the last line that begins with `Answer:`, `Final answer:` or `The answer is:`, whatever its case.

    Marks of Markdown around it, a full stop at its end and dollar signs around it do not belong to it.
    """
    for line in reversed(response.split("\n")):
        if begin := _ANSWER.match(line):
            return _filled(_undressed(line[begin.end() :]))
    return None


def final(response: str) -> str | None:
    r"""The last `\boxed{...}`, else the last line that begins with `Answer:`."""
    return boxed(response) or answer_line(response)


def whole(response: str) -> str | None:
    return _filled(response)


ANSWER_RULES: Mapping[str, Callable[[str], str | None]] = {
    "final": final,
    "boxed": boxed,
    "answer_line": answer_line,
    "whole": whole,
}
"""Rules by the name that settings use."""


def _undressed(text: str) -> str:
    text = text.strip(_AROUND).removesuffix(".").strip(_AROUND)
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1] else text


def _filled(text: str) -> str | None:
    return text.strip() or None
