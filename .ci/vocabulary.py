"""Count the retired words of `vocabulary.yaml` in the files that Git tracks; exits with 1 if there is one.

python .ci/vocabulary.py
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
EXEMPT = (".ci/vocabulary", "CHANGELOG.md", "tests/config/test_mistakes.py")
"""Files that have to name what was retired."""
ALLOWED = {'"pinned lessons"'}
"""A seed: another string would draw other samples."""
PROSE = {".md", ".yaml", ".yml", ".toml", ".j2", ".sh"}
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of the file."""

    identifiers: re.Pattern[str] | None
    prose: re.Pattern[str] | None
    use: str
    scope: tuple[str, ...]

    def applies_to(self, path: str) -> bool:
        """Return whether the file at `path` is in scope."""
        return any(path.startswith(prefix) for prefix in self.scope)


def read_rules() -> list[Rule]:
    """Return the rules of `vocabulary.yaml`."""
    entries = yaml.safe_load((ROOT / ".ci" / "vocabulary.yaml").read_text(encoding="utf-8"))
    return [
        Rule(
            re.compile(entry["identifiers"]) if "identifiers" in entry else None,
            re.compile(rf"(?<!\w)(?:{entry['prose']})(?!\w)") if "prose" in entry else None,
            entry["use"],
            tuple(entry.get("scope", ("",))),
        )
        for entry in entries
    ]


def words_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text, and whether it is an identifier, of everything in a file that a rule can match."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from ((number, line, False) for number, line in enumerate(text.splitlines(), 1))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string, True
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from ((token.start[0] + n, line, False) for n, line in enumerate(token.string.splitlines()))


def findings(path: str, rules: list[Rule]) -> Iterator[str]:
    """Yield a line for each retired word in a file."""
    rules = [rule for rule in rules if rule.applies_to(path)]
    for number, text, is_identifier in words_of(ROOT / path):
        for rule in rules:
            if is_identifier:
                pattern = rule.identifiers
                has = pattern and any(pattern.fullmatch(part.lower()) for part in _PARTS.findall(text))
            else:
                has = rule.prose and text not in ALLOWED and rule.prose.search(text)
            if has:
                yield f"{path}:{number}: {text.strip()[:100]!r}: use {rule.use}"


def main() -> None:
    rules = read_rules()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    paths = [path for path in listed if Path(path).suffix in {".py", *PROSE} and not path.startswith(EXEMPT)]
    found = [line for path in paths if (ROOT / path).is_file() for line in findings(path, rules)]
    if found:
        sys.exit("\n".join(found) + f"\n{len(found)} retired words")


if __name__ == "__main__":
    main()
