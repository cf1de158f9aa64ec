"""Grants, by which a person permits or forbids something. Pure."""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal
from urllib.parse import quote, unquote

from pydantic import Field, field_validator

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import validated
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.globs import literal_prefix, loose, matcher, names_in
from autoclave.runtime.records import Record

PROTECTED = (".git", ".ssh", ".gnupg", ".aws", ".env", ".netrc", ".bashrc", ".profile", ".zshrc", "authorized_keys")
"""Names that no allowance covers, with all below them, unless it names them literally. A command that may read a whole
folder sees those that hold no secrets."""
_WITH_SECRETS = {".ssh", ".gnupg", ".aws", ".env", ".netrc"}
_SECRET = re.compile(
    r"\.env\.(?!(?:example|sample|template|dist)\Z).*|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|\.(?:git-credentials|npmrc|pypirc|pgpass)"
    r"|.*\.(?:key|p12|pfx|jks|keystore|ppk)"
)
"""Names of files with keys or passwords, which no allowance to read covers unless it names them literally."""
_STATES = ".autoclave-"
"""A prefix of names that are protected likewise: state folders of sessions."""
Verb = Literal["read", "create", "modify", "delete", "rename", "set_mode", "run", "import", "use", "define"]
_ANY_NAME = "\0" * 64
"""A name that a pattern matches only if it matches all names."""
_GLOB = re.compile(r"[*?]")
COUNTED = ("files", "bytes_written", "bytes_deleted", "rows", "spend")
"""The amounts of an access, by the names of its fields; a grant may limit each (`max_...`)."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NonNegative = Field(default=None, ge=0)


class Grant(Config):
    """A permission, or with the effect `forbid` a prohibition that no permission overrides."""

    id: str = Field(default_factory=lambda: secrets.token_hex(4))
    effect: Literal["allow", "forbid"] = "allow"
    resources: tuple[str, ...] = Field(strict=False, min_length=1)
    """Patterns such as `files/src/**`, `programs/*`, `services/slack`."""
    verbs: tuple[Literal["*", Verb], ...] = Field(strict=False, min_length=1)
    """`*` for all."""
    excluded: tuple[str, ...] = Field(default=(), strict=False)
    """Patterns of what it does not cover."""
    session: str = ""
    """The session that it is for; empty: all on this state."""
    parent: str = ""
    """The grant that this one narrows, which must permit the same access."""
    expires_at: float | None = None
    """In seconds since 1970."""
    max_uses: int | None = _NonNegative
    max_files: int | None = _NonNegative
    """For all uses together, like the following limits."""
    max_bytes_written: int | None = _NonNegative
    max_bytes_deleted: int | None = _NonNegative
    max_rows: int | None = _NonNegative
    max_spend: float | None = _NonNegative
    """In the unit of the services."""
    minimum_guarantee: Guarantee = Field(default=Guarantee.COMPENSATING, strict=False)
    """The least guarantee that an action must have."""

    @field_validator("resources", "excluded")
    @classmethod
    def _are_patterns(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in given:
            names = pattern.split("/")
            if any(name in ("", ".", "..") or ("**" in name and name != "**") for name in names):
                raise ValueError(f"{pattern!r} must be names between single slashes; ** stands alone as a name")
            literal = _GLOB.sub("", "/".join(names[2:])) if names[0] == "services" else ""
            if (plain := quote(unquote(literal))) != literal:
                raise ValueError(f"{pattern!r} must be spelt as plans spell paths, with percent signs: {plain!r}")
        return given

    def is_about(self, verb: str) -> bool:
        return "*" in self.verbs or verb in self.verbs

    def covers(self, verb: str, resource: str) -> bool:
        if not self.is_about(verb):
            return False
        if verb == "read" and resource.endswith("/**"):  # for other verbs it is a literal name
            return self._covers_all_below(resource)
        if self.effect == "forbid":  # including names that some file systems take for the same
            plain = loose(resource)
            return bool(
                matcher(self.resources, is_loose=True).fullmatch(plain)
                and not matcher(self.excluded).fullmatch(resource)
            )
        return bool(
            resource.startswith(self.prefixes)
            and matcher(self.resources).fullmatch(resource)
            and not (self.excluded and matcher(self.excluded, is_loose=True).fullmatch(loose(resource)))
            and (self._may_read(resource) if verb == "read" else not self._is_protected(resource))
        )

    def covers_all(self, verb: str, resources: Sequence[str]) -> bool:
        """Return whether the grant covers every one of many resources, quickly."""
        names = loose("\n".join(resources))
        if self.effect == "forbid" or self.excluded or verb == "read" or any(each in names for each in _MARKS):
            return all(self.covers(verb, each) for each in resources)
        return self.is_about(verb) and all(map(matcher(self.resources).fullmatch, resources))

    def _covers_all_below(self, subtree: str) -> bool:
        """Return whether the grant applies to a subtree whose names are unknown."""
        place = subtree.removesuffix("/**")

        def is_near(pattern: str) -> bool:  # something in the subtree may match it
            prefix = literal_prefix(pattern)
            return prefix.startswith(place) or place.startswith(prefix)

        if self.effect == "forbid":
            return any(map(is_near, self.resources))
        depths = ("/".join([_ANY_NAME] * depth) for depth in (1, 2, 40))
        covers_all = all(matcher(self.resources).fullmatch(f"{place}/{each}") for each in depths)
        return covers_all and not any(map(is_near, self.excluded))

    @property
    def is_limited(self) -> bool:
        """True if its decisions depend on earlier charges."""
        return any(getattr(self, f"max_{name}") is not None for name in ("uses", *COUNTED))

    def is_over(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def _is_protected(self, resource: str) -> bool:
        names = protected_names(resource)
        return bool(names) and not names <= self._literal_names

    def _may_read(self, resource: str) -> bool:
        if not resource.startswith("files/"):
            return True
        return not self._is_protected(resource) and (not has_secret_name(resource) or self.has_name_of(resource))

    def has_name_of(self, resource: str) -> bool:
        """Return whether a pattern has the last name of a resource literally."""
        return loose(resource.rpartition("/")[2]) in map(loose, self._literal_names)

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(map(literal_prefix, self.resources))

    @cached_property
    def _literal_names(self) -> frozenset[str]:
        return names_in(self.resources)


_PROTECTED = frozenset(map(loose, PROTECTED))
_MARKS = (*_PROTECTED, _STATES)


def protected_names(path: str) -> set[str]:
    """Return the names in a path that only a grant with the literal name covers."""
    return {name for name in loose(path).split("/") if name in _PROTECTED or name.startswith(_STATES)}


def has_secret_name(path: str) -> bool:
    """Return whether its name says that a file holds keys or passwords, so that a grant must name it."""
    return bool(_SECRET.fullmatch(loose(path.rpartition("/")[2])))


@lru_cache(maxsize=1 << 16)
def is_secret(path: str) -> bool:
    """Return whether the name of a file, or of a folder above it, says that it holds keys or passwords."""
    return has_secret_name(path) or not _WITH_SECRETS.isdisjoint(loose(path).split("/"))


def grant_from(given: Mapping[str, Any], where: str = "grant") -> Grant:
    """Return a grant from JSON data. Raises InputError where it is not valid; the message begins with `where`."""
    return validated(Grant, given, where, "grant")


def seconds_of(text: str) -> float:
    """Convert a time such as `90s`, `30m`, `8h` or `7d` to seconds."""
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)):
        raise InputError(f"time {text!r}: must be a number and a unit, such as 90s, 30m, 8h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def active(records: Iterable[Record], session: str) -> list[Grant]:
    """Return the grants of a session, without revoked ones and those that narrow them."""
    grants: dict[str, Grant] = {}
    for record in records:
        if record.kind == "grant":
            given = {name: value for name, value in record.body.items() if name != "signature" and value is not None}
            grants[record.subject] = Grant.model_validate(given)
        elif record.kind == "revoke":
            grants.pop(record.subject, None)
    while revoked := [each.id for each in grants.values() if each.parent and each.parent not in grants]:
        for each in revoked:
            del grants[each]
    return [grant for grant in grants.values() if grant.session in ("", session)]


def shown_grant(grant: Grant) -> str:
    words = [grant.id, grant.effect, ",".join(grant.verbs), " ".join(grant.resources)]
    words += [f"but not {' '.join(grant.excluded)}"] if grant.excluded else []
    limits = grant.model_dump(exclude_none=True, exclude={"id", "effect", "verbs", "resources", "excluded"})
    words += [f"{name}={value}" for name, value in limits.items() if value != "" and name != "minimum_guarantee"]
    return "  ".join(words)


def lint(grants: Iterable[Grant], now: float) -> list[str]:
    """Return warnings about grants that may be unintended."""
    told: list[str] = []
    found = list(grants)
    for grant in found:
        if grant.is_over(now):
            told.append(f"{grant.id}: its time is over")
        wide = [pattern for pattern in grant.resources if pattern in ("**", "files/**")]
        if grant.effect == "allow" and wide and {"*", "delete"} & set(grant.verbs) and grant.max_files is None:
            told.append(f"{grant.id}: allows to delete everything ({wide[0]}); max_files bounds it")
        if grant.effect == "allow" and any(
            other.effect == "forbid" and set(grant.resources) <= set(other.resources) and set(other.verbs) >= {"*"}
            for other in found
        ):
            told.append(f"{grant.id}: permits nothing, since another forbids it")
    return told
