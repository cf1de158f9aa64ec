"""Differences of texts, line by line, within a bounded time: an agent chooses the texts. Pure."""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_CONTEXT = 3
_CALL = 20  # steps


@dataclass(slots=True)
class Work:
    """The steps of comparing, some 0.1 µs each, that are left for all differences of one answer."""

    left: int = 600_000


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text. Only `\n` ends one, as in Git; a last line without it is marked."""
    lines = text.split("\n")
    return [*lines[:-1], *([f"{lines[-1]}\n\\ no line break at the end"] if lines[-1] else [])]


def hunks_of(old: Sequence[str], new: Sequence[str], work: Work) -> Iterable[list[tuple[str, int, int, int, int]]]:
    """Return groups of changes, as `difflib.SequenceMatcher.get_grouped_opcodes`; linear once no work is left."""
    return _Matcher(old, new, work).get_grouped_opcodes(_CONTEXT)


def unified(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str, work: Work) -> Iterator[str]:
    """Yield the lines of a patch; none where nothing differs."""
    for number, hunk in enumerate(hunks_of(old, new, work)):
        if not number:
            yield from (f"--- {old_name}", f"+++ {new_name}")
        (_, first, _, new_first, _), (_, _, last, _, new_last) = hunk[0], hunk[-1]
        yield f"@@ -{_range(first, last)} +{_range(new_first, new_last)} @@"
        for tag, first, last, new_first, new_last in hunk:
            if tag == "equal":
                yield from (f" {line}" for line in old[first:last])
            else:
                yield from (f"-{line}" for line in old[first:last])
                yield from (f"+{line}" for line in new[new_first:new_last])


def _range(first: int, last: int) -> str:
    count = last - first
    return f"{first + 1}" if count == 1 else f"{first + bool(count)},{count}"


class _Matcher(difflib.SequenceMatcher[str]):
    """Takes what is equal at both ends of a range first, and leaves a range that costs more than is left as it is."""

    def __init__(self, old: Sequence[str], new: Sequence[str], work: Work) -> None:
        super().__init__(None, old, new)
        self._old, self._new, self._work = old, new, work
        places: dict[str, list[int]] = vars(self)["b2j"]
        self._steps = list(itertools.accumulate((2 + len(places.get(line, ())) for line in old), initial=0))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        last, new_last = len(self._old) if ahi is None else ahi, len(self._new) if bhi is None else bhi
        most = min(last - alo, new_last - blo)
        if size := next((n for n in range(most) if self._old[alo + n] != self._new[blo + n]), most):
            return difflib.Match(alo, blo, size)
        if size := next((n for n in range(most) if self._old[last - 1 - n] != self._new[new_last - 1 - n]), most):
            return difflib.Match(last - size, new_last - size, size)
        steps = _CALL + self._steps[last] - self._steps[alo]
        if steps > self._work.left:
            return difflib.Match(alo, blo, 0)
        self._work.left -= steps
        return super().find_longest_match(alo, last, blo, new_last)
