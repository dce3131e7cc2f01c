"""Last change per key the slow way: row by row, with dicts. What ``changes`` must come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sinks.target.write_mode import ROW_DELETED, ROW_OP, ROW_TS, UPSERT, WriteMode
from tests.streaming.apply.blocks import Row

Place = tuple[str, int, int]  # part, position, index
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
    form: WriteMode = UPSERT

    def run(self, rows: Iterable[Row], checkpoint: int, limit: int) -> Expected:
        expected = Expected()
        places: dict[Key, tuple[Any, ...]] = {}

        def put(key: Key, op: str, values: Values, row: Row) -> None:
            order = (row.ts, op != "delete", row.position, row.index, row.part)
            if key not in places or order > places[key]:
                places[key], expected.last[key] = order, self._written(row, op, values)

        due = (row for row in rows if checkpoint < row.ts <= limit)
        for row in (row for row in due if row.op.lower() not in self.ignored):
            place = (row.part, row.position, row.index)
            error, values = self._read(row)
            if error is not None:
                expected.errors[place] = error.partition(" ")[0]
                if error == "cast cell":
                    expected.of_cells.add(place)
                continue
            key = self._key(row.data)
            assert key is not None
            if row.old is None or not self._is_moved(row):
                put(key, row.op.lower(), values, row)
                continue
            old_key, old_values = self._read_old(row, row.old)
            if old_key is None or old_values is None:
                expected.errors[place] = "cast"
            if old_values is None:
                expected.of_cells.add(place)
                continue
            put(key, "insert", values, row)
            if old_key is not None:
                put(old_key, "delete", old_values, row)
        return expected

    def _read(self, row: Row) -> tuple[str | None, Values]:
        if row.error:
            return row.error[0], None
        if self._key(row.data) is None:
            return "cast key", None
        if row.op == "DELETE" and not self.form.soft_delete:
            return None, None
        try:
            values = {name: self._value(name, row.data.get(name)) for name in self.casts}
        except ValueError:
            return "cast cell", None
        if not self.drops and row.data.keys() - self.casts.keys():
            return "unknown-column", None
        return None, values

    def _written(self, row: Row, op: str, values: Values) -> Values:
        """With the columns of the form behind."""
        extra = {ROW_TS: row.ts, ROW_OP: op, ROW_DELETED: op == "delete"}
        if values is None or (op == "delete" and not self.form.soft_delete):
            return None
        return {**values, **{name: extra[name] for name in self.form.columns}}

    def _read_old(self, row: Row, old: Mapping[str, str | None]) -> tuple[Key | None, Values]:
        """The old key, None where there is no value for it, and the old row, None where it is
        bad."""
        texts = {**row.data, **_told(old)}
        told = {**old, **{name: texts.get(name) for name in self.key}}
        key = self._key(told)
        if key is None or not self.form.soft_delete:
            return key, {}
        try:
            return key, {name: self._value(name, told.get(name)) for name in self.casts}
        except ValueError:
            return key, None

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
