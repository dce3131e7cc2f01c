"""Random histories of a table, and a model that says what it must hold after each commit.

A history is made from its seed: columns and key of any type, values from small pools with the
extremes of each type (so that keys meet again), and steps of ours and of other writers in between.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.physical_schema import arrow_type
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import OP_COLUMN, Applied, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.types.delta_types import delta_type, log_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.sinks.merge_on_write.log_tables import differences
from tests.sinks.merge_on_write.other_writers import restate_vectors, without_statistics

Row = dict[str, Any]


def _moments(zone: Any) -> list[datetime]:
    start = datetime(2024, 1, 1, tzinfo=zone)
    return [
        datetime(1000, 1, 1, tzinfo=zone),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=zone),
        start,
        *(start + timedelta(microseconds=n) for n in (1, 999, 1000, 1001)),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=zone),
    ]


POOLS: Mapping[str, Sequence[Any]] = {
    "tinyint": [-128, -1, 0, 1, 127],
    "smallint": [-(2**15), 0, 7, 2**15 - 1],
    "int": [-(2**31), -5, 0, 5, 6, 7, 8, 2**31 - 1],
    "bigint": [-(2**63), 0, *range(1, 12), 2**53, 2**53 + 1, 2**63 - 1],
    "bigint unsigned": [Decimal(n) for n in (0, 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1)],
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10"), Decimal(1)],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("0.01"), Decimal("0.02"), Decimal("10.00")],
    "double": [0.0, -1.5, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308],
    "float": [0.0, 1.5, -2.25, 3.4028234663852886e38],
    "varchar(90)": [
        *("", "a", "A", "ab", "\x00", "z" * 31, "z" * 32, "z" * 33, "z" * 33 + "!", "ﬀ" * 80),
        *("\U0010ffff" * 33, "\U0010ffff" * 40, "ü", "q'q", 'x"y', "a{,3}"),
    ],
    "varbinary(9)": [b"", b"\x00", b"\x00\x00", b"\xff", bytes(range(9)), b"a" * 8, b"a" * 9],
    "date": [date(1000, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)],
    "datetime(6)": _moments(None),
    "timestamp(6)": _moments(UTC),
    "year": [1901, 2000, 2155],
}
NAMES = ("id", "a b", "c`d", "e.f", "größe", 'x"y', "_op", "select", "t", "a,;{}()=")


@dataclass(kw_only=True)
class History:
    """One table, its model, and the dice."""

    MAPPED: ClassVar = 0.6  # the share of tables that are mapped by name

    seed: int
    folder: Path
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        schema = self.random_schema()
        name = TableName("shop", f"t{self.seed}")
        self.target = Target(
            name=name,
            uri=str(self.folder / f"t{self.seed}"),
            schema=schema,
            app_id=app_id("shop", 1, name),
        )
        ddl = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE TABLE …")
        origin = ownership(changefeed_id="shop", incarnation=1, ddl=ddl)
        self.is_mapped = self.dice.random() < self.MAPPED
        if self.is_mapped:
            create(self.target, properties=origin)
        else:  # as a user may have made it
            columns = self.arrow([]).drop_columns([OP_COLUMN]).schema
            settings = {"delta.enableDeletionVectors": "true"}
            DeltaTable.create(self.target.uri, columns, configuration=settings)
        self.reader = DeltaTable(self.target.uri)
        self.engines = [self._engine() for _ in range(2)]
        self.limit = 0

    def random_schema(self) -> TableSchema:
        """And pools of values for its columns."""
        kinds = self.dice.sample(sorted(POOLS), self.dice.randint(2, 6))
        names = self.dice.sample(NAMES, len(kinds))
        columns = [
            Column(name=n, type=MySQLType.parse(k)) for n, k in zip(names, kinds, strict=True)
        ]
        self.pools = dict(zip(names, (POOLS[kind] for kind in kinds), strict=True))
        key = tuple(names[: self.dice.choice((1, 1, 2, 3))])[: len(names) - 1]
        return TableSchema(columns=tuple(columns), key=key)

    def close(self) -> None:
        for engine in self.engines:
            engine.close()

    @property
    def key(self) -> tuple[str, ...]:
        return self.target.schema.key

    def step(self) -> None:
        """One thing that may happen to a table."""
        steps: list[Callable[[], None]] = [
            *(4 * [self.write]), self.fold, self.checkpoint, self.compact, self.append_foreign,
            self.double_foreign, self.delete_foreign, self.restate, self.strip, self.reopen,
        ]  # fmt: skip
        chosen = self.dice.choice(steps)
        self.log.append(chosen.__name__)
        chosen()

    def write(self, *doubled: Row) -> None:
        """A batch of upserts and deletes, through one of two engines that know of each other only
        by the log."""
        changes: dict[tuple[Any, ...], tuple[str, Row]] = {}
        for row in (*doubled, *(self.random_row() for _ in range(self.dice.randint(1, 12)))):
            changes[self.key_of(row)] = (self.dice.choice("UUUD"), row)
        self.limit += 1
        write = TableWrite(
            target=self.target,
            checkpoint=Ts(self.limit - 1),
            limit=Ts(self.limit),
            changes=self.arrow(changes.values()),
            user_metadata="{}",
            before_commit=lambda: None,
        )
        outcome = self.dice.choice(self.engines).apply(write)
        assert isinstance(outcome, Applied), outcome
        for at, (op, row) in changes.items():
            self.rows.pop(at, None)
            if op == "U":
                self.rows[at] = row

    def fold(self) -> None:
        """As upkeep does, but at once and of few small files, into smaller ones."""
        engine = self.dice.choice(self.engines)
        most = self.dice.choice((4, fold_choice.FULL_ROWS))
        with (
            patch.multiple(fold_choice, FAN_OUT=self.dice.choice((2, 3)), MIN_DEAD_BYTES=1),
            patch.object(data_files, "ROW_GROUP_ROWS", most),
            patch("sinks.merge_on_write.upkeep.fold.FULL_ROWS", most),
            patch("sinks.merge_on_write.upkeep.fold.FULL_MEMORY_BYTES", 500 * most),
        ):
            fold(engine.table(self.target.uri), self.key)

    def checkpoint(self) -> None:
        table = self.engines[0].table(self.target.uri)
        with table.lock:
            table.refresh()
            write_checkpoint(table.storage, table.state, now_ms=0)

    def compact(self) -> None:
        """By delta-rs, which does not do it where columns are mapped."""
        if not self.is_mapped:
            DeltaTable(self.target.uri).optimize.compact()

    def append_foreign(self) -> None:
        """Rows of another writer, with its own statistics."""
        fresh = [row for _ in range(3) if self.key_of(row := self.random_row()) not in self.rows]
        unique = {self.key_of(row): row for row in fresh}
        if unique:
            table = self.arrow([("U", row) for row in unique.values()]).drop_columns([OP_COLUMN])
            write_deltalake(self.target.uri, table, mode="append")
            self.rows |= unique

    def double_foreign(self) -> None:
        """Several rows of one key, in one file and perhaps in others: our next change of it is of
        them all."""
        row = self.dice.choice([*self.rows.values(), self.random_row()])
        rows = [{**self.random_row(), **{name: row[name] for name in self.key}} for _ in range(3)]
        table = self.arrow([("U", each) for each in rows]).drop_columns([OP_COLUMN])
        write_deltalake(self.target.uri, table, mode="append")
        self.write(row)

    def delete_foreign(self) -> None:
        """All rows, now and then: the files go, and come again."""
        if self.dice.random() < 0.2:
            DeltaTable(self.target.uri).delete()
            self.rows.clear()

    def restate(self) -> None:
        """The vectors in another storage type, as another writer may have put them."""
        restate_vectors(self.target.uri, self.dice.choice("ipu"))

    def strip(self) -> None:
        """A file whose statistics say the number of rows at the most."""
        without_statistics(self.target.uri, self.dice)

    def reopen(self) -> None:
        """Another process goes on."""
        at = self.dice.randrange(2)
        self.engines[at].close()
        self.engines[at] = self._engine()

    def _engine(self) -> MergeOnWriteEngine:
        """Upkeep is a step of its own here; the memory for indexes is enough, or for one only."""
        memory = self.dice.choice((1, 1 << 30))
        return MergeOnWriteEngine({}, index_memory_bytes=memory, keeps_up=False)

    # What must hold.

    def check(self) -> None:
        """After each commit delta-rs, which follows, reads the model's rows."""
        before = self.reader.version()
        self.reader.update_incremental()
        if self.reader.version() != before:
            self.check_rows(read(self.reader))
            if self.dice.random() < 0.4:
                self.check_states()

    def check_states(self) -> None:
        """What the engines keep is what a fresh replay of the log finds."""
        replayed = read_log(self.engines[0].table(self.target.uri).storage)
        assert replayed is not None
        for engine in self.engines:
            table = engine.table(self.target.uri)
            with table.lock:
                table.refresh()
                found = differences(table.state, replayed, tombstones=False)
                assert not found, f"{found} after {self.log}"

    def check_rows(self, found: Iterable[Row]) -> None:
        problem = self.difference(found, self.rows.values())
        assert problem is None, f"{problem} after {self.log}"

    def check_filters(self) -> None:
        """Point and range predicates on every column find what the model finds: by a delta-rs that
        reads the log from scratch."""
        reader = DeltaTable(self.target.uri)
        self.check_rows(read(reader))
        for column in self.target.schema.delivered:
            kind = delta_type(column.type)
            if kind in ("binary", "float"):
                continue
            if kind.startswith("decimal") and not self.is_mapped:
                continue  # delta-rs reads its own statistics of them as doubles or 64 bits
            value = self.dice.choice(self.pools[column.name])
            for sign, holds in COMPARISONS.items():
                where = f"{quoted(column.name)} {sign} {literal(value, kind)}"
                wanted = [
                    row
                    for row in self.rows.values()
                    if row[column.name] is not None and holds(row[column.name], value)
                ]
                problem = self.difference(read(reader, where), wanted)
                assert problem is None, f"WHERE {where}: {problem} after {self.log}"

    def difference(self, found: Iterable[Row], wanted: Iterable[Row]) -> str | None:
        """One line about the first row that is missing, too many, or twice."""
        left, right = [_text(row) for row in found], [_text(row) for row in wanted]
        if len(set(left)) != len(left):
            return "a row stands twice"
        missing, too_many = sorted({*right} - {*left}), sorted({*left} - {*right})
        if missing or too_many:
            return f"seed {self.seed}: missing {missing[:1]}, too many {too_many[:1]}"
        return None

    def random_row(self) -> Row:
        return {
            name: self.dice.choice(pool) if name in self.key or self.dice.random() > 0.15 else None
            for name, pool in self.pools.items()
        }

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def arrow(self, changes: Iterable[tuple[str, Row]]) -> pa.Table:
        rows = list(changes)
        columns = {
            column.name: pa.array(
                [row[column.name] for _, row in rows],
                arrow_type(column.name, log_type(delta_type(column.type))),
            )
            for column in self.target.schema.delivered
        }
        return pa.table({**columns, OP_COLUMN: pa.array([op for op, _ in rows], pa.string())})


def _text(row: Row) -> str:
    """The same for the same values, however readers write zones and zeros."""
    return repr(sorted((name, _plain(value)) for name, value in row.items()))


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return value.isoformat() if isinstance(value, datetime) else value


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<=": lambda a, b: _bytes(a) <= _bytes(b),
    ">=": lambda a, b: _bytes(a) >= _bytes(b),
}


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def read(reader: DeltaTable, where: str = "") -> list[Row]:
    """By delta-rs."""
    query = f"SELECT * FROM t{f' WHERE {where}' if where else ''}"
    found = QueryBuilder().register("t", reader).execute(query).read_all()
    return pa.table(found).to_pylist()


def quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, 2 * mark) + mark


def literal(value: Any, kind: str) -> str:
    """SQL that DataFusion and Spark read alike, of exactly the column's type."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        zone = 'Some("UTC")' if kind == "timestamp" else "None"
        text = value.replace(tzinfo=None).isoformat(" ")
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        precision, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
        return f"CAST('{value:f}' AS DECIMAL({precision},{scale}))"
    return f"CAST('{value!r}' AS DOUBLE)" if isinstance(value, float) else str(value)
