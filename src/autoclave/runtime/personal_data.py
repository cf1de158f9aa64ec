"""Personal data out of prompts and back in at the boundary: the model sees placeholders, resources never do.

The same value has the same placeholder for the life of a `PersonalData`, so that the model can tell two people apart
without knowing either. Detectors are functions; those here know forms, not names of people, for which Presidio's are.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Found:
    """Personal data in a text: `text[start:end]`, of a kind such as `EMAIL`."""

    start: int
    end: int
    kind: str


Detector = Callable[[str], Iterable[Found]]

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(r"(?<![\w.])(?:\+|00)[1-9]\d{0,2}[ ()./-]{0,2}(?:\d[ ()./-]{0,2}){5,12}\d(?!\w)")
_CARD = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")
_ACCOUNT = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?!\w)")
_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w.:])")
_SOCIAL = re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])")
_PLACEHOLDER = re.compile(r"<([A-Z][A-Z_]*)_([1-9][0-9]*)>")


def known_forms(text: str) -> Iterator[Found]:
    """E-mail addresses, phone numbers with a country, payment cards and bank accounts whose check digits are right,
    IP addresses, and social security numbers of the United States.
    """
    forms: Sequence[tuple[str, re.Pattern[str], Callable[[str], bool]]] = (
        ("EMAIL", _EMAIL, lambda _: True),
        ("BANK_ACCOUNT", _ACCOUNT, _is_account),
        ("CARD", _CARD, _is_card),
        ("PHONE", _PHONE, lambda _: True),
        ("IP_ADDRESS", _ADDRESS, _is_address),
        ("SOCIAL_SECURITY", _SOCIAL, lambda _: True),
    )
    for kind, pattern, is_right in forms:
        for found in pattern.finditer(text):
            if is_right(found[0]):
                yield Found(found.start(), found.end(), kind)


def of_presidio(analyzer: Any, language: str = "en", least_score: float = 0.5) -> Detector:
    """What an `AnalyzerEngine` of Presidio finds (`presidio-analyzer`, to be installed with the models it wants)."""

    def detect(text: str) -> Iterator[Found]:
        for each in analyzer.analyze(text=text, language=language, score_threshold=least_score):
            yield Found(each.start, each.end, re.sub(r"[^A-Z]+", "_", each.entity_type.upper()).strip("_") or "OTHER")

    return detect


class PersonalData:
    """Placeholders for what `detectors` find, as long as this object lives."""

    def __init__(self, detectors: Sequence[Detector] = (known_forms,)) -> None:
        self._detectors = tuple(detectors)
        self._placeholders: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}

    def hide(self, text: str) -> str:
        """The text with placeholders. Where findings overlap, the longest counts, and the first of equally long ones.

        What looks like a placeholder by itself gets one, too, so that `restore` gives back what was there.
        """
        found = [each for detect in self._detectors for each in detect(text)]
        found += [Found(each.start(), each.end(), "TEXT") for each in _PLACEHOLDER.finditer(text)]
        chosen: list[Found] = []
        for each in sorted(found, key=lambda one: (one.start - one.end, one.start)):
            if each.start < each.end and all(each.end <= other.start or other.end <= each.start for other in chosen):
                chosen.append(each)
        out, place = "", 0
        for each in sorted(chosen, key=lambda one: one.start):
            out += text[place : each.start] + self._placeholder(each.kind, text[each.start : each.end])
            place = each.end
        return out + text[place:]

    def restore(self, text: str) -> str:
        """The text with the real values. Placeholders that were never given out stay."""
        return _PLACEHOLDER.sub(lambda found: self._values.get(found[0], found[0]), text)

    def restore_in(self, given: Any) -> Any:
        """JSON data with the real values, in names and values."""
        if isinstance(given, str):
            return self.restore(given)
        if isinstance(given, Mapping):
            return {self.restore(str(name)): self.restore_in(value) for name, value in given.items()}
        if isinstance(given, list | tuple):
            return [self.restore_in(each) for each in given]
        return given

    def _placeholder(self, kind: str, value: str) -> str:
        if (kind, value) not in self._placeholders:
            number = 1 + sum(1 for other, _ in self._placeholders if other == kind)
            self._placeholders[kind, value] = f"<{kind}_{number}>"
            self._values[f"<{kind}_{number}>"] = value
        return self._placeholders[kind, value]


def _is_card(text: str) -> bool:
    """Luhn's check (ISO/IEC 7812-1)."""
    digits = [int(each) for each in text if each.isdigit()]
    doubled = [each * 2 - 9 * (each > 4) for each in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_account(text: str) -> bool:
    """The check digits of an IBAN (ISO 13616)."""
    plain = text.replace(" ", "")
    return int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return text != "::"
