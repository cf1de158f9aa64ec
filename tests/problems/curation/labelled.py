"""Real statements with planted copies, made by rules that know nothing of the code under test, and hard negatives."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoclave.core import CheckTests, Problem, StdinCase, StdinTests
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.readers import raw_files, read_rows


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def stdin(cases: list[tuple[str, str]]) -> StdinTests:
    return StdinTests("stdin", [StdinCase(given, expected) for given, expected in cases])


def candidate(name: str, row: str, statement: str, tests: Any, **known: str) -> ProblemCandidate:
    return ProblemCandidate(Problem(id=f"{name}-{row}", statement=statement, tests=tests), Origin(name, row, **known))


_READ = {
    "apps": ("code_contests", "apps_codetree.jsonl.gz"),
    "code_contests": ("rllm", "code_contests_dev.jsonl.gz"),
    "codeforces": ("codeforces", "codeforces_problems_dev.jsonl.gz"),
    "leetcode": ("leetcode", "leetcode_v020_dev300.jsonl.gz"),
    "mbpp": ("mbpp", "mbpp.jsonl.gz"),
}


def real_problems(data: Path) -> Iterator[ProblemCandidate]:
    """Problems of six sets, with the tests that their files have; `row` is their name in the set."""
    for name, (layout, file) in _READ.items():
        for row in read_rows(layout, name, raw_files(data / file).rows()):
            assert isinstance(row, ProblemCandidate)
            yield replace(row, origin=replace(row.origin, row=row.problem.id.rpartition("/")[2]))
    samples = {row["question_id"]: row["sample_tests"] for row in rows(data / "lcb_stdin_samples_o1mini.jsonl.gz")}
    for row in rows(data / "lcb_eval_all_o1mini.jsonl.gz"):
        if row["platform"] != "leetcode":
            cases = [(case["input"], case["output"]) for case in samples.get(row["question_id"], [])]
            tests = stdin(cases or [(f"no tests of {row['question_id']}", "")])
            known = {"key": f"{row['platform']}/{row['question_id']}", "title": row["question_title"]}
            yield candidate("lcb", row["question_id"], row["question_content"], tests, **known)


# --- Ways to copy a statement --------------------------------------------------------------------------------------

_SYNONYMS = {
    "find": "determine",
    "given": "provided",
    "number": "count",
    "maximum": "largest",
    "minimum": "smallest",
    "array": "list",
    "integer": "whole number",
    "integers": "whole numbers",
    "print": "display",
    "output": "report",
    "each": "every",
    "consists": "is made up",
    "contains": "holds",
    "string": "text",
    "choose": "pick",
    "possible": "feasible",
    "total": "overall",
    "exactly": "precisely",
    "distinct": "different",
    "equal": "identical",
    "can": "is able to",
    "must": "has to",
    "also": "additionally",
    "wants": "would like",
    "decided": "made up his mind",
    "start": "begin",
    "big": "large",
    "beautiful": "pretty",
    "several": "a few",
    "return": "give back",
    "elements": "items",
    "operation": "move",
    "cost": "price",
}
_NAMES = (
    "Alice",
    "Bob",
    "Takahashi",
    "Aoki",
    "Polycarp",
    "Vasya",
    "Petya",
    "Chef",
    "Monocarp",
    "Ivan",
    "Masha",
    "Snuke",
)


_OTHER_NAMES = ("Noor", "Wei", "Tomas", "Ingrid", "Kofi", "Lena", "Raj", "Ana", "Yuki", "Sam", "Zoe", "Max")


def reword(text: str, chance: random.Random) -> str:
    """Synonyms for nine in ten of the words that have one here, and other names of persons."""
    others = dict(zip(_NAMES, chance.sample(_OTHER_NAMES, len(_NAMES)), strict=True))

    def other(match: re.Match[str]) -> str:
        word = match[0]
        if word in others:
            return others[word]
        synonym = _SYNONYMS.get(word.lower())
        return word if synonym is None or chance.random() < 0.1 else synonym

    return re.sub(r"[A-Za-z]+", other, text)


def drop_words(text: str, chance: random.Random) -> str:
    """Without one word in twelve."""
    return re.sub(r"\S+ ", lambda match: "" if chance.random() < 1 / 12 else match[0], text)


def reorder(text: str, chance: random.Random) -> str:
    """The sentences of each paragraph the other way round."""
    return "\n\n".join(" ".join(reversed(re.split(r"(?<=[.?!])\s+", part))) for part in text.split("\n\n"))


def renumber(text: str, chance: random.Random) -> str:
    """Other constants: each number of two or more digits outside of samples becomes another."""
    return re.sub(r"\d{2,}", lambda match: str(int(match[0]) * 3 + chance.randint(1, 9)), text)


def rename(text: str, chance: random.Random) -> str:
    """Other names of variables, letter by letter."""
    letters = dict(zip("nmkxyabst", "pqrzwcdgh", strict=True))
    return re.sub(r"(?<![A-Za-z'\\])[nmkxyabst](?![A-Za-z'])", lambda match: letters[match[0]], text)


def plain(text: str, chance: random.Random) -> str:
    """Without LaTeX."""
    text = re.sub(r"\\(?:leq?|leqslant)\b", "≤", text.replace("$", ""))
    text = re.sub(r"\\(?:text\w*|math\w*)\{([^{}]*)\}", r"\1", text.replace("\\ldots", "...").replace("\\cdot", "·"))
    return re.sub(r"_\{?(\w+)\}?", r"\1", text)


def as_html(text: str, chance: random.Random) -> str:
    """As a page: escaped, in paragraphs, powers raised."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"\^\{?(\d+)\}?", r"<sup>\1</sup>", text)
    return "".join(f"<p>{part}</p>\n" for part in text.split("\n\n"))


