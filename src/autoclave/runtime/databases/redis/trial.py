"""Whether commands take back what others do: tried on copies of the keys that they name.

The action is done only where these keys hold exactly what they held in the trial, and its commands do the same whenever
they are done: so what was seen here is what will happen. It is tried twice, since an undo may leave behind what is in
the way of the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.runtime.databases.redis.commands import Commands, require_allowed
from autoclave.runtime.databases.redis.store import Copy, State, Store
from autoclave.runtime.databases.redis.throwaway import ThrowAway


@dataclass(frozen=True, slots=True)
class Trial:
    """What commands do to the keys that they name: what these hold before and after."""

    keys: tuple[bytes, ...]
    before: State
    after: State

    @property
    def changed(self) -> list[bytes]:
        return [key for key in self.keys if self.before.get(key) != self.after.get(key)]

    def verb(self, key: bytes) -> str:
        """What becomes of a key, for the policy."""
        if key not in self.before:
            return "create"
        return "modify" if key in self.after else "delete"


def keys_of(operation: Commands, place: ThrowAway) -> list[bytes]:
    """The keys that an action and its undo name.

    Raises:
        InputError: a command is refused.
    """
    require_allowed(operation.commands, "command")
    require_allowed(operation.undo, "undo")
    return place.store.keys_of((*operation.commands, *operation.undo))


def try_out(operation: Commands, live: Store, place: ThrowAway, max_keys: int) -> Trial:
    """Try an action and its undo on copies.

    Raises:
        InputError: the action fails or changes nothing, or the undo does not bring back all that there was.
    """
    keys = keys_of(operation, place)
    if len(keys) > max_keys:
        raise InputError(f"names {len(keys)} keys, and max_rows is {max_keys}; do it in parts, or have that raised")
    place.load(copied := live.copy(keys))
    whole = place.store.all()
    before = place.store.state(keys)
    place.store.run(operation.commands)
    done, after = place.store.all(), place.store.state(keys)
    if done == whole:
        raise InputError("the commands change nothing as it is now")
    if {key for key in done.keys() | whole.keys() if done.get(key) != whole.get(key)} - set(keys):
        raise InputError("the commands change keys that they do not name")
    for time in ("", " the second time"):
        _require_same(operation.undo, place, whole, time)
        if not time:
            place.store.run(operation.commands)
            if place.store.all() != done:
                raise InputError("the commands do something else the second time")
    if live.state(keys) != before or live.copy(keys).keys() != copied.keys():
        raise InputError("others are changing the keys; try again")
    return Trial(tuple(keys), before, after)


def leads_to(commands: Sequence[Sequence[str]], keys: Sequence[bytes], copy: Copy, place: ThrowAway) -> State:
    """What keys hold after commands.

    Raises:
        InputError: one fails.
    """
    place.load(copy)
    place.store.run(commands)
    return place.store.state(keys)


def _require_same(undo: Sequence[Sequence[str]], place: ThrowAway, whole: State, time: str) -> None:
    try:
        place.store.run(undo)
    except InputError as error:
        raise InputError(f"undo: is wrong: it fails{time}: {error}") from None
    found = place.store.all()
    wrong = [key for key in {**whole, **found} if whole.get(key) != found.get(key)]
    if wrong:
        names = ", ".join(sorted(key.decode(errors="backslashreplace") for key in wrong)[:10])
        raise InputError(
            f"undo: is wrong: {names} would not be as before (value, type, or the time when it ends){time}"
        )
