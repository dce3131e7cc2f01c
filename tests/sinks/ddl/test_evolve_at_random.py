"""Random ALTER TABLEs against a table that holds its rows: every cell must find its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from sinks.ddl.effects import AlterTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema

TYPES = {  # the zero, a default and what it is on the wire
    "INT": ("0", "7", "7"),
    "BIGINT UNSIGNED": ("0", "'18446744073709551615'", "18446744073709551615"),
    "VARCHAR(20)": ("", "'it''s'", "it's"),
    "DECIMAL(10,2)": ("0.00", "1.5", "1.50"),
    "ENUM('x','y')": ("1", "'Y'", "2"),
    "DATE": ("0000-00-00", "'2024-2-3'", "2024-02-03"),
}


@dataclass
class Model:
    """The plainest table: a list of names, a set of NOT NULL, indexes and rows as dicts."""

    random: Random
    names: list[str]
    not_null: set[str]
    indexes: list[tuple[str, list[str], str]] = field(default_factory=list)
    row: dict[str, str | None] = field(default_factory=dict)
    numbers: int = 0

    def key(self) -> tuple[tuple[str, ...], str | None]:
        for _, names, kind in self.indexes:
            if kind == "primary":
                return tuple(names), None
        usable = [
            each for each in self.indexes if each[2] == "unique" and set(each[1]) <= self.not_null
        ]
        if not usable:
            return (), None
        name, names, _ = sorted(usable, key=lambda each: len(each[1]))[0]
        return tuple(names), name

    def new_name(self) -> str:
        self.numbers += 1
        return self.random.choice(["c", "C", "ö `", "select"]) + str(self.numbers)

    def written(self, name: str) -> str:
        """In any case, in quotes."""
        cased = self.random.choice([str, str.upper, str.lower])(name)
        return "`" + cased.replace("`", "``") + "`"

    def place(self, untouched: list[str], name: str) -> str:
        """Move a column that is there; the words that say so."""
        kind = self.random.choice(["stay", "first", "after", "after"])
        others = [each for each in untouched if each != name]
        if kind == "stay" or (kind == "after" and not others):
            return ""
        self.names.remove(name)
        if kind == "first":
            self.names.insert(0, name)
            return " FIRST"
        before = self.random.choice(others)
        self.names.insert(self.names.index(before) + 1, name)
        return f" AFTER {self.written(before)}"

    def renamed(self, old: str, new: str) -> None:
        self.names[self.names.index(old)] = new
        self.row[new] = self.row.pop(old)
        if old in self.not_null:
            self.not_null.remove(old)
            self.not_null.add(new)
        for _, names, _ in self.indexes:
            names[:] = [new if name == old else name for name in names]

    def add(self, untouched: list[str]) -> str:
        name, kind = self.new_name(), self.random.choice(list(TYPES))
        zero, default, shown = TYPES[kind]
        nullness = self.random.choice(["", " NULL", " NOT NULL"])
        has_default = self.random.random() < 0.5
        self.names.append(name)
        self.row[name] = shown if has_default else zero if nullness == " NOT NULL" else None
        if nullness == " NOT NULL":
            self.not_null.add(name)
        quoted = "`" + name.replace("`", "``") + "`"
        written = f"ADD {quoted} {kind}{nullness}" + f" DEFAULT {default}" * has_default
        return written + self.place(untouched, name)

    def drop(self, untouched: list[str]) -> str:
        name = self.random.choice(untouched)
        self.names.remove(name)
        self.not_null.discard(name)
        del self.row[name]
        self.indexes = [
            (index, [each for each in names if each != name], kind)
            for index, names, kind in self.indexes
            if names != [name]
        ]
        return f"DROP COLUMN {self.written(name)}"

    def rename(self, untouched: list[str]) -> str:
        old, new = self.random.choice(untouched), self.new_name()
        self.renamed(old, new)
        return f"RENAME COLUMN {self.written(old)} TO `{new.replace('`', '``')}`"

    def modify(self, untouched: list[str]) -> str:
        old = self.random.choice(untouched)
        new = self.random.choice([old, self.new_name()])
        is_key = any(old in names for _, names, kind in self.indexes if kind == "primary")
        kind, not_null = self.random.choice(list(TYPES)), self.random.random() < 0.5
        definition = f"`{new.replace('`', '``')}` {kind}" + " NOT NULL" * not_null
        written = f"CHANGE {self.written(old)} {definition}"
        if new == old and self.random.random() < 0.5:
            written = f"MODIFY COLUMN {definition}"
        self.renamed(old, new)
        (self.not_null.add if not_null or is_key else self.not_null.discard)(new)
        return written + self.place([name for name in untouched if name != old], new)

    def index(self, untouched: list[str]) -> str:
        kind = self.random.choice(["INDEX", "UNIQUE", "UNIQUE", "PRIMARY KEY"])
        if kind == "PRIMARY KEY" and any(each[2] == "primary" for each in self.indexes):
            kind = "UNIQUE"
        names = self.random.sample(untouched, min(len(untouched), self.random.choice([1, 2])))
        columns = ", ".join(self.written(name) for name in names)
        if kind == "PRIMARY KEY":
            self.indexes.append(("PRIMARY", names, "primary"))
            self.not_null |= set(names)
            return f"ADD PRIMARY KEY ({columns})"
        name = f"i{self.numbers}"
        self.numbers += 1
        self.indexes.append((name, names, "unique" if kind == "UNIQUE" else "plain"))
        return f"ADD {kind} {name} ({columns})"

    def drop_index(self, _: list[str]) -> str:
        if not self.indexes:
            return "COMMENT 'nothing'"
        index = self.random.choice(self.indexes)
        self.indexes.remove(index)
        return "DROP PRIMARY KEY" if index[2] == "primary" else f"DROP INDEX {index[0].upper()}"

    def rename_index(self, _: list[str]) -> str:
        named = [each for each in self.indexes if each[2] != "primary"]
        if not named:
            return "AUTO_INCREMENT = 5"
        old = self.random.choice(named)
        self.numbers += 1
        new = f"j{self.numbers}"
        self.indexes[self.indexes.index(old)] = (new, *old[1:])
        return f"RENAME INDEX {old[0].upper()} TO {new}"

    def statement(self) -> str:
        """Of changes that TiDB takes together: each of columns that no other one touches."""
        changes = [self.add, self.drop, self.rename, self.modify, self.index]
        indexes = [self.drop_index, self.rename_index]
        if self.random.random() < 0.3:
            return self.random.choice(indexes)(self.names)
        parts: list[str] = []
        untouched = list(self.names)
        for change in self.random.choices(changes, k=self.random.choice([1, 1, 2, 3])):
            if not untouched or (change == self.drop and len(self.names) < 2):
                continue
            before = set(self.names)
            parts.append(change(untouched))
            mentioned = [name for name in untouched if self.is_in(parts[-1], name)]
            untouched = [
                name for name in untouched if name in before & set(self.names) - set(mentioned)
            ]
        return ", ".join(parts)

    def is_in(self, part: str, name: str) -> bool:
        return f"`{name.replace('`', '``')}`".lower() in part.lower()


@pytest.mark.seeds(40)
def test_rows_find_their_way_through_random_changes(seed: int) -> None:
    random = Random(seed)
    model = Model(random, ["Id", "b"], {"Id"}, row={"Id": "1", "b": "old"})
    columns = (
        Column(name="Id", type=MySQLType.parse("int"), nullable=False),
        Column(name="b", type=MySQLType.parse("varchar(20)")),
    )
    schema = TableSchema(columns=columns, key=())
    row = dict(model.row)
    for _ in range(60):
        statement = f"ALTER TABLE t {model.statement()}"
        for effect in read_ddl(statement, "ALTER", "shop", "t").effects:
            if not isinstance(effect, AlterTable):
                continue
            change = evolved(schema, effect.changes)
            row = {
                name: row[source] if source is not None else change.fills.get(name)
                for name, source in change.sources.items()
            }
            assert change.before == schema
            schema = TableSchema.from_json(change.after.to_json())
            assert schema == change.after
        assert list(row.items()) == [(name, model.row[name]) for name in model.names], statement
        assert [column.name for column in schema.columns] == model.names, statement
        not_null = {column.name for column in schema.columns if not column.nullable}
        assert not_null == model.not_null, statement
        assert (schema.key, schema.key_index) == model.key(), statement
