"""A cache that forgets what was used least recently."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Values by key whose sizes are `limit` in all at most. For several threads."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def add(self, key: K, value: V, size: int) -> V:
        """Return `value`, or what the cache has for `key` already."""
        with self._lock:
            if key not in self._entries:
                self._entries[key] = value, size
                self.size += size
                while self.size > self.limit:
                    self.size -= self._entries.popitem(last=False)[1][1]
                return value
            return self._entries[key][0]
