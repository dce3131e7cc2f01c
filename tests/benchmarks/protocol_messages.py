"""The same changes of one table as the messages of each protocol that TiCDC writes.

Member order, number texts and flags are those of the recorded bytes in ``tests/data/wire``. A row
of canal-json is content-compatible (`messages.py`): it has the types, and of an old row what
changed. The others have the whole old row, but for avro and csv, which have none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from streaming.protocols.csv.table_head import TableHead
from tests.benchmarks import messages as canal
from tests.benchmarks.rows import MYSQL_TYPES, SCHEMA, Cells
from tests.benchmarks.workload import DELETE, INSERT, UPDATE, Changes
from tests.services.avro_writer import branch, double, long, octets, text
from tests.streaming.protocols.avro import reading as avro_
from tests.streaming.protocols.open.reading import framed
from tests.streaming.protocols.open.reading import key as open_key
from tests.streaming.protocols.simple import avro_reading as simple_avro_
from tests.streaming.protocols.simple.reading import row as simple_row
from tests.streaming.protocols.simple.reading import text_of

NAME: Final = TableName("shop", "orders")
CANAL: Final = "canal-json"
CANAL_FILES: Final = "canal-json in files"
CSV: Final = "csv in files"
OPEN_BATCH: Final = 16  # TiCDC's default of max-batch-size
_SCHEMA_VERSION: Final = 470_620_744_121_057_280
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Number and flags of a type in open-protocol.
_OPEN: Final = {
    "bigint": (8, 65), "decimal": (246, 65), "varchar": (15, 64), "datetime": (12, 65),
    "tinyint": (1, 65), "double": (5, 65), "int": (3, 65),
}  # fmt: skip
# Type in Debezium's schema, and its name there.
_DEBEZIUM: Final = {
    "bigint": ("int64", None), "decimal": ("double", None), "varchar": ("string", None),
    "datetime": ("int64", "io.debezium.time.MicroTimestamp"), "tinyint": ("int16", None),
    "double": ("double", None), "int": ("int32", None),
}  # fmt: skip
_BASE: Final = {name: kind.partition("(")[0] for name, kind in MYSQL_TYPES.items()}
_NUMBERS: Final = frozenset(("bigint", "tinyint", "int", "double"))

Row = dict[str, str]  # by column the text that TiDB prints
Sent = tuple[bytes | None, bytes]  # key, value


@dataclass(frozen=True, slots=True)
class Change:
    """``old``: of an UPDATE."""

    op: int
    commit_ts: int
    row: Row
    old: Row | None


def changes_of(history: Changes, first: int = 0) -> list[Change]:
    """Each change with its texts. ``first``: how many came before."""
    commits = canal.commit_ts(first, len(history)).tolist()
    rows = _rows(Cells(history.ids, history.vers))
    olds = _rows(Cells(history.ids, np.maximum(history.vers - 1, 0)))
    ops = history.ops.tolist()
    return [
        Change(op, ts, row, old if op == UPDATE else None)
        for op, ts, row, old in zip(ops, commits, rows, olds, strict=True)
    ]


def _rows(cells: Cells) -> list[Row]:
    names = SCHEMA.names
    columns = [[each.decode() for each in cells.text(name).tolist()] for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def canal_json(history: Changes, first: int = 0) -> list[Sent]:
    tables = np.full(len(history), NAME.table.encode())
    commits = canal.commit_ts(first, len(history))
    values = canal.encode(
        history.ids, history.vers, history.ops, commits, schema=NAME.schema, tables=tables
    )
    return [(None, each) for each in values]


def simple_json(changes: Sequence[Change]) -> Iterator[Sent]:
    kinds = {INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE"}
    for each in changes:
        now, old = _sorted(each.row), None if each.old is None else _sorted(each.old)
        sides = (None, now) if each.op == DELETE else (now, old)
        yield (
            None,
            simple_row(
                kinds[each.op],
                each.commit_ts,
                table=NAME.table,
                schemaVersion=_SCHEMA_VERSION,
                data=sides[0],
                old=sides[1],
            ),
        )


def simple_avro(changes: Sequence[Change]) -> Iterator[Sent]:
    """Columns in another order in each row, as a map of Go has them."""
    dice = random.Random(5)
    kinds = {INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE"}

    def side(row: Row | None) -> dict[str, bytes] | None:
        if row is None:
            return None
        names = dice.sample([*row], len(row))
        return {name: _simple_cell(_BASE[name], row[name]) for name in names}

    for each in changes:
        sides = (None, each.row) if each.op == DELETE else (each.row, each.old)
        yield (
            None,
            simple_avro_.row(
                kinds[each.op],
                each.commit_ts,
                data=side(sides[0]),
                old=side(sides[1]),
                version=_SCHEMA_VERSION,
                table=NAME.table,
            ),
        )


def _simple_cell(kind: str, cell: str) -> bytes:
    if kind == "double":
        return branch(3, double(float(cell)))
    return simple_avro_.whole(int(cell)) if kind in _NUMBERS else simple_avro_.of_text(cell)


def open_protocol(changes: Sequence[Change]) -> Iterator[Sent]:
    for first in range(0, len(changes), OPEN_BATCH):
        some = changes[first : first + OPEN_BATCH]
        keys = [text_of(open_key(c.commit_ts, NAME.table, rid=int(c.row["id"]))) for c in some]
        yield (1).to_bytes(8, "big") + framed(keys), framed([_open_value(c) for c in some])


def _open_value(change: Change) -> bytes:
    if change.op == DELETE:
        return text_of({"d": _open_side(change.row)})
    old = {} if change.old is None else {"p": _open_side(change.old)}
    return text_of({"u": _open_side(change.row), **old})


def _open_side(row: Row) -> dict[str, Any]:
    found = {}
    for name, cell in sorted(row.items()):
        number, flags = _OPEN[_BASE[name]]
        value = number_of(_BASE[name], cell)
        is_key = name == "id"
        found[name] = {"t": number, **({"h": True} if is_key else {}),
                       "f": 11 if is_key else flags, "v": value}  # fmt: skip
    return found


def number_of(kind: str, cell: str) -> int | float | str:
    if kind == "double":
        return float(cell)
    return int(cell) if kind in _NUMBERS else cell


_AVRO_TYPES: Final = {
    "bigint": "BIGINT", "decimal": "DECIMAL", "varchar": "TEXT", "datetime": "DATETIME",
    "tinyint": "INT", "double": "DOUBLE", "int": "INT",
}  # fmt: skip
VALUE: Final = avro_.VALUE  # the number of a row's schema
_SCALE: Final = {"precision": 18, "scale": 2}
AVRO_SCHEMAS: Final = {
    avro_.KEY: avro_.schema([avro_.field("id", "BIGINT")], name=NAME.table, is_key=True),
    avro_.VALUE: avro_.schema(
        [
            avro_.field(
                name,
                _AVRO_TYPES[kind],
                nullable=name != "id",
                **(_SCALE if kind == "decimal" else {}),
            )
            for name, kind in _BASE.items()
        ],
        name=NAME.table,
    ),
}


def avro(changes: Sequence[Change]) -> Iterator[Sent]:
    """A DELETE has no row: its key, and the commit-ts."""
    for each in changes:
        key = avro_.framed(avro_.KEY, long(int(each.row["id"])))
        if each.op == DELETE:
            yield key, b"\x03" + each.commit_ts.to_bytes(8, "big")
            continue
        cells = b"".join(_avro_cell(name, cell) for name, cell in each.row.items())
        letter = "c" if each.op == INSERT else "u"
        yield key, avro_.framed(avro_.VALUE, cells + avro_.extension(letter, each.commit_ts))


def _avro_cell(name: str, cell: str) -> bytes:
    kind = _BASE[name]
    if kind == "double":
        made = double(float(cell))
    elif kind in _NUMBERS:
        made = long(int(cell))
    elif kind == "decimal":
        unscaled = int(cell.replace(".", ""))
        made = octets(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True))
    else:
        made = text(cell)
    return made if name == "id" else branch(1, made)


def debezium(changes: Sequence[Change]) -> Iterator[Sent]:
    """With its schema, TiCDC's default."""
    told = _debezium_schema()
    ending = b',"schema":' + text_of(told) + b"}"
    for each in changes:
        source = {
            "version": "2.4.0.Final", "connector": "TiCDC", "name": "default",
            "ts_ms": each.commit_ts >> 18, "snapshot": "false", "db": NAME.schema,
            "table": NAME.table, "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0,
            "thread": 0, "query": None, "commit_ts": each.commit_ts, "cluster_id": "default",
        }  # fmt: skip
        now, old = _debezium_side(each.row), each.old and _debezium_side(each.old)
        before, after = (now, None) if each.op == DELETE else (old, now)
        payload = {
            "source": source,
            "ts_ms": (each.commit_ts >> 18) + 40,
            "transaction": None,
            "op": {INSERT: "c", UPDATE: "u", DELETE: "d"}[each.op],
            "before": before,
            "after": after,
        }
        key = {"payload": {"id": now["id"]}, "schema": _DEBEZIUM_KEY}
        yield text_of(key), b'{"payload":' + text_of(payload) + ending


