"""Last change per key the slow way: row by row, with dicts. What ``changes`` must come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sinks.table_form import ROW_OP, ROW_TS, UPSERT, TableForm
from tests.streaming.apply.blocks import Row

Place = tuple[str, int, int, int]  # topic, partition, offset, index
Key = tuple[Any, ...]
Values = dict[str, Any] | None  # None: deleted


@dataclass
class Expected:
    last: dict[Key, Values] = field(default_factory=dict)
    errors: dict[Place, str] = field(default_factory=dict)  # class, of every row
    of_cells: set[Place] = field(default_factory=set)  # those because of a cell beside the key


@dataclass(frozen=True, kw_only=True)
class SlowModel:
    """``casts``: by column, in the table's order; they raise ValueError for what is no value."""

    casts: Mapping[str, Callable[[str], Any]]
    key: Sequence[str]
    drops: bool = False
    ignored: frozenset[str] = frozenset()
    form: TableForm = UPSERT

    def run(self, rows: Iterable[Row], checkpoint: int, limit: int) -> Expected:
        expected = Expected()
        places: dict[Key, tuple[Any, ...]] = {}

        def put(key: Key, values: Values, row: Row) -> None:
            order = (row.ts, values is not None, row.offset, row.index, row.topic, row.partition)
            if key not in places or order > places[key]:
                places[key], expected.last[key] = order, values

        for row in rows:
            if not checkpoint < row.ts <= limit or row.op.lower() in self.ignored:
                continue
            place = (row.topic, row.partition, row.offset, row.index)
            error, values = self._read(row)
            if error is not None:
                expected.errors[place] = error.partition(" ")[0]
                if error == "cast cell":
                    expected.of_cells.add(place)
                continue
            key = self._key(row.data)
            assert key is not None
            is_moved = row.old is not None and self._is_moved(row)
            put(key, self._written(row, values, is_moved), row)
            if row.old is not None and is_moved:
                old_key = self._key({**row.data, **_told(row.old)})
                if old_key is None:
                    expected.errors[place] = "cast"
                else:
                    put(old_key, None, row)
        return expected

    def _read(self, row: Row) -> tuple[str | None, Values]:
        if row.error:
            return row.error[0], None
        if self._key(row.data) is None:
            return "cast key", None
        if row.op == "DELETE":
            return None, None
        try:
            values = {name: self._value(name, row.data.get(name)) for name in self.casts}
        except ValueError:
            return "cast cell", None
        if not self.drops and row.data.keys() - self.casts.keys():
            return "unknown-column", None
        return None, values

    def _written(self, row: Row, values: Values, is_moved: bool) -> Values:
        """With the columns of the form behind."""
        extra = {ROW_TS: row.ts, ROW_OP: "insert" if is_moved else row.op.lower()}
        return values and {**values, **{name: extra[name] for name in self.form.columns}}

    def _value(self, name: str, text: str | None) -> Any:
        return None if text is None else self.casts[name](text)

    def _key(self, data: Mapping[str, str | None]) -> Key | None:
        try:
            key = tuple(self._value(name, data.get(name)) for name in self.key)
        except ValueError:
            return None
        return None if None in key else key

    def _is_moved(self, row: Row) -> bool:
        old = _told(row.old or {})
        return any(
            name in old and row.data.get(name) is not None and old[name] != row.data[name]
            for name in self.key
        )


def _told(old: Mapping[str, str | None]) -> dict[str, str]:
    """What an old row lacks, or has as NULL, counts as unchanged."""
    return {name: text for name, text in old.items() if text is not None}
