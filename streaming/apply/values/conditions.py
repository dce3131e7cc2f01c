"""Evaluates conditions on rows (``conf/rows/conditions.py``), a batch at a time, as TiDB does.

Logic has three values: null where SQL has NULL. Numbers are compared exactly, unless one side is a
FLOAT, a DOUBLE or a number with an exponent: then as doubles. Texts are compared by their bytes in
UTF-8, without the blanks at their ends, whatever their collation (docs/configuration.md). A text
constant beside a number or a date is read as one. What MySQL would convert otherwise is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final, Literal, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from conf.rows.conditions import (
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Is,
    IsNull,
    Like,
    Logic,
    Name,
    Not,
    Truth,
    Value,
)
from coordination.errors import ConfigError, TidelakeError
from sinks.types.casts.dates import cast_timestamps
from sinks.types.mysql_type import BINARY_TYPES, INTEGER_TYPES, SPATIAL_TYPES, TEXT_TYPES
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastRules

_Kind = Literal["whole", "decimal", "double", "text", "bytes", "datetime", "instant", "other"]
_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys((*INTEGER_TYPES, "bit", "year"), "whole"),
    **dict.fromkeys((*TEXT_TYPES, "enum", "set"), "text"),
    **dict.fromkeys(set(BINARY_TYPES) - set(SPATIAL_TYPES), "bytes"),
    "decimal": "decimal",
    "float": "double",
    "double": "double",
    "date": "datetime",
    "datetime": "datetime",
    "timestamp": "instant",
}
_NUMBERS: Final = ("whole", "decimal", "double")
_PRECISION: Final = 76  # of a decimal256
_NUMBER: Final = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)\s*", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OPS: Final = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LOGIC: Final = {"AND": pc.and_kleene, "OR": pc.or_kleene, "XOR": pc.xor}
_CALCULATED: Final = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_WHOLE: Final = (pa.int64(), -(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """Values of a column in ``arrow_type(column.type)``."""

    column: Column
    values: pa.Array


@dataclass(frozen=True, slots=True)
class _Values:
    """``name``: of a column, for errors."""

    kind: _Kind
    values: pa.Array
    name: str
    is_unsigned: bool = False
    two_digits: bool = False  # a YEAR: constants of two digits mean another one


def holds(
    condition: Condition, columns: Mapping[str, TypedColumn], count: int, rules: CastRules
) -> pa.BooleanArray:
    """Whether the condition is true, by row; null: unknown. ``columns``: by name in lower case, all
    that it names. Raises ConfigError where the types do not go together, and TidelakeError where a
    result is out of range, which MySQL refuses too."""
    return _Evaluation(columns, count, rules).truth(condition)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    columns: Mapping[str, TypedColumn]
    count: int
    rules: CastRules

    def truth(self, node: Condition) -> pa.BooleanArray:  # noqa: PLR0911 - one per kind
        match node:
            case Truth(value=value):
                return pa.repeat(pa.scalar(value), self.count)
            case Logic(op=op):
                return reduce(_LOGIC[op], (self.truth(each) for each in node.parts))
            case Not():
                return pc.invert(self.truth(node.condition))
            case Is(truth=None):
                return self.truth(node.condition).is_null()
            case Is(truth=truth):
                return pc.fill_null(pc.equal(self.truth(node.condition), pa.scalar(truth)), False)
            case IsNull(value=Constant(value=value)):
                return pa.repeat(pa.scalar(value is None), self.count)
            case IsNull():
                return self._values(node.value).values.is_null()
            case Like():
                return self._like(node)
            case Compare():
                return self._compare(node)

    def _compare(self, node: Compare) -> pa.BooleanArray:
        left, right, op = node.left, node.right, node.op
        if isinstance(left, Constant):
            if isinstance(right, Constant):
                if left.value is None or right.value is None:
                    return self._with_null(node, left.value is None and right.value is None)
                _refuse(node.at, "it compares two constants")
            left, right = right, left
            op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)  # type: ignore[assignment]
        first = self._values(left)
        if isinstance(right, Constant):
            if right.value is None:
                return first.values.is_null() if op == "<=>" else self._unknown()
            here, there = self._beside(first, right)
        else:
            here, there = _alike(node.at, first, self._values(right))
        if op != "<=>":
            return _OPS[op](here, there)
        if isinstance(there, pa.Scalar):
            return pc.fill_null(pc.equal(here, there), False)
        both = pc.and_(here.is_null(), there.is_null())
        return pc.or_(both, pc.fill_null(pc.equal(here, there), False))

    def _with_null(self, node: Compare, are_both: bool) -> pa.BooleanArray:
        if node.op == "<=>":
            return pa.repeat(pa.scalar(are_both), self.count)
        return self._unknown()

    def _unknown(self) -> pa.BooleanArray:
        return pa.nulls(self.count, pa.bool_())

    def _like(self, node: Like) -> pa.BooleanArray:
        if isinstance(node.value, Constant):
            _refuse(node.at, "LIKE wants a column")
        found = self._values(node.value)
        if found.kind != "text":
            _refuse(node.at, f"LIKE wants a text, and column {found.name} is none")
        if node.pattern is None:
            return self._unknown()
        return pc.match_substring_regex(found.values, _as_regex(node.pattern, node.escape))

    def _values(self, node: Value) -> _Values:
        match node:
            case Name():
                return self._column(node)
            case Arithmetic():
                return self._calculated(node)
        assert isinstance(node, Constant)
        if not isinstance(node.value, int):
            _refuse(node.at, "only whole numbers are calculated with")
        kind, low, high = _WHOLE
        if not low <= node.value <= high:
            _refuse(node.at, "the number is too large to be calculated with")
        return _Values("whole", pa.repeat(pa.scalar(node.value, kind), self.count), "")

    def _column(self, node: Name) -> _Values:
        found = self.columns[node.text.lower()]
        of = found.column.type
        kind: _Kind = _KINDS.get(of.name, "other")
        if of.name in ("enum", "set") and not of.elements:
            kind = "other"
        if of.name == "decimal" and pa.types.is_string(found.values.type):
            kind = "other"
        return _Values(
            kind,
            found.values,
            found.column.name,
            is_unsigned=of.unsigned or of.name in ("bit", "year"),
            two_digits=of.name == "year",
        )

    def _calculated(self, node: Arithmetic) -> _Values:
        left, right = self._values(node.left), self._values(node.right)
        for each in (left, right):
            if each.kind != "whole" or pa.types.is_decimal(each.values.type):
                _refuse(
                    node.at,
                    f"{node.op} is for whole numbers below 2^63 alone, and column {each.name} is "
                    "of another type",
                )
        a, b = left.values.cast(pa.int64()), right.values.cast(pa.int64())
        try:
            if node.op in _CALCULATED:
                found = _CALCULATED[node.op](a, b)
            else:
                b = pc.if_else(pc.equal(b, 0), None, b)
                found = pc.divide_checked(a, b)
                if node.op == "%":
                    found = pc.subtract(a, pc.multiply(found, b))
        except pa.ArrowInvalid as error:
            raise TidelakeError(f"{_place(node.at)}: a result is out of range: {error}") from error
        is_unsigned = (left.is_unsigned or right.is_unsigned) and node.op != "%"
        if is_unsigned and pc.any(pc.less(found, 0)).as_py():
            raise TidelakeError(
                f"{_place(node.at)}: a result is out of range: it is below 0, and unsigned"
            )
        return _Values("whole", found, left.name or right.name, is_unsigned=is_unsigned)

    def _beside(self, column: _Values, constant: Constant) -> tuple[pa.Array, pa.Scalar]:
        """The values and the constant, in one type."""
        value: Any = constant.value
        if column.kind in _NUMBERS:
            return _numbers(column, self._number(column, constant))
        if not isinstance(value, str):
            _refuse(
                constant.at,
                f"column {column.name} is no number: write the constant in quotes"
                if column.kind != "other"
                else _of_other(column),
            )
        if column.kind == "text":
            return _trimmed(column.values), pa.scalar(value.rstrip(" "), pa.string())
        if column.kind == "bytes":
            return column.values, pa.scalar(value.encode(), pa.binary())
        if column.kind in ("datetime", "instant"):
            return self._moments(column, constant.at, value)
        raise _wrong(constant.at, _of_other(column))

    def _number(self, column: _Values, constant: Constant) -> int | Decimal | float:
        value = constant.value
        if isinstance(value, str):
            if _NUMBER.fullmatch(value) is None:
                _refuse(constant.at, f"column {column.name} is a number, and this is none")
            read = Decimal(value.strip())
            value = int(read) if read == read.to_integral_value() and abs(read) < 2**63 else read
        assert value is not None
        if column.two_digits and 0 < value < 100:
            _refuse(constant.at, "write a year with four digits")
        return value

    def _moments(self, column: _Values, at: int, text: str) -> tuple[pa.Array, pa.Scalar]:
        whole = f"{text} 00:00:00" if _DATE.fullmatch(text) else text
        cast = cast_timestamps(pa.array([whole]), CastRules(time_zone="UTC", zero_date="fail"))
        if cast.failed is not None:
            _refuse(
                at,
                f"column {column.name} is a date or a time: write '2026-01-31' or "
                "'2026-01-31 09:30:00', a day that there is",
            )
        if column.kind == "instant":
            (moment,) = cast_timestamps(pa.array([whole]), self.rules).values
            return column.values, moment
        local = pa.timestamp("us")
        return column.values.cast(local), cast.values.cast(local)[0]


def _alike(at: int, left: _Values, right: _Values) -> tuple[pa.Array, pa.Array]:
    """Two columns in one type."""
    if left.kind in _NUMBERS and right.kind in _NUMBERS:
        if "double" in (left.kind, right.kind):
            return _doubles(left.values), _doubles(right.values)
        if pa.types.is_integer(left.values.type) and pa.types.is_integer(right.values.type):
            return left.values.cast(pa.int64()), right.values.cast(pa.int64())
        scale = max(_scale(left.values.type), _scale(right.values.type))
        kind = pa.decimal256(_PRECISION, scale)
        return left.values.cast(kind), right.values.cast(kind)
    if left.kind != right.kind or left.kind == "other":
        _refuse(at, f"columns {left.name} and {right.name} are not compared: their types differ")
    if left.kind == "text":
        return _trimmed(left.values), _trimmed(right.values)
    if left.kind == "datetime":
        return left.values.cast(pa.timestamp("us")), right.values.cast(pa.timestamp("us"))
    return left.values, right.values


def _numbers(column: _Values, value: int | Decimal | float) -> tuple[pa.Array, pa.Scalar]:
    if column.kind == "double" or isinstance(value, float):
        return _doubles(column.values), pa.scalar(float(value))
    kind, low, high = _WHOLE
    if pa.types.is_integer(column.values.type) and isinstance(value, int) and low <= value <= high:
        return column.values.cast(kind), pa.scalar(value, kind)
    said = Decimal(value)
    scale = max(_scale(column.values.type), -int(said.as_tuple().exponent), 0)
    as_decimal = pa.decimal256(_PRECISION, scale)
    return column.values.cast(as_decimal), pa.scalar(said, as_decimal)


def _scale(kind: pa.DataType) -> int:
    return int(kind.scale) if pa.types.is_decimal(kind) else 0


def _doubles(values: pa.Array) -> pa.Array:
    return values.cast(pa.float64(), safe=False)


def _trimmed(values: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(values, " ")


def _as_regex(pattern: str, escape: str) -> str:
    found, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape and at + 1 < len(pattern):
            at += 1
            found += re.escape(pattern[at])
        elif character in "%_":
            found += ".*" if character == "%" else "."
        else:
            found += re.escape(character)
        at += 1
    return rf"(?s)\A{found}\z"


def _of_other(column: _Values) -> str:
    return f"the type of column {column.name} is not compared here: ask IS NULL alone"


def _place(at: int) -> str:
    return f"at character {at}"


def _refuse(at: int, why: str) -> NoReturn:
    raise _wrong(at, why)


def _wrong(at: int, why: str) -> ConfigError:
    return ConfigError(f"{_place(at)}: {why}")
