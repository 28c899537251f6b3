"""What was computed for images is remembered, the least recently used forgotten first."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any


class LRUCache:
    """The `most` things that were used last, by their keys."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._things: OrderedDict[Hashable, Any] = OrderedDict()  # the least recently used first
        self._lock = threading.Lock()

    def find(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """Those of the keys that are known, with their things; they count as used."""
        with self._lock:
            found = {key: self._things[key] for key in keys if key in self._things}
            for key in found:
                self._things.move_to_end(key)
        return found

    def keep(self, things: Mapping[Any, Any]) -> None:
        """Add things, and let those go that were not used for longest."""
        with self._lock:
            self._things.update(things)
            for key in things:
                self._things.move_to_end(key)
            while len(self._things) > self.most:
                self._things.popitem(last=False)
