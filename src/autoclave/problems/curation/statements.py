"""Extract the words of a statement, independent of its site and format.

`plain_words` keeps every word, number and operator of the text, without mark-up: equal words mean equal texts.
`topic_words` are content words: without headings, samples, prompts, numbers and names of variables, so that a reworded
or renumbered copy still shares most of them.
Not here: the decision that two statements are duplicates (`similarity.py`).
"""

import html
import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from autoclave.core.sections import read_sections

TABLES = read_sections(Path(__file__).with_name("words.txt"))
"""Also of the modules beside this one."""
_LATEX_WORDS = {word: line.split()[0] for line in TABLES["latex"] for word in line.split()[1:]}
_SIGNS = str.maketrans("×⋅·÷−’‘“”⁰¹²³⁴⁵⁶⁷⁸⁹", "***/-''\"\"0123456789") | str.maketrans(
    {
        "≤": "<=",
        "⩽": "<=",
        "≥": ">=",
        "⩾": ">=",
        "≠": "!=",
        "⊕": " xor ",
        "∞": " infinity ",
        "∑": " sum ",
        "∏": " product ",
    }
)
_INLINE_TAG = re.compile(r"</?(?:sub|sup|b|i|em|strong|code|span|var|tt|font|a|u|mark|nobr)\b[^<>]*>", re.IGNORECASE)
_BLOCK_TAG = re.compile(
    r"</?(?:p|br|div|pre|ul|ol|li|h[1-6]|table|thead|tbody|tr|td|th|img|image|hr|center|blockquote|section|dl|dt|dd)"
    r"\b[^<>]*>",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--.{0,2000}?-->", re.DOTALL)  # bounded, as below, against hostile texts
_IMAGE = re.compile(r"!\[[^\]\n]{0,500}\]\([^)\n]{0,2000}\)")
_LINK = re.compile(r"\[([^\]\n]{0,500})\]\([^)\n]{0,2000}\)")
_URL = re.compile(r"https?://\S+")
_LATEX_STYLE = re.compile(
    r"\\(?:text|texttt|textbf|textit|textsf|textrm|mathtt|mathbf|mathrm|mathit|mathsf|mathcal|mathbb|operatorname|bf|"
    r"it|tt|rm|left|right|big|Big|bigl|bigr|displaystyle|limits|quad|qquad|hspace|vspace)(?![a-zA-Z])\*?"
)
_FRACTION = re.compile(r"\\d?t?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_LATEX_WORD = re.compile(r"\\([a-zA-Z]+)")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|_{1,3})(?=\S)([^*\n]{1,500}?)(?<=\S)\1(?![\w*])")
_GLUE = re.compile(r"(?<=\w)\s?\^\s?(?=[\w({-])|(?<=\d)\s?\*\*\s?(?=\d)|(?<=\w)_(?=[\w{])")
_TICKS = re.compile(r"(?<!`)`{1,2}(?!`)")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|[  ])(?=\d{3}(?!\d))")
_TOKEN = re.compile(r"\d+|[^\W\d_]+|[<>!=]=|[-+*/%<>=]")
_RULE = re.compile(r"[-=*_#~+]{3,}")


def plain_text(statement: str) -> str:
    """Return `statement` in lower case, without the mark-up of HTML, Markdown and LaTeX; keeps lines."""
    text = html.unescape(html.unescape(statement)) if "&" in statement else statement
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_SIGNS)
    text = unicodedata.normalize("NFKC", text)
    text = _BLOCK_TAG.sub("\n", _INLINE_TAG.sub("", _COMMENT.sub(" ", text)))
    text = _URL.sub(" ", _LINK.sub(r"\1", _IMAGE.sub(" ", text)))
    text = _EMPHASIS.sub(r"\2", _RULE.sub(" ", text))
    return _plain_latex(text).casefold()


def _plain_latex(text: str) -> str:
    if "\\" in text:
        text = _FRACTION.sub(r"\1 / \2", _LATEX_STYLE.sub("", text))
        text = _LATEX_WORD.sub(lambda match: f" {_LATEX_WORDS.get(match[1], match[1])} ", text)
    text = _THOUSANDS.sub("", _TICKS.sub("", text.replace("$", "")))
    return _GLUE.sub("", text).replace("{", "").replace("}", "")


def plain_words(text: str) -> list[str]:
    """Return the words, numbers and operators of a `plain_text`, with minus signs but without dashes."""
    tokens = _TOKEN.findall(text)
    return [token for place, token in enumerate(tokens) if token != "-" or _is_minus(tokens, place)]


