"""Finds values in bytes, in all their spellings, and replaces them there by others. Pure.

A value is looked for by the first characters of its spellings, all at once; only where they stand it is compared whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from autoclave.runtime.vault.spelling import Spelling, Unit, spellings

_HEAD = 12
_NOTHING = re.compile(b"(?!)")


def found_in(content: bytes, values: Mapping[str, str]) -> list[str]:
    """The names of those values that stand in bytes, in one of their spellings."""
    return [name for name, value in values.items() if _traces(((value, value),)).are_in(content)]


class Replacer:
    """Replaces values in bytes, in all their spellings.

    `others`: values, each with another one. If that has another length, what follows in the same base64 is lost.
    """

    def __init__(self, others: Mapping[str, str]) -> None:
        self._traces = _traces(tuple(sorted(others.items(), key=lambda each: -len(each[0]))))

    def whole(self, content: bytes) -> bytes:
        """The content with all of them replaced."""
        return self._traces.replaced(content)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A spelling of a value, and the same of the other one."""

    own: Spelling
    its: Spelling
    patterns: tuple[tuple[re.Pattern[bytes], ...], ...]

    def replacement_at(self, content: bytearray, place: int) -> tuple[bytes, int] | None:
        """What to put in place of the value that stands at `place`, and where that ends; None if it does not."""
        tokens: list[re.Match[bytes]] = []
        choices = [self._matches(0, content, place)]
        dead: set[tuple[int, int]] = set()
        while choices:
            found = next(choices[-1], None)
            if found is None:
                choices.pop()
                if tokens:
                    dead.add((len(tokens), tokens.pop().end()))
            elif (len(tokens) + 1, found.end()) not in dead:
                tokens.append(found)
                if len(tokens) == len(self.patterns):
                    return self._rewritten(tokens), found.end()
                choices.append(self._matches(len(tokens), content, found.end()))
        return None

    def _matches(self, number: int, content: bytearray, place: int) -> Iterator[re.Match[bytes]]:
        """What may be a unit at a place. A value may have what looks like an escape, so there may be several."""
        return (found for pattern in self.patterns[number] if (found := pattern.match(content, place)))

    def _rewritten(self, tokens: Sequence[re.Match[bytes]]) -> bytes:
        """The other value, each unit written as the one in its place, or as the last one, is."""
        last = len(tokens) - 1
        new: list[bytes] = []
        for number, unit in enumerate(self.its.units):
            token, own = tokens[min(number, last)][0], self.own.units[min(number, last)]
            new.append(token if own.value == unit.value else self.own.rewrite(bytes(token), unit.value))
        return b"".join(new)


class _Traces:
    """What is looked for, made ready once."""

    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        self._pairs: list[_Pair] = []
        for value, other in pairs:
            others = {its.way: its for its in spellings(other, least=0)}
            self._pairs += [_Pair(own, others[own.way], tuple(map(_compiled, own.units))) for own in spellings(value)]
        heads = dict.fromkeys(head for pair in self._pairs for head in _heads(pair.own))
        self._head = re.compile(b"|".join(heads)) if heads else _NOTHING

    def are_in(self, content: bytes) -> bool:
        """Whether any is there."""
        return next(self._places(bytearray(content)), None) is not None

    def replaced(self, content: bytes) -> bytes:
        """The content with all replaced."""
        seen, out, copied = bytearray(content), bytearray(), 0
        for start, end, new, pair in self._places(seen):
            out += seen[copied:start]
            if out:
                out[-1] = pair.own.before.moved_to(pair.its.before, out[-1])
            out += new
            if end < len(seen):
                seen[end] = pair.own.after.moved_to(pair.its.after, seen[end])
            copied = end
        return bytes(out + seen[copied:])

    def _places(self, content: bytearray) -> Iterator[tuple[int, int, bytes, _Pair]]:
        place = 0
        while found := self._head.search(content, place):
            place = found.start()
            for pair in self._pairs:
                if replacement := pair.replacement_at(content, place):
                    new, end = replacement
                    yield place, end, new, pair
                    place = end
                    break
            else:
                place += 1


_traces = lru_cache(maxsize=64)(_Traces)


@cache
def _compiled(unit: Unit) -> tuple[re.Pattern[bytes], ...]:
    return tuple(map(re.compile, unit.ways))


def _heads(spelling: Spelling) -> Iterator[bytes]:
    """Expressions for how it begins. Each begins with a byte that stands for itself, which is what makes `re` fast."""
    first, *others = spelling.units[:_HEAD]
    rest = b"".join(unit.pattern for unit in others)
    for way in first.ways:
        yield way + rest
