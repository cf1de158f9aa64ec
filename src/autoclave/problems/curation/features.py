"""Features by which problems are compared: hashes of words and of tests, a few hundred numbers each.

Equal words have equal hashes in every process. Nothing of the tests is executed.
"""

import ast
import hashlib
import json
import re
import struct
import tempfile
import zlib
from array import array
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoclave.core import AnswerTests, CallTests, CheckTests, Problem, StdinTests
from autoclave.core.closing import Closing
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.assertions import asserted_cases, normalised_code
from autoclave.problems.curation.identities import identities
from autoclave.problems.curation.python_source import UNREADABLE
from autoclave.problems.curation.statements import names_in, plain_text, plain_words, topic_words

WordHashes: TypeAlias = NDArray[np.uint32]
CaseHashes: TypeAlias = NDArray[np.uint64]

CASES_LIMIT = 64
"""Limit of compared tests of a problem: those with the smallest hashes of their inputs, so that two problems keep the
same ones of their shared tests."""


@dataclass(frozen=True, slots=True)
class Features:
    """Features of one problem.

    Attributes:
        text: digest of all words of the statement; equal for an equal text in other mark-up.
        words: sorted hashes of all its different words, numbers and operators.
        topic: sorted hashes of its different words of content.
        inputs: sorted hashes of the inputs of its tests, at most `CASES_LIMIT`.
        outputs: hashes of the outputs expected for them, in their order.
        code: hash of its test code without names and comments; 0 for other tests, and for too short code.
        shape: kind and form of its tests; solutions run only on tests of the same shape.
        num_tests: number of comparable tests.
        names: its names at its source, such as `codeforces/1349/a`.
        version: the version that the statement names, such as `easy`; empty without other versions.
    """

    text: bytes
    words: WordHashes
    topic: WordHashes
    inputs: CaseHashes
    outputs: CaseHashes
    code: int
    shape: str
    num_tests: int
    names: frozenset[str]
    version: str


def features_of(candidate: ProblemCandidate) -> Features:
    problem = candidate.problem
    text = plain_text(problem.statement)
    words = plain_words(text)
    cases = cases_of(problem)
    inputs, outputs = _case_hashes(cases)
    return Features(
        text=hashlib.blake2b(" ".join(words).encode("utf-8"), digest_size=16).digest() if words else b"",
        words=word_hashes(words),
        topic=word_hashes(topic_words(text, names_in(problem.statement))),
        inputs=inputs,
        outputs=outputs,
        code=_code_hash(problem),
        shape=shape_of(problem),
        num_tests=len(cases),
        names=identities(candidate),
        version=_version(text),
    )


@lru_cache(maxsize=1 << 17)
def word_hash(word: str) -> int:
    """Return a 32-bit hash of a word, stable across processes."""
    return zlib.crc32(word.encode("utf-8"))


def word_hashes(words: list[str]) -> WordHashes:
    """Return the different hashes of `words`, sorted."""
    return np.array(sorted({word_hash(word) for word in words}), dtype=np.uint32)


_GRADE = r"(easy|easier|simple|hard|harder|difficult|medium|extreme|first|second|third)"
_VERSION = re.compile(
    rf"\bthis is (?:the|an?) {_GRADE} version\b|\bthe {_GRADE} version of (?:the|this) problem\b"
    rf"|\b(?:two|three|different|other|both|easy and hard) (?:\w+ )?versions\b|\(({_GRADE[1:-1]}) version\)"
    r"|\balmost the same setting as\b|\bonly difference (?:between|from|with|is)\b"
)

_VERSION_WORDS = ("version", "same setting", "only difference")  # a quick check before the pattern


def _version(text: str) -> str:
    start = text[:1500]
    found = _VERSION.search(start) if any(word in start for word in _VERSION_WORDS) else None
    return next((grade for grade in found.groups() if grade), "unnamed") if found else ""


_DISTINCTIVE_CODE = 100
"""Least characters of test code that identify a problem."""


def cases_of(problem: Problem) -> list[tuple[str, str]]:
    """Return input and output of each test in a form that does not depend on the data set; an empty list if unknown.

    Standard input is split at blanks. Arguments of a call are one list without names. Of test code, assertions on one
    call of the candidate count.
    """
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return [(" ".join(case.input.split()), " ".join(case.output.split())) for case in tests.cases]
    if isinstance(tests, CallTests):
        return [(_literal(case.arguments)[1:-1], _literal(case.output)) for case in tests.cases]
    if isinstance(tests, CheckTests):
        try:
            return [(",".join(map(_written, given)), _written(expected)) for given, expected in asserted_cases(tests)]
        except UNREADABLE:
            return []
    return []


