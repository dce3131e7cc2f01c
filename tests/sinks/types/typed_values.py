"""Random typed cells of every MySQL type, its extremes among them, and the text of each cell as
canal-json has it, found by other means than the product's."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from sinks.types.mysql_type import MySQLType

WIDE = "set(" + ",".join(f"'{n}'" for n in range(64)) + ")"
TYPES = (
    *("tinyint", "tinyint unsigned", "smallint", "smallint unsigned", "mediumint"),
    *("mediumint unsigned", "int", "int unsigned", "bigint", "bigint unsigned"),
    *("bit(1)", "bit(10)", "bit(63)", "bit(64)", "year", "float", "double"),
    *("decimal(10,2)", "decimal(5)", "decimal(18,18)", "decimal(38,0)", "decimal(38,38)"),
    *("decimal(39,0)", "decimal(65,30)", "decimal(65,0)", "decimal(30,30)"),
    *("date", "datetime", "datetime(3)", "datetime(6)", "timestamp", "timestamp(6)"),
    *("time", "time(1)", "time(6)", "char(9)", "varchar(64)", "longtext", "json"),
    *("binary(4)", "varbinary(9)", "blob", "geometry"),
)
_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def cell_type(of: MySQLType) -> pa.DataType:
    """The Arrow type of the cells of a column."""
    if of.name in _INTEGERS:
        bits = 32 if of.name == "mediumint" else _INTEGERS[of.name]
        return pa.type_for_alias(f"{'u' * of.unsigned}int{bits}")
    if of.name == "decimal":
        kind = pa.decimal128 if (of.length or 0) <= 38 else pa.decimal256
        return kind(of.length, of.scale)
    others = {
        "bit": pa.uint64(),
        "year": pa.int16(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", "UTC"),
        "time": pa.duration("us"),
        **dict.fromkeys(("binary", "varbinary", "blob", "geometry"), pa.binary()),
    }
    return others.get(of.name, pa.string())


def typed_cells(mysql_type: str, count: int, dice: random.Random) -> pa.Array:
    """Some of them NULL, with other cells beneath."""
    of = MySQLType.parse(mysql_type)
    make = _maker(of, dice)
    kind = cell_type(of)
    values = [make() for _ in range(count)]
    if pa.types.is_temporal(kind):
        cells = pa.array(values, _number_of(kind)).view(kind)
    else:
        cells = pa.array(values, kind)
    some = pa.array([dice.random() > 0.1 for _ in values])
    return pa.Array.from_buffers(kind, count, [some.buffers()[1], *cells.buffers()[1:]])


def _number_of(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind == pa.date32() else pa.int64()


def _maker(of: MySQLType, dice: random.Random) -> Callable[[], Any]:
    def whole(low: int, high: int) -> int:
        edges = (low, high, low + 1, high - 1, 0, 1)
        return dice.choice([e for e in edges if low <= e <= high] + [dice.randint(low, high)] * 6)

    def micros(low: int, high: int) -> int:
        """With as many digits of a fraction as the type has."""
        step = 10 ** (6 - (of.digits or 0))
        return whole(-(-low // step), high // step) * step

    def decimal() -> Decimal:
        precision, scale = of.length or 0, of.scale or 0
        size = dice.choice((1, precision, dice.randint(1, precision)))
        most = 10**size - 1
        return Decimal(whole(-most, most)).scaleb(-scale, Context(prec=99))

    def floating() -> float:
        kind: Any = np.float32 if of.name == "float" else np.float64
        edge = np.finfo(kind)
        found = dice.choice(
            (edge.max, edge.min, edge.smallest_subnormal, edge.tiny, -0.0, 0.1, 1e-7, 16777217)
            if dice.random() < 0.3
            else (kind(dice.uniform(-10, 10) * 10.0 ** dice.randint(-30, 30)),)
        )
        return float(kind(found))

    name = of.name
    if name in _INTEGERS:
        bits = _INTEGERS[name]
        low, high = (0, 2**bits - 1) if of.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return lambda: whole(low, high)
    makers: dict[str, Callable[[], Any]] = {
        "bit": lambda: whole(0, 2 ** (of.length or 1) - 1),
        "year": lambda: dice.choice((0, whole(1901, 2155))),
        "decimal": decimal,
        "float": floating,
        "double": floating,
        "date": lambda: whole(_FIRST_DAY, _LAST_DAY),
        "datetime": lambda: micros(_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1),
        "timestamp": lambda: micros(1_000_000, 2**32 * 1_000_000),
        "time": lambda: micros(-3_020_399_000_000, 3_020_399_000_000),
        **dict.fromkeys(
            ("binary", "varbinary", "blob", "geometry"),
            lambda: dice.choice((dice.randbytes(dice.randint(0, 9)), b"", bytes(range(256)))),
        ),
    }
    letters = "ab \u0000\u00e9\u00ff\u4e2d𝄞'\"0123"
    return makers.get(name, lambda: "".join(dice.choices(letters, k=dice.randint(0, 8))))


def texts_of(cells: pa.Array, digits: int = 6) -> list[str | None]:
    """Moments are in UTC. ``digits``: of a fraction of a second."""
    kind = cells.type
    if pa.types.is_temporal(kind):
        numbers = cells.view(_number_of(kind)).to_pylist()
        return [None if n is None else _temporal(n, kind, digits) for n in numbers]
    if pa.types.is_floating(kind):
        short = np.float32 if kind == pa.float32() else np.float64
        return [
            None if x is None else format(Decimal(str(short(x))), "f").removesuffix(".0")
            for x in cells.to_pylist()
        ]
    return [None if value is None else _text(value) for value in cells.to_pylist()]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _temporal(number: int, kind: pa.DataType, digits: int) -> str:
    if kind == pa.date32():
        return str(np.datetime64(number, "D"))
    seconds, micros = divmod(abs(number) if pa.types.is_duration(kind) else number, 1_000_000)
    behind = f".{micros:06d}"[: digits + 1] if digits else ""
    if pa.types.is_timestamp(kind):
        return str(np.datetime64(seconds, "s")).replace("T", " ") + behind
    sign = "-" if number < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{behind}"
