"""Random statements about one table: its CREATE, changes of its rows, and one ALTER. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.differential.column_types import (
    FLAVOURS,
    kind_of,
    names_of,
    quoted,
    random_kind,
    random_literal,
    random_type,
)
from tests.differential.shown_tables import ShownColumn

Columns = Sequence[ShownColumn]
_FUNCTIONS = (
    *("CURRENT_TIMESTAMP", "(1 + 2)", "(UPPER('x'))", "(UUID())", "(CURRENT_DATE)", "(NOW(6))"),
    *("NOW()", "(PI())", "('a')", "(CONCAT('a', 'b'))"),
)
_WORDS = (" COMMENT 'a, b) /* c'", " COMMENT 'NOT NULL'", " INVISIBLE", " CHECK (1 > 0)")
_OTHER = (
    *("ENGINE = InnoDB", "FORCE", "COMMENT = 'x'", "AUTO_INCREMENT = 500"),
    *("ROW_FORMAT = DYNAMIC", "ALGORITHM = COPY, FORCE"),
)
_RANGES = ", ".join(
    f"PARTITION p{at} VALUES LESS THAN ({limit})" for at, limit in enumerate((3, 6, 9, "MAXVALUE"))
)
PARTITIONED = (f"RANGE (id) ({_RANGES})", "HASH (id) PARTITIONS 3", "KEY (id) PARTITIONS 2")
_PARTITIONS = (
    *("TRUNCATE PARTITION p0", "TRUNCATE PARTITION p1, p2", "TRUNCATE PARTITION ALL"),
    *("DROP PARTITION p0", "DROP PARTITION p1", "REMOVE PARTITIONING", "COALESCE PARTITION 1"),
    *("ADD PARTITION PARTITIONS 2", "REBUILD PARTITION ALL", "OPTIMIZE PARTITION ALL"),
    "REORGANIZE PARTITION p2, p3 INTO (PARTITION p9 VALUES LESS THAN MAXVALUE)",
    *(f"PARTITION BY {each}" for each in PARTITIONED),
)
_KEY_TYPES = ("integer", "varchar", "char", "date", "decimal", "datetime", "binary", "enum", "year")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """``specs``: the parts of one ALTER TABLE. ``covers``: what they try: a kind of change, from
    which type, to which."""

    specs: tuple[str, ...]
    covers: tuple[tuple[str, str, str], ...]

    def sql(self, table: str) -> str:
        return f"ALTER TABLE {table} {', '.join(self.specs)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatements:
    """Of one table, of one server. ``flavour``: what its texts mean."""

    table: str
    is_mariadb: bool
    flavour: str

    @classmethod
    def random(cls, dice: random.Random, table: str, is_mariadb: bool) -> TableStatements:
        return cls(table=table, is_mariadb=is_mariadb, flavour=dice.choice(FLAVOURS))

    def create(self, dice: random.Random) -> str:
        columns = ["id INT NOT NULL"]
        for at in range(dice.randrange(3, 7)):
            kind = random_kind(dice, self.is_mariadb)
            columns.append(f"c{at} {random_type(dice, kind)}{_nullness(dice)}")
        if dice.random() < 0.15:
            columns.append(_generated(dice, "g", "INT", "id * 2"))
        key = dice.random()
        if key < 0.7:
            columns.append("PRIMARY KEY (id)")
        elif key < 0.85:
            columns += ["k VARCHAR(20) NOT NULL DEFAULT 'k'", "PRIMARY KEY (id, k)"]
        else:
            columns.append("UNIQUE KEY of_id (id)")
        charset = dice.choice(("utf8mb4",) * 4 + ("latin1", "utf8mb3", "gbk", "binary"))
        parts = f" PARTITION BY {dice.choice(PARTITIONED)}" if dice.random() < 0.2 else ""
        return f"CREATE TABLE {self.table} ({', '.join(columns)}) CHARACTER SET {charset}{parts}"

    def renaming(self, dice: random.Random, number: int) -> tuple[str, str]:
        """A statement, and the name of the table behind it."""
        table = self.table.partition("_r")[0]
        other, last = f"{table}_x{number}", f"{table}_r{number}"
        chains = (
            f"RENAME TABLE {self.table} TO {last}",
            f"ALTER TABLE {self.table} RENAME TO {last}",
            f"RENAME TABLE {self.table} TO {other}, {other} TO {last}",
            f"RENAME TABLE {self.table} TO {last}, {last} TO {other}, {other} TO {last}",
        )
        return dice.choice(chains), last

    def insert(self, dice: random.Random, columns: Columns, number: int) -> str:
        given = [each for each in columns if not each.generated]
        values = [str(number) if each.name == "id" else self._literal(dice, each) for each in given]
        names = ", ".join(f"`{each.name}`" for each in given)
        return f"INSERT INTO {self.table} ({names}) VALUES ({', '.join(values)})"

    def change(self, dice: random.Random, columns: Columns, numbers: Sequence[int]) -> str:
        """An UPDATE or DELETE of one of these rows."""
        ours = [each for each in columns if each.is_ours and not each.generated]
        where = f"WHERE id = {dice.choice(numbers)}"
        if dice.random() < 0.25 or not ours:
            return f"DELETE FROM {self.table} {where}"
        column = dice.choice(ours)
        return f"UPDATE {self.table} SET `{column.name}` = {self._literal(dice, column)} {where}"

    def alteration(self, dice: random.Random, columns: Columns, number: int) -> Alteration:
        """``number``: tells the columns apart that are added."""
        ways: list[tuple[int, Callable[..., Alteration | None]]] = [
            (50, self._modify),
            (20, self._add),
            (8, self._not_null),
            (5, self._convert),
            (3, self._rename),
            (3, self._drop),
            (4, self._generated),
            (2, self._key),
            (2, self._default),
            (3, self._other),
            (5, self._partitions),
        ]
        count = dice.choice((1, 1, 1, 1, 1, 1, 2, 3))
        found: list[Alteration] = []
        left = [each for each in columns if each.is_ours]
        while len(found) < count:
            way = dice.choices([each for _, each in ways], [weight for weight, _ in ways])[0]
            one = way(dice, left, f"{number}_{len(found)}")
            if one is None:
                continue
            if len(found) and way in (self._convert, self._other, self._partitions):
                continue
            found.append(one)
            if way == self._partitions:
                break
            touched = " ".join(one.specs)
            left = [each for each in left if f"`{each.name}`" not in touched]
        return Alteration(
            specs=tuple(spec for each in found for spec in each.specs),
            covers=tuple(pair for each in found for pair in each.covers),
        )

    def _literal(self, dice: random.Random, column: ShownColumn) -> str:
        flavour = self.flavour if dice.random() < 0.85 else dice.choice(FLAVOURS)
        return random_literal(dice, column.type, flavour)

    def _modify(self, dice: random.Random, columns: Columns, number: str) -> Alteration | None:
        ours = [each for each in columns if not each.generated]
        if not ours:
            return None
        column = dice.choice(ours)
        kind = random_kind(dice, self.is_mariadb)
        if dice.random() < 0.3:
            kind = column.kind  # other digits, lengths, names
        sql_type = random_type(dice, kind)
        null = " NULL" if column.is_nullable or dice.random() < 0.3 else " NOT NULL"
        place = dice.choice(("", "", "", "", " FIRST", " AFTER `id`"))
        verb = f"MODIFY `{column.name}`"
        if dice.random() < 0.15:
            verb = f"CHANGE `{column.name}` `r{number}`"
        spec = f"{verb} {sql_type}{null}{self._words(dice, kind)}{place}"
        return Alteration(specs=(spec,), covers=(("modify", column.kind, kind),))

    def _not_null(self, dice: random.Random, columns: Columns, _number: str) -> Alteration | None:
        ours = [each for each in columns if not each.generated and each.is_nullable]
        if not ours:
            return None
        column = dice.choice(ours)
        charset = f" CHARACTER SET {column.charset}" if column.charset else ""
        default = ""
        if dice.random() < 0.4:
            default = f" DEFAULT {self._default_literal(dice, column.type)}"
        spec = f"MODIFY `{column.name}` {column.type}{charset} NOT NULL{default}"
        return Alteration(specs=(spec,), covers=(("not null", column.kind, column.kind),))

    def _add(self, dice: random.Random, _columns: Columns, number: str) -> Alteration:
        kind = random_kind(dice, self.is_mariadb)
        sql_type = random_type(dice, kind)
        null = dice.choice(("", "", " NULL", " NOT NULL", " NOT NULL"))
        roll = dice.random()
        default, how = "", "none"
        if roll < 0.65:
            default, how = f" DEFAULT {self._default_literal(dice, sql_type)}", "literal"
        elif roll < 0.8:
            default, how = f" DEFAULT {dice.choice(_FUNCTIONS)}", "function"
        place = dice.choice(("", "", "", " FIRST", " AFTER `id`"))
        verb = dice.choice(("ADD COLUMN", "ADD COLUMN", "ADD"))
        if self.is_mariadb and dice.random() < 0.05:
            verb = "ADD COLUMN IF NOT EXISTS"
        definition = f"`a{number}` {sql_type}{null}{default}{self._words(dice, kind)}"
        if dice.random() < 0.05:
            return Alteration(specs=(f"ADD ({definition})",), covers=(("add", how, kind),))
        specs = (f"{verb} {definition}{place}",)
        if dice.random() < 0.05:
            specs += (f"DEFAULT CHARACTER SET {dice.choice(('binary', 'latin1', 'utf8mb4'))}",)
        return Alteration(specs=specs, covers=(("add", how, kind),))

    def _words(self, dice: random.Random, kind: str) -> str:
        """That a definition may have, and that mean nothing for its values."""
        roll = dice.random()
        if roll < 0.05 and kind in ("datetime", "timestamp"):
            return " ON UPDATE CURRENT_TIMESTAMP"
        return dice.choice(_WORDS) if roll < 0.08 else ""

    def _default_literal(self, dice: random.Random, sql_type: str) -> str:
        kind = kind_of(sql_type)
        roll = dice.random()
        if roll < 0.1:
            return "NULL"
        shown = "tinyint" if kind == "integer" and "(" in sql_type else sql_type.lower()
        literal = random_literal(dice, shown, dice.choice(FLAVOURS))
        if kind in ("enum", "set") and roll < 0.4:
            return str(dice.randrange(1, 1 + max(1, len(names_of(sql_type)))))
        if roll < 0.35 and literal[0] not in "'xN":
            return quoted(literal)
        if roll < 0.35 and kind in ("varchar", "char"):
            return dice.choice(("5", "1.50", "-3", "1e3", "TRUE", "x'41'", "b'1000001'"))
        if roll < 0.35 and kind in ("datetime", "timestamp", "date", "time"):
            return dice.choice(("20200102", "20200102030405", "123000", "CURRENT_TIMESTAMP"))
        return literal

    def _convert(self, dice: random.Random, _columns: Columns, _number: str) -> Alteration:
        charset = dice.choice(("utf8mb4", "latin1", "utf8mb3", "binary", "gbk", "ucs2", "ascii"))
        verb = "CONVERT TO" if dice.random() < 0.8 else "DEFAULT"
        covers = (("convert", "table", charset),)
        return Alteration(specs=(f"{verb} CHARACTER SET {charset}",), covers=covers)

    def _rename(self, dice: random.Random, columns: Columns, number: str) -> Alteration | None:
        if not columns:
            return None
        column = dice.choice(columns)
        spec = f"RENAME COLUMN `{column.name}` TO `n{number}`"
        return Alteration(specs=(spec,), covers=(("rename", column.kind, column.kind),))

    def _drop(self, dice: random.Random, columns: Columns, _number: str) -> Alteration | None:
        if len(columns) < 3:
            return None
        column = dice.choice(columns)
        spec = f"DROP COLUMN `{column.name}`"
        return Alteration(specs=(spec,), covers=(("drop", column.kind, column.kind),))

    def _generated(self, dice: random.Random, columns: Columns, number: str) -> Alteration | None:
        there = [each for each in columns if each.generated]
        sources = [each for each in columns if not each.generated]
        if there and dice.random() < 0.5:
            column = dice.choice(there)
            way = column.generated.upper()
            spec = f"MODIFY `{column.name}` {column.type} AS (id * {dice.randrange(3, 9)}) {way}"
            return Alteration(specs=(spec,), covers=(("generated", "expression", column.kind),))
        if not sources:
            return None
        source = dice.choice(sources)
        expression = dice.choice((f"CONCAT(`{source.name}`, 'x')", f"LENGTH(`{source.name}`)"))
        spec = "ADD COLUMN " + _generated(dice, f"g{number}", "VARCHAR(300)", expression)
        return Alteration(specs=(spec,), covers=(("generated", "added", source.kind),))

    def _key(self, dice: random.Random, columns: Columns, number: str) -> Alteration | None:
        fit = [e for e in columns if e.kind in _KEY_TYPES and not e.is_nullable and not e.is_key]
        if not fit:
            return None
        column = dice.choice(fit)
        if dice.random() < 0.5:
            spec = (f"ADD KEY `k{number}` (`{column.name}`)",)
        else:
            spec = ("DROP PRIMARY KEY", f"ADD PRIMARY KEY (`id`, `{column.name}`)")
        return Alteration(specs=spec, covers=(("key", column.kind, column.kind),))

    def _default(self, dice: random.Random, columns: Columns, _number: str) -> Alteration | None:
        ours = [each for each in columns if not each.generated]
        if not ours:
            return None
        column = dice.choice(ours)
        literal = self._default_literal(dice, column.type)
        spec = f"ALTER COLUMN `{column.name}` SET DEFAULT {literal}"
        return Alteration(specs=(spec,), covers=(("set default", column.kind, column.kind),))

    def _other(self, dice: random.Random, _columns: Columns, _number: str) -> Alteration:
        return Alteration(specs=(dice.choice(_OTHER),), covers=(("other", "", ""),))

    def _partitions(self, dice: random.Random, _columns: Columns, _number: str) -> Alteration:
        spec = dice.choice(_PARTITIONS)
        words = spec.split()
        how = f"{words[0]} {words[2]}" if words[0] == "PARTITION" else words[0]
        return Alteration(specs=(spec,), covers=(("partitions", how.lower(), ""),))


def _nullness(dice: random.Random) -> str:
    return dice.choice((" NULL", " NULL", " NULL", " NOT NULL"))


def _generated(dice: random.Random, name: str, sql_type: str, expression: str) -> str:
    return f"`{name}` {sql_type} AS ({expression}) {dice.choice(('VIRTUAL', 'STORED'))}"