def as_markdown(text: str, chance: random.Random) -> str:
    """Headings of another site, numbers in backticks."""
    text = re.sub(r"(?m)^\W*(Input|Output|Constraints|Note|Examples?)\b[ \w]*\W*$", r"### **\1 Specification**", text)
    return re.sub(r"(?<![\w$\\{^])(\d+)(?![\w}])", r"`\1`", text)


def shout(text: str, chance: random.Random) -> str:
    return re.sub(r"[ \t]+", "  ", text.upper() if chance.random() < 0.5 else text.lower()).replace("\n", "\r\n")


_PROMPTS = (
    ("Write a Python program that solves the following task.\n\n", ""),
    (
        "You are an expert Python programmer. You will be given a question (problem specification) and will "
        "generate a correct Python program that matches the specification and passes all tests.\n\n### Question:\n",
        "\n\n### Format: Read the inputs from stdin solve the problem and write the answer to stdout. Enclose your "
        "code within delimiters as follows.\n```python\n# YOUR CODE HERE\n```\n\n### Answer:",
    ),
    ("QUESTION:\n", "\n\nUse Standard Input format\nANSWER:\n"),
)


def with_prompt(text: str, chance: random.Random) -> str:
    """As a training set asks it."""
    before, after = chance.choice(_PROMPTS)
    return before + text + after


def without_samples(text: str, chance: random.Random) -> str:
    """Up to the first heading of a sample."""
    return re.split(r"(?mi)^\W*(?:samples?|examples?)\b[ \w]*\W*$", text)[0]


Change = Callable[[str, random.Random], str]
CHANGES: dict[str, tuple[Change, ...]] = {
    "shout": (shout,),
    "plain": (plain,),
    "as_html": (as_html,),
    "as_markdown": (as_markdown,),
    "with_prompt": (with_prompt,),
    "without_samples": (without_samples,),
    "renumber": (renumber,),
    "rename": (rename,),
    "reorder": (reorder,),
    "reword": (reword,),
    "drop_words": (drop_words,),
    "reword, rename": (reword, rename),
    "reword, reorder, prompt": (reword, reorder, with_prompt),
    "plain, drop_words, renumber": (plain, drop_words, renumber),
}


@dataclass(frozen=True)
class Planted:
    """A copy of a real problem. Its tests are the original's, or all others, or some."""

    change: str
    original: ProblemCandidate
    copy: ProblemCandidate


def plant(originals: list[ProblemCandidate], seed: int, tests: str) -> list[Planted]:
    """One copy of each, by all changes in turn. `tests`: `same`, `none` (of another kind) or `some` (half of them)."""
    chance = random.Random(seed)
    planted = []
    for number, original in enumerate(originals):
        change = list(CHANGES)[number % len(CHANGES)]
        statement = original.problem.statement
        for step in CHANGES[change]:
            statement = step(statement, chance)
        problem = replace(
            original.problem, id=f"copy-{number}", statement=statement, tests=_tests(original, tests, number)
        )
        planted.append(Planted(change, original, ProblemCandidate(problem, Origin("planted", f"{seed}:{number}"))))
    return planted


def _tests(original: ProblemCandidate, which: str, number: int) -> Any:
    tests = original.problem.tests
    if which == "same":
        return tests
    if which == "some" and isinstance(tests, StdinTests) and len(tests.cases) > 3:
        half = tests.cases[: len(tests.cases) // 2]
        return StdinTests("stdin", [*half, StdinCase(f"{number} {number}", f"{number}")])
    return CheckTests("check", "f", f"def check(candidate):\n    assert candidate('{number}')", "check(candidate)")
