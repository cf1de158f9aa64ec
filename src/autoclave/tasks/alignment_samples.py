"""Convert a traced run into an alignment sample: choose its variables, and those that are informative. Pure.

Programs are untrusted and are never parsed as Python, so that deep nesting cannot harm this process.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from autoclave.config import AlignmentLimitsConfig
from autoclave.core import AlignmentSample, CallTests, Problem, StdinTests, Trace, TraceStatus
from autoclave.core.trace import literal, value_of
from autoclave.tasks.final_values import written

Source = Literal["failed", "random", "reference"]
_TOKEN = re.compile(r"[^\W\d]\w*|[-+*/%&|^@<>:!=]{0,2}=|\S")
_BETWEEN = re.compile(r"[\s,;:()\[\]{}]+")
MOST_DIGITS = 1000
"""Longest number that is parsed to compare it with a constant."""
_COMPARISONS = frozenset({"==", "!=", "<=", ">="})
_BINDING_WORDS = frozenset({"for", "as", "global", "nonlocal", "import", "def", "class", "del", "lambda", "case"})


@dataclass(frozen=True, slots=True)
class Unusable:
    """Reason why a run gives no alignment sample, as a key for counting."""

    reason: str


def alignment_sample_of(
    problem: Problem,
    program: str,
    trace: Trace,
    *,
    limits: AlignmentLimitsConfig,
    asks: Literal["variables", "output"] = "variables",
    min_informative: int = 1,
    source: Source = "failed",
    version: int = 0,
) -> AlignmentSample | Unusable:
    """Return the alignment sample of a run of `program` on a test of `problem`, of which `trace` is the record."""
    if trace.status is not TraceStatus.FINISHED:
        return Unusable("did_not_end_normally")
    given = input_of(problem, trace.test)
    if given is None or not _is_text(program, given):
        return Unusable("no_text")
    if len(program) > limits.program_characters or len(given) > limits.input_characters:
        return Unusable("too_long")
    sample = AlignmentSample(
        problem_id=problem.id,
        test=trace.test,
        program=program,
        entry=trace.entry,
        input=given,
        source=source,
        version=version,
    )
    if asks == "output":
        return _with_output(sample, trace, limits)
    return _with_variables(sample, trace, _values_of_input(problem, trace.test), limits, min_informative)


def input_of(problem: Problem, test: int) -> str | None:
    """Return the input of a test as text: standard input, or the call. None for tests of other kinds."""
    match problem.tests:
        case StdinTests(cases=cases):
            return cases[test].input
        case CallTests(entry_point=name, cases=cases):
            return f"{name}({', '.join(literal(argument) for argument in cases[test].arguments)})"
        case _:
            return None


def is_short_input(problem: Problem, test: int, most: int) -> bool:
    """Return whether the input of a test has at most `most` characters, without writing out a long one."""
    tests = problem.tests
    if isinstance(tests, CallTests) and _room_after(tests.cases[test].arguments, most) < 0:
        return False
    given = input_of(problem, test)
    return given is not None and len(given) <= most


def _room_after(value: Any, room: int) -> int:
    """Return an upper bound of the characters left of `room` after `value`; negative once it is too long."""
    match value:
        case str():
            return room - len(value) - 2
        case list() | dict():
            inner = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
            for each in inner:
                room = _room_after(each, room - 1)
                if room < 0:
                    break
            return room
        case _:
            return room - 1


def constants_of(program: str) -> dict[str, str]:
    """Return the names that `program` seems to bind only once, each with the text after `name =`.

    Scans words line by line, in time linear in the text. A doubtful name is not a constant.
    """
    places, values = Counter[str](), dict[str, str]()
    for line in re.split(r"[\n\r;]", program):
        tokens = _TOKEN.findall(line)
        binding = [place for place, token in enumerate(tokens) if token.endswith("=") and token not in _COMPARISONS]
        is_statement = not _BINDING_WORDS.isdisjoint(tokens)
        bound = tokens if is_statement else tokens[: binding[-1]] if binding else []
        places.update({token for token in bound if token.isidentifier()})
        if len(tokens) > 2 and tokens[0].isidentifier() and binding == [1] and tokens[1] == "=":
            values[tokens[0]] = _normal(line.partition("=")[2].partition("#")[0].strip())
    return {name: value for name, value in values.items() if places[name] == 1}


def _normal(text: str) -> str:
    """Return a simple literal as `repr` writes it, another text as it is."""
    inner = text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in inner and "\\" not in inner:
        return repr(inner)
    if not text[:1].isalpha() and len(text) < MOST_DIGITS:
        for read in (lambda digits: int(digits, 0), float):
            try:
                return repr(read(text))
            except ValueError:
                continue
    return text


def _with_variables(
    sample: AlignmentSample,
    trace: Trace,
    echoed: set[tuple[type, Any]],
    limits: AlignmentLimitsConfig,
    min_informative: int,
) -> AlignmentSample | Unusable:
    small = {
        name: text
        for name, text in trace.variables.items()
        if len(text) <= limits.value_characters and _is_text(name, text, str(value_of(text)))
    }
    constants = constants_of(sample.program)
    informative = [
        name
        for name, text in small.items()
        if not _is_echo(value_of(text), echoed) and constants.get(name.rpartition(".")[2]) != text
    ]
    if len(informative) < min_informative or not small:
        return Unusable("nothing_informative")
    chosen = {*[*informative, *(name for name in small if name not in informative)][: limits.variables]}
    variables = {name: text for name, text in small.items() if name in chosen}
    return replace(sample, variables=variables, informative=[name for name in informative if name in chosen])


def _with_output(sample: AlignmentSample, trace: Trace, limits: AlignmentLimitsConfig) -> AlignmentSample | Unusable:
    if trace.result is None or not trace.is_result_whole or len(trace.result) > limits.value_characters:
        return Unusable("no_small_result")
    if not trace.result.strip():
        return Unusable("nothing_informative")
    if not _is_text(trace.result) or not is_answerable(trace.result, trace.entry):
        return Unusable("no_text")
    return replace(sample, result=trace.result)


def is_answerable(result: str, entry: str) -> bool:
    """Return whether the result of a run can be written as JSON."""
    try:
        written(result if entry == "<module>" else value_of(result))
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_echo(value: Any, echoed: set[tuple[type, Any]]) -> bool:
    return type(value) is not list and (type(value), value) in echoed


def _values_of_input(problem: Problem, test: int) -> set[tuple[type, Any]]:
    """Return the primitive values in an input: of a string its words and lines, and those as numbers."""
    match problem.tests:
        case CallTests(cases=cases):
            values = list(_primitives(cases[test].arguments))
        case StdinTests(cases=cases):
            values = [cases[test].input]
        case _:
            return set()
    known = {(type(value), value) for value in values}
    return known.union(*(_values_of_text(value) for value in values if isinstance(value, str)))


def _values_of_text(text: str) -> set[tuple[type, Any]]:
    """Return the string, its lines and words, and those of them that are numbers, as numbers."""
    lines = text.splitlines()
    words = {text, text.strip(), *lines, *(line.strip() for line in lines), *text.split(), *_BETWEEN.split(text)}
    numbers = [number for number in map(_number, words) if number is not None]
    return {(str, word) for word in words} | {(type(number), number) for number in numbers}


def _primitives(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _primitives(inner)
    elif isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            yield from _primitives(inner)
    else:
        yield value


def _number(word: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


def _is_text(*texts: str) -> bool:
    """Return whether all are well-formed Unicode, which tokenizers need."""
    try:
        return all(text.encode("utf-8") is not None for text in texts)
    except UnicodeEncodeError:
        return False
