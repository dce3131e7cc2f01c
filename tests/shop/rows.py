"""A table's rows while the history is made."""

from __future__ import annotations

import random
from typing import Any

RowDict = dict[str, Any]


class Rows:
    """Rows by key, of which any one can be drawn at once: the same draws give the same rows."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[Any, ...], RowDict] = {}
        self._keys: list[tuple[Any, ...]] = []
        self._places: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def any(self, dice: random.Random) -> RowDict:
        return self._by_key[dice.choice(self._keys)]

    def get(self, key: tuple[Any, ...]) -> RowDict | None:
        return self._by_key.get(key)

    def put(self, key: tuple[Any, ...], row: RowDict) -> None:
        if key not in self._by_key:
            self._places[key] = len(self._keys)
            self._keys.append(key)
        self._by_key[key] = row

    def remove(self, key: tuple[Any, ...]) -> None:
        del self._by_key[key]
        place, last = self._places.pop(key), self._keys.pop()
        if last != key:
            self._keys[place] = last
            self._places[last] = place