def without_schemas(sent: Sequence[Sent]) -> Iterator[Sent]:
    """The same with ``debezium-disable-schema``."""
    for key, value in sent:
        yield _payload(key or b""), _payload(value)


def _payload(whole: bytes) -> bytes:
    return whole[: whole.rindex(b',"schema":{"type":')] + b"}"


def _debezium_side(row: Row) -> dict[str, Any]:
    return {name: _debezium_cell(_BASE[name], cell) for name, cell in row.items()}


def _debezium_cell(kind: str, cell: str) -> int | float | str:
    if kind == "decimal":
        return float(cell)
    if kind == "datetime":
        moment = datetime.fromisoformat(cell).replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return number_of(kind, cell)


def _debezium_field(name: str) -> dict[str, Any]:
    kind = _BASE[name]
    avro_type, logical = _DEBEZIUM[kind]
    named = {} if logical is None else {"name": logical, "version": 1}
    return {"tidb_type": kind, "type": avro_type, "optional": name != "id", **named, "field": name}


_DEBEZIUM_KEY: Final = {
    "type": "struct",
    "name": "default.shop.orders.Key",
    "optional": False,
    "fields": [_debezium_field("id")],
}


def _debezium_schema() -> dict[str, Any]:
    of_source = {
        **dict.fromkeys(("version", "connector", "name"), "string"), "ts_ms": "int64",
        **dict.fromkeys(("snapshot", "db", "sequence", "table"), "string"), "server_id": "int64",
        **dict.fromkeys(("gtid", "file"), "string"), "pos": "int64", "row": "int32",
        "thread": "int64", "query": "string",
    }  # fmt: skip
    sides = [
        {
            "type": "struct",
            "optional": True,
            "name": "default.shop.orders.Value",
            "field": side,
            "fields": [_debezium_field(name) for name in _BASE],
        }
        for side in ("before", "after")
    ]
    source = {
        "type": "struct",
        "fields": [{"type": k, "optional": True, "field": n} for n, k in of_source.items()],
        "optional": False,
        "name": "io.debezium.connector.mysql.Source",
        "field": "source",
    }
    return {
        "type": "struct",
        "optional": False,
        "name": "default.shop.orders.Envelope",
        "version": 1,
        "fields": [*sides, source, {"type": "string", "optional": False, "field": "op"},
                   {"type": "int64", "optional": True, "field": "ts_ms"}],
    }  # fmt: skip


