"""Random histories of a table whose shape changes: the model changes its rows by rules of its own.

The rules are written a second time here, plainly and of few types; what MySQL makes of each type is
in ``test_type_changes.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, ClassVar

from deltalake import DeltaTable

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.alter.rewrite import PartMapper, one_by_one
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.clean_up import clean_files
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.sinks.merge_on_write.histories import NAMES, POOLS, History, Row, read
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

__all__ = ["AlteredHistory", "column"]


def column(name: str, kind: str) -> Column:
    return Column(name=name, type=MySQLType.parse(kind))


def _to_int(value: Any) -> int:
    if not -(2**31) <= value < 2**31:
        raise ValueError(value)
    return int(value)


# From type to type, by a rule that raises ValueError where a value has no place.
CHANGES: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "tinyint": {"smallint": int, "bigint": int, "varchar(90)": str, "decimal(5,2)": Decimal},
    "smallint": {"int": int, "varchar(90)": str},
    "int": {"bigint": int, "varchar(90)": str},
    "bigint": {"int": _to_int, "varchar(90)": str},
    "decimal(5,2)": {"decimal(38,10)": Decimal, "varchar(90)": lambda value: f"{value:.2f}"},
    "varchar(90)": {"varbinary(9)": str.encode, "varchar(200)": str},
    "date": {"datetime(6)": lambda day: datetime.combine(day, time_of_day())},
    "year": {"int": int, "varchar(90)": str},
}
FILLS: Mapping[str, Mapping[str, Any]] = {
    "int": {"0": 0, "-7": -7},
    "varchar(90)": {"": "", "new": "new"},
    "decimal(5,2)": {"1.50": Decimal("1.50")},
}


@dataclass(kw_only=True)
class AlteredHistory(History):
    """Every table is mapped by name, and every third step is a DDL."""

    MAPPED: ClassVar = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.limit = 10  # behind the CREATE TABLE
        self.map_parts: PartMapper = one_by_one
        self.kept: dict[str, list[Row]] = {}  # of dropped tables, by their URI

    def step(self) -> None:
        if self.dice.random() < 0.6:
            super().step()
            return
        steps = [
            *(self.add, self.add_filled, self.drop, self.rename, self.reorder, self.retype),
            *(self.rekey, self.several, self.truncate, self.drop_and_create),
        ]
        chosen = self.dice.choices(steps, (3, 2, 2, 3, 2, 4, 2, 3, 0.4, 1))[0]
        self.log.append(chosen.__name__)
        chosen()

    # Each change is of the columns so far, and says what a row becomes.

    def add(self) -> None:
        self.alter(self._added({}))

    def add_filled(self) -> None:
        self.alter(self._added(FILLS))

    def drop(self) -> None:
        self.alter(self._dropped())

    def rename(self) -> None:
        self.alter(self._renamed())

    def reorder(self) -> None:
        self.alter(self._reordered())

    def retype(self) -> None:
        self.alter(self._retyped())

    def rekey(self) -> None:
        self.alter(self._rekeyed())

    def several(self) -> None:
        """In one statement: a name that is dropped may come again as another column."""
        change = self._dropped()
        for more in (self._renamed, self._added_again, self._reordered):
            change = more(change)
        self.alter(change)

    def truncate(self) -> None:
        self.ddl(None, empties=True)
        self.rows.clear()

    def drop_and_create(self) -> None:
        """The name comes again, with other columns; a replay of either changes nothing."""
        on_drop = self.dice.choice(("keep", "drop"))
        identity = self.identity()
        self.ddl(None, on_drop=on_drop)
        if on_drop == "keep" and self.rows:  # else there may be no files
            self.kept[kept_uri(self.target.uri, identity)] = list(self.rows.values())
        self.rows.clear()
        self.target = replace(self.target, schema=self.random_schema())
        self.limit += 2
        origin = ownership(changefeed_id="shop", incarnation=1, ddl=self.identity())
        for _ in range(2):
            create(self.target, properties=origin)

    def check_kept(self) -> None:
        """Whatever is cleaned in the place where they were."""
        storage = LocalStorage(self.target.uri)
        state = read_log(storage)
        assert state is not None
        clean_files(storage, state, now_ms=int(time.time() * 1000) + 10**9, retention_ms=0)
        for uri, rows in self.kept.items():
            problem = self.difference(read(DeltaTable(uri)), rows)
            assert problem is None, f"{uri}: {problem} after {self.log}"

    def start(self) -> SchemaChange:
        schema = self.target.schema
        sources = {each.name: each.name for each in schema.delivered}
        return SchemaChange(before=schema, after=schema, sources=sources, fills={})

    def _added(
        self, fills: Mapping[str, Mapping[str, Any]], change: SchemaChange | None = None
    ) -> SchemaChange:
        change = change or self.start()
        free = [name for name in NAMES if name not in change.sources]
        if not free:
            return change
        name, kind = self.dice.choice(free), self.dice.choice(sorted(fills or POOLS))
        at = self.dice.randint(0, len(change.after.columns))
        columns = [*change.after.columns]
        columns.insert(at, column(name, kind))
        texts = {name: self.dice.choice(sorted(fills[kind]))} if fills else {}
        return _changed(change, columns, {name: None}, fills={**change.fills, **texts})

    def _added_again(self, change: SchemaChange) -> SchemaChange:
        return self._added({}, change)

    def _dropped(self) -> SchemaChange:
        change = self.start()
        others = [each for each in change.after.columns if each.name not in self.key]
        if len(others) < 2:
            return change
        gone = self.dice.choice(others)
        columns = [each for each in change.after.columns if each != gone]
        sources = {name: of for name, of in change.sources.items() if name != gone.name}
        return replace(change, after=replace(change.after, columns=tuple(columns)), sources=sources)

    def _renamed(self, change: SchemaChange | None = None) -> SchemaChange:
        change = change or self.start()
        old = self.dice.choice(change.after.columns)
        free = [name for name in NAMES if name not in change.sources]
        if not free:
            return change
        new = replace(old, name=self.dice.choice(free))
        columns = [new if each == old else each for each in change.after.columns]
        key = [new.name if name == old.name else name for name in change.after.key]
        sources = {name: of for name, of in change.sources.items() if name != old.name}
        sources[new.name] = change.sources[old.name]
        after = replace(change.after, columns=tuple(columns), key=tuple(key))
        return replace(change, after=after, sources=sources)

    def _reordered(self, change: SchemaChange | None = None) -> SchemaChange:
        change = change or self.start()
        columns = self.dice.sample(change.after.columns, len(change.after.columns))
        return replace(change, after=replace(change.after, columns=tuple(columns)))

    def _retyped(self) -> SchemaChange:
        change = self.start()
        able = [each for each in change.after.columns if str(each.type) in CHANGES]
        if not able:
            return change
        old = self.dice.choice(able)
        new = column(old.name, self.dice.choice(sorted(CHANGES[str(old.type)])))
        columns = [new if each == old else each for each in change.after.columns]
        return replace(change, after=replace(change.after, columns=tuple(columns)))

    def _rekeyed(self) -> SchemaChange:
        change = self.start()
        names = [each.name for each in change.after.columns]
        key = self.dice.sample(names, self.dice.randint(1, min(3, len(names))))
        return replace(change, after=replace(change.after, key=tuple(key)))

    # What is done, and what must come of it.

    def alter(self, change: SchemaChange) -> None:
        """Refused where the model refuses, and then nothing has changed."""
        try:
            rows = self.model(change)
        except ValueError:
            version = self.version()
            try:
                self.ddl(change)
            except TidelakeError:
                assert self.version() == version
                return
            raise AssertionError(f"seed {self.seed}: not refused after {self.log}") from None
        outcome = self.ddl(change)
        assert isinstance(outcome, Applied), outcome
        pools = {}
        for each in change.after.columns:
            pools[each.name] = POOLS.get(str(each.type), POOLS["varchar(90)"])
        self.pools = pools
        self.target = replace(self.target, schema=change.after)
        self.rows = rows

    def identity(self) -> DdlIdentity:
        """Of the next DDL."""
        return DdlIdentity(commit_ts=Ts(self.limit + 1), order=len(self.log), query="ALTER …")

    def ddl(self, change: SchemaChange | None, **options: Any) -> Applied | Skipped:
        """Also again, by either engine: that changes nothing."""
        identity = self.identity()
        order = table_ddl(
            target=self.target,
            ddl=identity,
            change=change,
            map_parts=self.map_parts,
            **options,
        )
        self.limit += 1
        self.limit -= self.dice.choice((0, 1))  # rows and DDLs of the same ts may follow
        outcome = self.dice.choice(self.engines).alter(order)
        for engine in self.engines:
            assert isinstance(engine.alter(order), Skipped)
        return outcome

    def version(self) -> int:
        self.reader.update_incremental()
        return self.reader.version()

    def model(self, change: SchemaChange) -> dict[tuple[Any, ...], Row]:
        """The rows afterwards; ValueError where a value or a key has no place."""
        kinds = {each.name: str(each.type) for each in change.before.columns}
        found: dict[tuple[Any, ...], Row] = {}
        for row in self.rows.values():
            made: Row = {}
            for each in change.after.columns:
                source, kind = change.sources[each.name], str(each.type)
                if source is None:
                    text = change.fills.get(each.name)
                    made[each.name] = None if text is None else FILLS[kind][text]
                elif kinds[source] == kind or row[source] is None:
                    made[each.name] = row[source]
                else:
                    made[each.name] = CHANGES[kinds[source]][kind](row[source])
            at = tuple(made[name] for name in change.after.key)
            if at in found or None in at:
                raise ValueError(at)
            found[at] = made
        return found


def _changed(
    change: SchemaChange,
    columns: list[Column],
    sources: Mapping[str, str | None],
    fills: Mapping[str, str],
) -> SchemaChange:
    after = TableSchema(columns=tuple(columns), key=change.after.key)
    return replace(change, after=after, sources={**change.sources, **sources}, fills=fills)