def _code_hash(problem: Problem) -> int:
    try:
        code = normalised_code(problem.tests) if isinstance(problem.tests, CheckTests) else ""
    except UNREADABLE:
        return 0
    return case_hash(code) if len(code) >= _DISTINCTIVE_CODE else 0


def _written(value: ast.expr) -> str:
    """Return an expression in the form of `_literal`, as far as JSON has its value."""
    try:
        return _literal(ast.literal_eval(value))
    except UNREADABLE:
        return _bare(ast.unparse(value))


def _literal(value: Any) -> str:
    return _bare(json.dumps(value, ensure_ascii=False))


_CONSTANTS = str.maketrans({"'": '"', " ": None, "\t": None})
_PYTHON_NAMES = {"True": "true", "False": "false", "None": "null"}
_PYTHON_NAME = re.compile(r"\b(?:True|False|None)\b")


def _bare(literal: str) -> str:
    """Return a literal with one kind of quotes, without blanks, and with JSON's constants; tuples become lists."""
    bare = _PYTHON_NAME.sub(lambda name: _PYTHON_NAMES[name[0]], literal.translate(_CONSTANTS))
    return bare.replace("(", "[").replace(",)", "]").replace(")", "]")


def case_hash(text: str) -> int:
    """Return a 64-bit hash of an input or output."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def _case_hashes(cases: list[tuple[str, str]]) -> tuple[CaseHashes, CaseHashes]:
    """Return hashes of inputs and outputs, without inputs for which the problem itself has two outputs."""
    known: dict[int, int] = {}
    ambiguous: set[int] = set()
    for given, expected in ((case_hash(given), case_hash(expected)) for given, expected in cases):
        if known.setdefault(given, expected) != expected:
            ambiguous.add(given)
    known = {given: expected for given, expected in known.items() if given not in ambiguous}
    chosen = sorted(known)[:CASES_LIMIT]
    return np.array(chosen, dtype=np.uint64), np.array([known[given] for given in chosen], dtype=np.uint64)


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def shape_of(problem: Problem) -> str:
    """Return the form of inputs and outputs: the kind of tests, and the types in the first of them."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        first = tests.cases[0]
        return f"{problem.language} stdin {_line_shape(first.input)} -> {_line_shape(first.output)}"
    if isinstance(tests, CallTests):
        first = tests.cases[0]
        types = ",".join(_type_shape(argument) for argument in first.arguments)
        return f"{problem.language} call ({types}) -> {_type_shape(first.output)}"
    if isinstance(tests, CheckTests):
        return f"{problem.language} check"
    return "answer" if isinstance(tests, AnswerTests) else "stored"


def _line_shape(text: str) -> str:
    """Return the types of the words in the first line, and a mark for more lines."""
    first, _, rest = text.strip().partition("\n")
    words = first.split()
    types = "".join("n" if _NUMBER.fullmatch(word) else "s" for word in words[:4])
    return types + ("+" if len(words) > 4 else "") + ("/" if rest else "")


def _type_shape(value: Any) -> str:
    if isinstance(value, list):
        return f"[{_type_shape(value[0]) if value else ''}]"
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


_HEAD = struct.Struct("<16sQ7I")


class FeatureStore(Closing):
    """Features by index in the order of `add`. Closing removes the file."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, prefix="features.")  # noqa: SIM115  closed by `close`
        self._starts = array("Q")

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, features: Features) -> None:
        texts = [each.encode("utf-8") for each in (features.shape, "\n".join(sorted(features.names)), features.version)]
        sizes = (len(features.words), len(features.topic), len(features.inputs), *map(len, texts), features.num_tests)
        arrays = (features.words, features.topic, features.inputs, features.outputs)
        self._starts.append(self._file.seek(0, 2))
        self._file.write(
            _HEAD.pack(features.text, features.code, *sizes) + b"".join([*(part.tobytes() for part in arrays), *texts])
        )

    def __getitem__(self, number: int) -> Features:
        self._file.seek(self._starts[number])
        text, code, words, topic, cases, shape, names, version, num_tests = _HEAD.unpack(self._file.read(_HEAD.size))
        return Features(
            text=text if any(text) else b"",
            words=np.frombuffer(self._file.read(4 * words), dtype=np.uint32),
            topic=np.frombuffer(self._file.read(4 * topic), dtype=np.uint32),
            inputs=np.frombuffer(self._file.read(8 * cases), dtype=np.uint64),
            outputs=np.frombuffer(self._file.read(8 * cases), dtype=np.uint64),
            code=code,
            shape=self._file.read(shape).decode("utf-8"),
            num_tests=num_tests,
            names=frozenset(self._file.read(names).decode("utf-8").splitlines()),
            version=self._file.read(version).decode("utf-8"),
        )

    def close(self) -> None:
        self._file.close()