CSV_HEAD: Final = TableHead(NAME, tuple(MYSQL_TYPES.items()), ("id",), CsvFormat())


def csv(changes: Sequence[Change]) -> bytes:
    """A file, as TiCDC writes it without other settings than the commit-ts."""
    letters = {INSERT: "I", UPDATE: "U", DELETE: "D"}
    lines = (
        f'"{letters[each.op]}","{NAME.table}","{NAME.schema}",{each.commit_ts},'
        + ",".join(cell if _BASE[n] in _NUMBERS else f'"{cell}"' for n, cell in each.row.items())
        for each in changes
    )
    return "".join(line + "\r\n" for line in lines).encode()


def _sorted(row: Row) -> Row:
    return dict(sorted(row.items()))


def sent_of(history: Changes, changes: Sequence[Change]) -> dict[str, list[Sent]]:
    """The messages of each protocol."""
    with_schemas = list(debezium(changes))
    return {
        CANAL: canal_json(history),
        "open-protocol": list(open_protocol(changes)),
        "simple": list(simple_json(changes)),
        "simple, Avro": list(simple_avro(changes)),
        "avro": list(avro(changes)),
        "debezium": with_schemas,
        "debezium, no schema": list(without_schemas(with_schemas)),
    }


def files_of(history: Changes, changes: Sequence[Change]) -> dict[str, bytes]:
    return {CANAL_FILES: lines_of(canal_json(history)), CSV: csv(changes)}


def lines_of(sent: Sequence[Sent]) -> bytes:
    """A file of canal-json."""
    return b"".join(value + b"\r\n" for _, value in sent)


def simple_avro_schema() -> str:
    """Of what stands behind the first four numbers of a row, for a reader of Avro."""

    def nullable(name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": ["null", kind]}

    moment = [{"name": each, "type": "string"} for each in ("location", "value")]
    cell = ["null", "long", "float", "double", "string", "bytes",
            {"type": "record", "name": "Moment", "fields": moment}]  # fmt: skip
    checksum = [{"name": "version", "type": "int"}, {"name": "corrupted", "type": "boolean"},
                {"name": "current", "type": "long"},
                {"name": "previous", "type": "long"}]  # fmt: skip
    kinds = {"type": "enum", "name": "Kind", "symbols": ["INSERT", "UPDATE", "DELETE"]}
    names = {"database": "string", "table": "string", "tableID": "long", "type": kinds,
             "commitTs": "long", "buildTs": "long", "schemaVersion": "long"}  # fmt: skip
    fields = [
        *({"name": name, "type": kind} for name, kind in names.items()),
        nullable("claimCheckLocation", "string"),
        nullable("handleKeyOnly", "boolean"),
        nullable("checksum", {"type": "record", "name": "Checksum", "fields": checksum}),
        nullable("data", {"type": "map", "values": cell}),
        nullable("old", {"type": "map", "values": [*cell[:-1], "Moment"]}),
    ]
    return json.dumps({"type": "record", "name": "Row", "fields": fields})
