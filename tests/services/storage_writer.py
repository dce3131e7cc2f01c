"""TiCDC's storage sink as a writer that a test steps through: half-written files, an index file
before or after its data, `metadata` that is torn, crashes after which it goes back.

The classic architecture writes a file's index first, and goes on in the newest version whose
columns are the same. The new one writes data first, takes the next free number, and leaves out rows
below a later version with the same columns: these are there.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from streaming.source.storage.schema_files import read_schema_text

SCHEMA = "shop"
TABLES = ("t", "log")
KEYS = 40
CREATE_TABLE, ADD_COLUMN, ADD_INDEX, CREATE_SCHEMA = 3, 5, 7, 1


@dataclass(frozen=True, slots=True)
class Change:
    """``op``: of a row, I, U or D, with ``n`` as its value; or none, and a DDL of ``query``."""

    table: str
    ts: int
    op: str = ""
    key: int = 0
    n: int = 0
    query: str = ""
    kind: int = 0
    more: int = 0  # columns beside id and n from here on


@dataclass(slots=True)
class Life:
    """What one process of TiCDC has in its memory."""

    began_ts: int
    planned: dict[str, int]  # how many changes of a table are in the queue or beyond it
    done: dict[str, int]  # how many are in files
    told: set[tuple[str, int]] = field(default_factory=set)  # DDLs that it has written itself
    numbers: dict[str, int] = field(default_factory=dict)  # by folder and dispatcher
    queue: deque[Callable[[], None]] = field(default_factory=deque)


class StorageWriter:
    """``clock_ms``: commit-ts are of it. ``has_old``: an UPDATE is two rows of csv."""

    def __init__(
        self,
        folder: Path,
        dice: random.Random,
        clock_ms: Callable[[], int],
        *,
        is_classic: bool,
        has_old: bool = False,
        dispatchers: int = 0,
    ) -> None:
        self.folder, self.dice = folder, dice
        self.changes: dict[str, list[Change]] = {each: [] for each in TABLES}
        self.rows: dict[str, dict[int, int]] = {each: {} for each in TABLES}
        self.crashes = 0
        self._clock_ms, self._is_classic = clock_ms, is_classic
        self._has_old, self._dispatchers = has_old, dispatchers
        self._olds: dict[tuple[str, int, int], int] = {}
        self._day = date(2026, 11, 26)
        self._last_ts = self._tick()
        self._schemas: dict[str, dict[int, int]] = {each: {} for each in TABLES}  # version: more
        self._metadata = [self._last_ts]  # what was told
        folder.mkdir(parents=True, exist_ok=True)
        self._put_schema(Change("", self._tick(), query="CREATE DATABASE `shop`", kind=1))
        for table in TABLES:
            text = f"CREATE TABLE `shop`.`{table}` (`id` BIGINT PRIMARY KEY, `n` BIGINT)"
            self._append(Change(table, self._tick(), query=text, kind=CREATE_TABLE))
        nothing = dict.fromkeys(TABLES, 0)
        self.life = Life(self._last_ts, dict(nothing), dict(nothing))

    def step(self) -> None:
        """One thing happens."""
        dice = self.dice.random()
        if self.life.queue and dice < 0.5:
            self.life.queue.popleft()()
        elif dice < 0.75:
            self._commit()
        elif dice < 0.9:
            self._flush(self.dice.choice(TABLES))
        elif dice < 0.97:
            self._tell_checkpoint()
        elif dice < 0.98:
            self._ddl(self.dice.choice(TABLES))
        elif dice < 0.985:
            self._day += timedelta(days=1)
        else:
            self.crash()

    def finish(self) -> int:
        """All is in files. Returns the checkpoint-ts, which is above every change."""
        while True:
            while self.life.queue:
                self.life.queue.popleft()()
            if all(self.life.done[table] == len(self.changes[table]) for table in TABLES):
                break
            for table in TABLES:
                self._flush(table)
        self._last_ts = self._tick() + 2
        self._write_metadata(self._last_ts)
        return self._last_ts

    def crash(self) -> None:
        """It begins again, from a checkpoint that may be older than what it has told."""
        self.crashes += 1
        began_ts = self.dice.choice(self._metadata[-3:])
        self._metadata = [each for each in self._metadata if each <= began_ts]
        first = {
            table: next((n for n, each in enumerate(of) if each.ts > began_ts), len(of))
            for table, of in self.changes.items()
        }
        self.life = Life(began_ts, dict(first), dict(first))

    @property
    def checkpoint_ts(self) -> int:
        behind = [
            self.changes[table][done].ts - 1
            for table, done in self.life.done.items()
            if done < len(self.changes[table])
        ]
        return min(behind, default=self._last_ts)

    def _tick(self) -> int:
        ts = self._clock_ms() << 18
        self._last_ts = max(ts, getattr(self, "_last_ts", 0) + 1)
        return self._last_ts

    def _append(self, change: Change) -> None:
        self.changes[change.table].append(change)

    def _commit(self) -> None:
        """A transaction of both tables."""
        ts, more = self._tick(), {table: self._more(table) for table in TABLES}
        for key in self.dice.sample(range(KEYS), self.dice.randint(1, 4)):
            for table in TABLES:
                rows, n = self.rows[table], self._number()
                op = "I" if key not in rows else self.dice.choice("UUD")
                self._olds[table, ts, key] = rows.get(key, 0)
                if op == "D":
                    n = rows.pop(key)
                else:
                    rows[key] = n
                self._append(Change(table, ts, op, key, n, more=more[table]))

    def _number(self) -> int:
        self._given = getattr(self, "_given", 0) + 1
        return self._given

    def _more(self, table: str) -> int:
        return self.changes[table][-1].more

    def _ddl(self, table: str) -> None:
        ts, more = self._tick(), self._more(table)
        if self.dice.random() < 0.5:
            text = f"ALTER TABLE `shop`.`{table}` ADD COLUMN `c{more}` BIGINT NULL"
            self._append(Change(table, ts, query=text, kind=ADD_COLUMN, more=more + 1))
        else:
            text = f"CREATE INDEX `i{ts}` ON `shop`.`{table}` (`n`)"
            self._append(Change(table, ts, query=text, kind=ADD_INDEX, more=more))

    def _flush(self, table: str) -> None:
        """Some rows of one version, or a DDL, go into the queue."""
        life, of = self.life, self.changes[table]
        first = life.planned[table]
        if first == len(of):
            return
        if of[first].query:
            life.planned[table] = last = first + 1
            life.queue.extend(self._steps_of_ddl(of[first]))
        else:
            last = first + self.dice.randint(1, 60)
            until = next((n for n in range(first, len(of)) if of[n].query), len(of))
            last = life.planned[table] = min(last, until)
            while last < until and of[last].ts == of[last - 1].ts:  # a transaction is not torn
                last += 1
            life.planned[table] = last
            life.queue.extend(self._steps_of_rows(table, of[first:last]))
        life.queue.append(lambda: life.done.update({table: last}))

    def _steps_of_ddl(self, ddl: Change) -> Iterator[Callable[[], None]]:
        life = self.life
        yield lambda: self._put_schema(ddl, is_half=self.dice.random() < 0.3)
        yield lambda: (self._put_schema(ddl), life.told.add((ddl.table, ddl.ts)))  # type: ignore[func-returns-value]

    def _steps_of_rows(self, table: str, rows: list[Change]) -> Iterator[Callable[[], None]]:
        if not self._dispatchers:
            yield from self._steps_of_file(table, rows, "")
            return
        for number in range(self._dispatchers):
            some = [each for each in rows if each.key % self._dispatchers == number]
            if some:
                yield from self._steps_of_file(table, some, f"_d-{number}")

    def _steps_of_file(
        self, table: str, rows: list[Change], of: str
    ) -> Iterator[Callable[[], None]]:
        """The place is found when it is written: a DDL may be in the queue before it."""
        made: dict[str, Path] = {}
        text = "".join(map(self._line, rows)).encode()

        def place() -> None:
            version = self._version(table, rows[0])
            if version is not None:
                made["at"] = self._next_file(table, version, of)
                if self._is_classic:
                    self._index(made["at"], of)

        def half() -> None:
            if made and self.dice.random() < 0.5:
                _write(made["at"], text[: self.dice.randrange(len(text))])

        def whole() -> None:
            if made:
                _write(made["at"], text)

        def index() -> None:
            if made and not self._is_classic:
                self._index(made["at"], of)

        yield from (place, half, whole, index)

    def _version(self, table: str, row: Change) -> int | None:
        """The folder's; None where these rows are there already."""
        ddls = [each.ts for each in self.changes[table] if each.query and each.ts < row.ts]
        if (table, ddls[-1]) in self.life.told:
            return ddls[-1]
        alike = [v for v, more in self._schemas[table].items() if more == row.more]
        if not self._is_classic and max(alike) > self.life.began_ts:
            return None
        return max(alike)

    def _next_file(self, table: str, version: int, of: str) -> Path:
        folder = self.folder / SCHEMA / table / str(version) / self._day.isoformat()
        index, key = folder / "meta" / f"CDC{of}.index", f"{folder}{of}"
        number = self.life.numbers.get(key)
        if number is None:
            named = index.read_text().strip() if index.exists() else ""
            number = int(named.removesuffix(".csv")[-20:]) if named else 0
            if self._is_classic and named and not (folder / named).exists():
                number -= 1
        number += 1
        while not self._is_classic and (folder / _name(of, number)).exists():
            number += 1
        self.life.numbers[key] = number
        return folder / _name(of, number)

    def _index(self, file: Path, of: str) -> None:
        _write(file.parent / "meta" / f"CDC{of}.index", f"{file.name}\n".encode())

    def _line(self, row: Change) -> str:
        cells = "".join(f",{row.n}" for _ in range(row.more))

        def line(op: str, is_update: str, n: int) -> str:
            told = f",{is_update}" if self._has_old else ""
            return f'"{op}","{row.table}","shop",{row.ts}{told},{row.key},{n}{cells}\r\n'

        if not self._has_old or row.op != "U":
            return line(row.op, "false", row.n)
        old = self._olds[row.table, row.ts, row.key]
        return line("D", "true", old) + line("I", "true", row.n)

    def _put_schema(self, ddl: Change, *, is_half: bool = False) -> None:
        columns = ["id", "n", *(f"c{n}" for n in range(ddl.more))] if ddl.table else []
        told = {
            "Table": ddl.table, "Schema": SCHEMA, "Version": 1, "TableVersion": ddl.ts,
            "Query": ddl.query, "Type": ddl.kind,
            "TableColumns": [_column(each) for each in columns] or None,
            "TableColumnsTotal": len(columns),
        }  # fmt: skip
        text = json.dumps(told, indent=4).encode()
        name = f"schema_{ddl.ts}_{read_schema_text(text).checksum:010}.json"
        file = self.folder / SCHEMA / ddl.table / "meta" / name
        _write(file, text[: self.dice.randrange(len(text))] if is_half else text)
        if ddl.table:
            self._schemas[ddl.table][ddl.ts] = ddl.more

    def _tell_checkpoint(self) -> None:
        self.life.queue.append(self._tear_metadata)
        self.life.queue.append(lambda: self._write_metadata(self.checkpoint_ts))

    def _tear_metadata(self) -> None:
        if self.dice.random() < 0.3:
            torn = (b"", b'{"checkpo', b"\0\xff", b"[]", b'{"checkpoint-ts":null}')
            _write(self.folder / "metadata", self.dice.choice(torn))

    def _write_metadata(self, ts: int) -> None:
        _write(self.folder / "metadata", json.dumps({"checkpoint-ts": ts}).encode())
        self._metadata.append(ts)


def _column(name: str) -> dict[str, str]:
    key = {"ColumnNullable": "false", "ColumnIsPk": "true"} if name == "id" else {}
    return {"ColumnName": name, "ColumnType": "BIGINT", "ColumnPrecision": "20", **key}


def _name(of: str, number: int) -> str:
    return f"CDC{of}_{number:020}.csv" if of else f"CDC{number:020}.csv"


def _write(file: Path, text: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text)
