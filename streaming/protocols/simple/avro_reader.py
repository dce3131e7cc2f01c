"""One message of simple in Avro: the meaning of any message, however rare.

Slow and strict. ``avro_rows.py`` reads the plain rows of a table many at a time and hands over the
others; a row that it takes must mean the same here. The schema is TiCDC's own, fixed, and no
registry has it: a union of all its records, of which each message is a ``Message``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.avro_binary.datum_reader import DatumReader
from streaming.protocols.contract import NO_TABLE, OP_DELETE, OP_INSERT, OP_UPDATE, Cells
from streaming.protocols.json_text.strict_json import Malformed, Number
from streaming.protocols.rows.parsed_message import (
    Bad,
    Cell,
    Error,
    Event,
    ParsedRow,
    Shape,
    reduced,
)
from streaming.protocols.simple.strict_parser import cell_of, checksum_of, event

MESSAGE: Final = 11  # of the union
VERSION: Final = 1  # of the protocol
WATERMARK, BOOTSTRAP, DDL, DML = range(4)
OPS: Final = (OP_INSERT, OP_UPDATE, OP_DELETE)
_DDL_TYPES: Final = (
    *("CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX", "QUERY"),
)
NULL, LONG, FLOAT, DOUBLE, TEXT, BYTES, MOMENT, UNSIGNED = range(8)  # branches of a value
# The type of a column's cells by its branch; a column without a value has texts.
CELL_TYPES: Final = (
    *(pa.string(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.string()),
    pa.uint64(),
)
_WORD_MASK: Final = 2**64 - 1
_MALFORMED: Final = Error("malformed", "not a message of simple in Avro")
_NO_COMMIT_TS: Final = Error("no-commit-ts", "no commitTs above zero")


def read(value: bytes) -> Event:
    data = DatumReader(value)
    name = NO_TABLE
    try:
        kind = _kind(data)
        found: Event
        if kind != DML:
            found = event(_READERS[kind](data))
        else:
            name = TableName(data.text(), data.text())
            found = _row(name, data)
        data.end()
    except Malformed:
        return Bad(name, _MALFORMED, is_row=name != NO_TABLE)
    return found


def _kind(data: DatumReader) -> int:
    """The kind of a message, read up to behind the version."""
    union, kind, payload = data.index(MESSAGE + 1), data.index(DML + 1), data.index(DML + 1)
    if union != MESSAGE or kind != payload:
        raise Malformed
    data.integer()
    return kind


def claim_of(value: bytes) -> tuple[str, TableName] | None:
    """The place of a row that is in claim-check storage, and its table."""
    data = DatumReader(value)
    try:
        if _kind(data) != DML:
            return None
        name = TableName(data.text(), data.text())
        _row_head(data)
        place = _perhaps(data, DatumReader.text)
    except Malformed:
        return None
    return None if place is None else (place, name)


def typed_alike(events: Iterable[Event]) -> list[Event]:
    """The same events. Rows of one table, version and columns have one shape, if no two of them
    have a column in different types: a column that is NULL in some rows has the type of the
    others."""
    found = list(events)
    rows = [each for each in found if isinstance(each, ParsedRow)]
    types: dict[object, dict[str, set[pa.DataType]]] = {}
    for row in rows:
        known = types.setdefault(_alike(row), {})
        for name, kind in row.shape.typed:
            known.setdefault(name, set()).add(kind)
    told = {of: {n: _only(k) for n, k in known.items()} for of, known in types.items()}
    return [_retyped(each, told) if isinstance(each, ParsedRow) else each for each in found]


def _alike(row: ParsedRow) -> object:
    return row.name, row.shape.columns, row.shape.only_old, row.shape.version


def _only(kinds: set[pa.DataType]) -> pa.DataType | None:
    return next(iter(kinds)) if len(kinds) == 1 else None


def _retyped(row: ParsedRow, told: Mapping[object, Mapping[str, pa.DataType | None]]) -> ParsedRow:
    own = dict(row.shape.typed)
    found = {
        name: own[name] if name in own else _type_of_nulls(row, name, kind)
        for name, kind in told[_alike(row)].items()
    }
    typed = frozenset((name, kind) for name, kind in found.items() if kind is not None)
    return row if typed == row.shape.typed else replace(row, shape=replace(row.shape, typed=typed))


def _type_of_nulls(row: ParsedRow, name: str, kind: pa.DataType | None) -> pa.DataType | None:
    """The type of a column that is NULL in this row. A text has none of its own."""
    values = dict(zip(row.shape.columns, row.values, strict=True))
    sides = (values.get(name), (row.old or {}).get(name))
    return kind if all(each is None for each in sides) else None


def _watermark(data: DatumReader) -> dict[str, Any]:
    ts = data.long()
    data.long()
    return {"type": "WATERMARK", "commitTs": Number(ts)}


def _bootstrap(data: DatumReader) -> dict[str, Any]:
    data.long()
    return {"type": "BOOTSTRAP", "tableSchema": _table(data)}


def _ddl(data: DatumReader) -> dict[str, Any]:
    kind, sql, ts = _DDL_TYPES[data.index(len(_DDL_TYPES))], data.text(), data.long()
    data.long()
    after, before = _perhaps(data, _table), _perhaps(data, _table)
    fields = {"type": kind, "sql": sql, "commitTs": Number(ts)}
    return fields | {"tableSchema": after, "preTableSchema": before}


_READERS: Final[Mapping[int, Callable[[DatumReader], dict[str, Any]]]] = {
    WATERMARK: _watermark,
    BOOTSTRAP: _bootstrap,
    DDL: _ddl,
}


def _perhaps(data: DatumReader, read_it: Callable[[DatumReader], Any]) -> Any:
    return read_it(data) if data.index(2) else None


def _table(data: DatumReader) -> dict[str, Any]:
    """As the JSON encoding has it."""
    schema, table = data.text(), data.text()
    data.long()
    version = Number(data.long())
    columns = [_column(data) for _ in data.items()]
    indexes = [_index(data) for _ in data.items()]
    return {
        "schema": schema,
        "table": table,
        "version": version,
        "columns": columns,
        "indexes": indexes,
    }


def _column(data: DatumReader) -> dict[str, Any]:
    name, kind = data.text(), {"mysqlType": data.text()}
    data.text()
    data.text()
    of: dict[str, Any] = {
        **kind,
        "length": Number(data.long()),
        "decimal": _perhaps(data, lambda each: Number(each.integer())),
        "elements": _perhaps(data, _texts),
        "unsigned": _perhaps(data, DatumReader.boolean),
        "zerofill": _perhaps(data, DatumReader.boolean),
    }
    nullable = data.boolean()
    default = _perhaps(data, DatumReader.text)
    return {"name": name, "dataType": of, "nullable": nullable, "default": default}


def _index(data: DatumReader) -> dict[str, Any]:
    return {
        "name": data.text(),
        "unique": data.boolean(),
        "primary": data.boolean(),
        "nullable": data.boolean(),
        "columns": _texts(data),
    }


def _texts(data: DatumReader) -> list[str]:
    return [data.text() for _ in data.items()]


def _row(name: TableName, data: DatumReader) -> ParsedRow | Bad:
    op, ts, version = _row_head(data)
    place = _perhaps(data, DatumReader.text)
    is_cut = bool(_perhaps(data, DatumReader.boolean))
    checksum = _perhaps(data, partial(_checksum, op))
    new, old = _perhaps(data, _values), _perhaps(data, _values)
    values = old if op == OP_DELETE else new
    if not values or not name.table:
        raise Malformed
    if ts <= 0:  # at or below every checkpoint: it would vanish
        return Bad(name, _NO_COMMIT_TS, is_row=True)
    before = (old or {}) if op == OP_UPDATE else {}
    typed = dict[str, int]()
    for side in (values, before):
        for each, (branch, _) in side.items():
            if branch != NULL and typed.setdefault(each, branch) != branch:
                raise Malformed
    columns = tuple(sorted(values))
    only_old = tuple(sorted(before.keys() - values.keys()))
    shape = _shape(columns, only_old, version, tuple(sorted(typed.items())))
    return ParsedRow(
        name=name,
        op=op,
        commit_ts=ts,
        shape=shape,
        values=tuple(values[each][1] for each in columns),
        old={n: value for n, (_, value) in old.items()} if op == OP_UPDATE and old else None,
        error=None if op == OP_DELETE else reduced(place, is_cut=is_cut),
        checksum=checksum,
    )


def _row_head(data: DatumReader) -> tuple[int, int, int]:
    """Op, commit-ts and version; then follow a claim and the values."""
    data.long()  # the table's ID
    op, ts = OPS[data.index(len(OPS))], data.long()
    data.long()
    return op, ts, data.long()


def shape_of(columns: Sequence[str], version: int, branches: Sequence[int]) -> Shape:
    """The shape of rows whose columns have values of these branches, or none at all (NULL)."""
    told = ((n, branch) for n, branch in zip(columns, branches, strict=True) if branch != NULL)
    return _shape(tuple(columns), (), version, tuple(told))


@lru_cache(maxsize=256)
def _shape(
    columns: tuple[str, ...],
    only_old: tuple[str, ...],
    version: int,
    branches: tuple[tuple[str, int], ...],
) -> Shape:
    """One object for many rows."""
    typed = frozenset(
        (name, CELL_TYPES[branch]) for name, branch in branches if CELL_TYPES[branch] != pa.string()
    )
    return Shape(columns, (), None, only_old, typed, cells=Cells.ENCODED, version=version)


def _checksum(op: int, data: DatumReader) -> int:
    data.integer()
    corrupted, current, previous = data.boolean(), data.long(), data.long()
    return checksum_of(previous if op == OP_DELETE else current, corrupted=corrupted)


def _values(data: DatumReader) -> dict[str, tuple[int, Cell]]:
    found = dict[str, tuple[int, Cell]]()
    for _ in data.items():
        name = data.text()
        if name in found:
            raise Malformed
        found[name] = _value(data)
    return found


def _value(data: DatumReader) -> tuple[int, Cell]:
    branch = data.index(UNSIGNED + 1)
    return branch, _VALUES[branch](data)


def _nothing(_data: DatumReader) -> None:
    return None


def _moment(data: DatumReader) -> str | None:
    return cell_of({"location": data.text(), "value": data.text()})


def _unsigned(data: DatumReader) -> int:
    return data.long() & _WORD_MASK


_VALUES: Final[Sequence[Callable[[DatumReader], Cell]]] = (
    *(_nothing, DatumReader.long, DatumReader.single, DatumReader.double),
    *(DatumReader.text, DatumReader.octets, _moment, _unsigned),
)
