"""Workload profiles: what is sampled, judged and learnt from in some iterations, and on what devices.

A file is one JSON object, packed (`.gz`) or not, with the fields of `Profile`. Times are those of a model of devices:

    a sampler device   runs up to `slots` requests at once; with n running, each token of each takes
                       token_ms (1 + batch_slope n)
    the judge          has `judge_slots` slots for all devices together; a reward takes its `reward_s` on one of them
    the trainer        takes train_ms_per_token / (its devices) for each token
    a publish          takes `sync_s`
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from autoclave.core import DataError
from autoclave.core.files import existing_file, write_atomically
from autoclave.core.json import from_plain, parse_object, to_plain

_STRICT = ConfigDict(extra="forbid")
_Count = Annotated[int, Field(ge=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Work:
    """One response: how long it gets, and how long its reward takes."""

    __pydantic_config__ = _STRICT
    group: Annotated[int, Field(ge=0)]
    """Number of the prompt that it answers within its iteration."""
    tokens: _Count
    reward_s: _NotNegative


@dataclass(frozen=True, slots=True)
class Profile:
    """A workload and the devices it runs on; the module says what the times mean."""

    __pydantic_config__ = _STRICT
    profile: str
    """Its name."""
    devices: _Count
    """Of sampler and trainer together."""
    slots: _Count
    token_ms: _Positive
    batch_slope: _NotNegative
    judge_slots: _Count
    train_ms_per_token: _NotNegative
    mini_batches: _Count
    """Steps that an iteration is divided into by the minibatch pipeline."""
    sync_s: _NotNegative
    iterations: Annotated[tuple[Annotated[tuple[Work, ...], Field(min_length=1)], ...], Field(min_length=1)]
    """Of each iteration the responses, in the order in which they are asked for."""

    def token_s(self, running: int) -> float:
        """Seconds of a token of each of `running` requests on one device."""
        return self.token_ms / 1e3 * (1 + self.batch_slope * running)

    def train_s(self, tokens: int, devices: int) -> float:
        """Seconds of learning from `tokens` on `devices`."""
        return tokens * self.train_ms_per_token / 1e3 / devices

    def slowed(self, factor: float) -> Profile:
        """The same work where sampler, judge and trainer take `factor` times as long."""
        slower = tuple(tuple(replace(w, reward_s=w.reward_s * factor) for w in part) for part in self.iterations)
        token_ms, train_ms = self.token_ms * factor, self.train_ms_per_token * factor
        return replace(self, token_ms=token_ms, train_ms_per_token=train_ms, iterations=slower)

    def of_at_least(self, iterations: int) -> Profile:
        """The same iterations, all of them again until there are so many."""
        return replace(self, iterations=self.iterations * -(-iterations // len(self.iterations)))


def num_groups(works: Sequence[Work]) -> int:
    """Number of groups that the responses of an iteration belong to."""
    return len({work.group for work in works})


def read_profile(path: Path) -> Profile:
    """The profile in a file.

    Raises:
        InputError: there is no such file.
        DataError: it is damaged, or not a profile; the message begins with its name and names the field.
    """
    raw = existing_file(path, "profile").read_bytes()
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    profile = from_plain(Profile, parse_object(text, str(path)), str(path))
    for number, works in enumerate(profile.iterations):
        if (groups := num_groups(works)) < profile.mini_batches:
            raise DataError(
                f"{path}: iterations.{number} has {groups} groups, fewer than mini_batches = {profile.mini_batches}; "
                "a minibatch is made of whole groups, so lower mini_batches"
            )
    return profile


def write_profile(profile: Profile, path: Path) -> None:
    """Write a file that `read_profile` gives the same from; packed if its name ends in `.gz`.

    Raises:
        InputError: it cannot be written there.
        HostError: the disk is full or fails.
    """
    content = (json.dumps(to_plain(profile)) + "\n").encode()
    write_atomically(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
