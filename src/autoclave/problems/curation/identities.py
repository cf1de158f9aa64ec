"""Canonical names of a problem at its source: contest and problem, slug, or title.

Uses the address of the page and the key of the data set alone.
"""

import re
from urllib.parse import unquote, urlsplit

from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.statements import TABLES, plain_text, plain_words

_CODEFORCES = re.compile(
    r"/(?P<group>gym/|problemset/gymproblem/)?(?:problemset/problem/|problemset/gymproblem/|contest/|gym/)?"
    r"(?P<contest>\d+)/(?:problem/)?(?P<problem>[a-z]\d*)(?:/.*)?"
)
_KEY_OF_CODEFORCES = re.compile(r"(?:codeforces|cf)?[ /_:-]*(\d{1,5})[ /_:-]*([a-z]\d?)")


def identities(candidate: ProblemCandidate) -> frozenset[str]:
    """Return the unique names of a problem, such as `codeforces/1349/a`; an empty set for an unknown origin."""
    origin = candidate.origin
    found = {address(origin.url), _key(origin.key, candidate.problem.source or origin.set)}
    return frozenset(name for name in found if name)


def address(url: str) -> str:
    """Return the problem of a page, or else the normalised address; empty for an address without a page."""
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
    for site, (name, prefix) in _SITES.items():
        if host == site or host.endswith(f".{site}"):
            if name == "codeforces":
                return _codeforces(path) or f"{site}{path}"
            found = re.fullmatch(rf"{prefix}([^/]+)(?:/.*)?", path)
            return f"{name}/{found[1]}" if found else f"{site}{path}"
    return f"{host}{path}" if path else ""


def _codeforces(path: str) -> str:
    found = _CODEFORCES.fullmatch(path)
    if not found:
        return ""
    contest = f"gym{found['contest']}" if found["group"] or "/gym" in path else found["contest"]
    return f"codeforces/{contest}/{found['problem']}"


_SITES = {
    "codeforces.com": ("codeforces", ""),
    "codeforces.ml": ("codeforces", ""),
    "leetcode.com": ("leetcode", "(?:/contest/[^/]+)?/problems/"),
    "leetcode.cn": ("leetcode", "(?:/contest/[^/]+)?/problems/"),
    "leetcode-cn.com": ("leetcode", "(?:/contest/[^/]+)?/problems/"),
    "atcoder.jp": ("atcoder", "(?:/contests/[^/]+)?/tasks/"),
    "codechef.com": ("codechef", "(?:/[^/]+)?/problems/"),
    "codewars.com": ("codewars", "/kata/"),
    "hackerrank.com": ("hackerrank", "(?:/contests/[^/]+)?/challenges/"),
}
"""Host -> name of the site, and a pattern of the path before the name of a problem."""


def _key(key: str, source: str) -> str:
    """Return an upstream id with its site; empty for a bare number, since every set counts from 0."""
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
_COMMON_TITLES = frozenset(TABLES["common titles"])


def title_words(title: str, fewest: int) -> str:
    """Return a normalised title without its letter or number in a contest; empty for a common or short title."""
    words = plain_words(plain_text(_LABEL.sub("", title)))
    spelt = " ".join(words)
    return "" if len(words) < fewest or spelt in _COMMON_TITLES else spelt