def _is_minus(tokens: list[str], place: int) -> bool:
    after = tokens[place + 1] if place + 1 < len(tokens) else ""
    before = tokens[place - 1] if place else ""
    return after.isdigit() or (len(after) == 1 == len(before) and after.isalnum() and before.isalnum())


_SAMPLE_HEADING = re.compile(
    r"^\W*(?:samples?|examples?)(?:\W+(?:test|tests|case|cases|input|inputs|output|outputs|in|out|\d+))*\W*$"
    r"|^\W*(?:inputs?|outputs?)\W*$|^\W*(?:input|output)\s*[:=]\s*\S.*$"
)
_PROSE_HEADING = re.compile(
    r"^\W*(?:notes?|constraints?|explanations?|limits|scoring|subtasks?|hints?|follow\W?up"
    r"|(?:input|output)\W*(?:format|specification|description)?s?)\W*(?:\d+\W*)?$"
)
_LONGEST_HEADING = 100
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LIMIT = re.compile(
    r"^\W*(?:time|memory)\s+limit.*$|^\W*tags\s*:?\s*(?:\[.*\])?\W*$|^\W*difficulty\s*:.*$", re.MULTILINE
)
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\W\d_぀-ヿ㐀-鿿]{3,}")  # Chinese and Japanese are written without blanks
_PROMPT = re.compile(
    r"^.{0,40}\b(?:expert|helpful|skilled)\b.{0,40}\b(?:programmer|assistant|engineer|coder)\b.*$"
    r"|^.{0,200}\b(?:self-contained code|code block|code fence|markdown|step by step|starter code|python code"
    r"|without any explanation|enclose your|wrap your|your code within|following format to solve)\b.*$"
    r"|\b(?:write|implement|create|generate|provide) (?:an? |the )?(?:\S+ ){0,2}"
    r"(?:program|function|code|solution|script) "
    r"(?:that|to|which|for) (?:solves?|answers?|solving|the following)\b[^.:\n]*[.:]?"
    r"|\bsolve the (?:following|given|problem)\b[^.:\n]*[.:]?|\buse (?:standard input|call-based) format\b"
    r"|^\W*(?:question|answer|problem|problem statement|task|statement|description|instructions?|format)\W*$",
    re.MULTILINE,
)
_COMMON = frozenset(" ".join(TABLES["common words"]).split())
_ENDINGS = re.compile(r"(?:ies|ied|ing|es|ed|ly|s|e|y)$")


def _stem(word: str) -> str:
    shorter = _ENDINGS.sub("", word)
    return shorter if len(shorter) >= 3 else word


_SYNONYMS = {_stem(word): line.split()[0] for line in TABLES["synonyms"] for word in line.split()}
"""Stem of a word -> one word for all synonyms."""
_NAME = re.compile(r"(?<=[a-z0-9,;$] )[A-Z][a-z]{2,}\b")
_SMALL_WORD = re.compile(r"\b[a-z]{3,}\b")


def names_in(statement: str) -> frozenset[str]:
    """Return words, in lower case, that are always capitalised within sentences: mostly names."""
    found = {name.lower() for name in _NAME.findall(statement)}
    return frozenset(found.difference(_SMALL_WORD.findall(statement)) if found else ())


def topic_words(text: str, names: frozenset[str] = frozenset()) -> list[str]:
    """Return the content words of a `plain_text` without `names`, in order.

    Words are reduced to stems, and synonyms to one word.
    """
    body = _LIMIT.sub(" ", _PROMPT.sub(" ", _CODE.sub(" ", text)))
    words = _WORD.findall(_without_samples(body))
    found = [_topic(word) for word in words if word not in _COMMON and word not in names]
    return found or [_topic(word) for word in _WORD.findall(text)]


@lru_cache(maxsize=1 << 16)
def _topic(word: str) -> str:
    stem = _stem(word)
    return _SYNONYMS.get(stem, stem)


def _without_samples(text: str) -> str:
    """Return `text` without the blocks between a heading of a sample and the next line of prose."""
    kept: list[str] = []
    is_sample = False
    for line in text.split("\n"):
        is_short = len(line) <= _LONGEST_HEADING
        if is_short and _SAMPLE_HEADING.match(line):
            is_sample = True
        elif (is_short and _PROSE_HEADING.match(line)) or len(_WORD.findall(line)) >= 6:
            is_sample = False
        if not is_sample:
            kept.append(line)
    return "\n".join(kept)
