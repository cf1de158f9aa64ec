"""What a problem is called at its source, in one spelling: contest and problem, slug, or title.

Nothing is looked up: the page's address and the key of the data set are all that is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.statements import plain_text, plain_words

_CODEFORCES = re.compile(
    r"/(?P<group>gym/|problemset/gymproblem/)?(?:problemset/problem/|problemset/gymproblem/|contest/|gym/)?"
    r"(?P<contest>\d+)/(?:problem/)?(?P<problem>[a-z]\d*)(?:/.*)?"
)
_LEETCODE = re.compile(r"(?:/contest/[^/]+)?/problems/([^/]+)(?:/.*)?")
_ATCODER = re.compile(r"/contests/[^/]+/tasks/([^/]+)(?:/.*)?")
_OLD_ATCODER = re.compile(r"/tasks/([^/]+)(?:/.*)?")
_CODECHEF = re.compile(r"(?:/[^/]+)?/problems/([^/]+)(?:/.*)?")
_CODEWARS = re.compile(r"/kata/([^/]+)(?:/.*)?")
_HACKERRANK = re.compile(r"(?:/contests/[^/]+)?/challenges/([^/]+)(?:/.*)?")
_KEY_OF_CODEFORCES = re.compile(r"(?:codeforces|cf)?[ /_:-]*(\d{1,5})[ /_:-]*([a-z]\d?)")


def identities(candidate: Candidate) -> frozenset[str]:
    """Names such as `codeforces/1349/a` that only this problem has; none where its origin is unknown."""
    origin = candidate.origin
    found = {address(origin.url), _key(origin.key, candidate.problem.source or origin.set)}
    return frozenset(name for name in found if name)


def address(url: str) -> str:
    """The problem that a page is about, or the page in one spelling, or nothing for no page of its own."""
    text = unquote(url.strip()).casefold()
    if not text:
        return ""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host = parts.hostname or ""
    except ValueError:
        return ""
    host = re.sub(r"^(?:www|m|m\d|mirror|beta)\.", "", host)
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    for site, name_of in _SITES.items():
        if host == site or host.endswith(f".{site}"):
            return name_of(host, path) or f"{site}{path}"
    return f"{host}{path}" if path else ""


def _codeforces(host: str, path: str) -> str:
    found = _CODEFORCES.fullmatch(path)
    if not found:
        return ""
    contest = f"gym{found['contest']}" if found["group"] or "/gym" in path else found["contest"]
    return f"codeforces/{contest}/{found['problem']}"


def _atcoder(host: str, path: str) -> str:
    found = _ATCODER.fullmatch(path) or _OLD_ATCODER.fullmatch(path)
    return f"atcoder/{found[1]}" if found else ""


def _by_last_part(site: str, pattern: re.Pattern[str]) -> Callable[[str, str], str]:
    def name_of(host: str, path: str) -> str:
        found = pattern.fullmatch(path)
        return f"{site}/{found[1]}" if found else ""

    return name_of


_SITES: dict[str, Callable[[str, str], str]] = {
    "codeforces.com": _codeforces,
    "codeforces.ml": _codeforces,
    "leetcode.com": _by_last_part("leetcode", _LEETCODE),
    "leetcode.cn": _by_last_part("leetcode", _LEETCODE),
    "leetcode-cn.com": _by_last_part("leetcode", _LEETCODE),
    "atcoder.jp": _atcoder,
    "codechef.com": _by_last_part("codechef", _CODECHEF),
    "codewars.com": _by_last_part("codewars", _CODEWARS),
    "hackerrank.com": _by_last_part("hackerrank", _HACKERRANK),
}


def _key(key: str, source: str) -> str:
    """An id upstream, with the site that it is of; a bare number is not one, since every set counts from 0."""
    text = key.strip().casefold().rstrip("/")
    if "://" in text:
        return address(text)
    is_codeforces = text.startswith(("codeforces", "cf")) or "codeforces" in source.casefold()
    if is_codeforces and (found := _KEY_OF_CODEFORCES.fullmatch(text)):
        return f"codeforces/{found[1]}/{found[2]}"
    site, _, rest = text.partition("/")
    if site in _KEYED and rest:
        return f"{site}/{rest}"
    return f"atcoder/{text}" if re.fullmatch(r"(?:abc|arc|agc|ahc)\d{3}_[a-z]\d?", text) else ""


_KEYED = ("leetcode", "atcoder", "codechef", "codewars", "hackerrank", "humaneval", "mbpp")
_LABEL = re.compile(r"^\s*(?:problem\s+)?(?:[a-z]\d?|\d{1,4}[a-z]\d?|\d{1,4})\s*[.):-]\s+", re.IGNORECASE)
_COMMON_TITLES = frozenset(
    """
hello world|a plus b|a b|sum|two sum|sort|sorting|binary search|fibonacci|fibonacci numbers|factorial|prime numbers
palindrome|palindromes|queries|array|arrays|strings|string|matrix|game|simple game|shortest path|maximum sum|minimum sum
""".strip()
    .replace("\n", "|")
    .split("|")
)


def title_words(title: str, fewest: int) -> str:
    """A title in one spelling, without its letter or number in a contest; nothing for one that many problems have."""
    words = plain_words(plain_text(_LABEL.sub("", title)))
    spelt = " ".join(words)
    return "" if len(words) < fewest or spelt in _COMMON_TITLES else spelt
