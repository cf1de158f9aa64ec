"""Placeholders for personal data in prompts: the model sees placeholders, resources see the real values.

The same value has the same placeholder for the life of a `PersonalData`, so that the model can tell two people apart
without knowing either. Recognised by format; names of people are not recognised.
"""

import functools
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"<[A-Z][A-Z_]*_[1-9][0-9]*>")
_FORMS = {
    "TEXT": _PLACEHOLDER,  # a literal placeholder gets one too, so that `restore` returns it unchanged
    "EMAIL": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "BANK_ACCOUNT": re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?!\w)"),
    "CARD": re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"),
    "PHONE": re.compile(r"(?<![\w.])(?:\+|00)[1-9]\d{0,2}[ ()./-]{0,2}(?:\d[ ()./-]{0,2}){5,12}\d(?!\w)"),
    "IP_ADDRESS": re.compile(
        r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w.:])"
    ),
    "SOCIAL_SECURITY": re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])"),  # of the US
}


class PersonalData:
    """Placeholders for personal data, valid for the life of this object."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}

    def hide(self, text: str) -> str:
        for kind, pattern in _FORMS.items():
            text = pattern.sub(functools.partial(self._placeholder, kind), text)
        return text

    def restore(self, text: str) -> str:
        """Replace placeholders by the real values. Unknown placeholders stay."""
        return _PLACEHOLDER.sub(lambda found: self._values.get(found[0], found[0]), text)

    def _placeholder(self, kind: str, found: re.Match[str]) -> str:
        value = found[0]
        if not _is_right(kind, value):
            return value
        if (kind, value) not in self._placeholders:
            number = 1 + sum(1 for other, _ in self._placeholders if other == kind)
            self._placeholders[kind, value] = f"<{kind}_{number}>"
            self._values[f"<{kind}_{number}>"] = value
        return self._placeholders[kind, value]


def in_all_text(change: Callable[[str], str], given: Any) -> Any:
    """Apply a change to all text in JSON data, in names and values."""
    if isinstance(given, str):
        return change(given)
    if isinstance(given, Mapping):
        return {change(str(name)): in_all_text(change, value) for name, value in given.items()}
    return [in_all_text(change, each) for each in given] if isinstance(given, list | tuple) else given


def _is_right(kind: str, text: str) -> bool:
    """Return whether the check digits of an IBAN (ISO 13616) or card (ISO/IEC 7812-1), or an address, are valid."""
    if kind == "BANK_ACCOUNT":
        plain = text.replace(" ", "")
        return int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1
    if kind == "CARD":
        digits = [int(each) for each in text if each.isdigit()]
        doubled = [each * 2 - 9 * (each > 4) for each in digits[-2::-2]]
        return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
    if kind == "IP_ADDRESS":
        try:
            return ipaddress.ip_address(text) != ipaddress.ip_address("::")
        except ValueError:
            return False
    return True
