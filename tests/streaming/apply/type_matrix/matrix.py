"""What each protocol loses of each MySQL type, and the table of docs/types.md that says so:
``python -m tests.streaming.apply.type_matrix.matrix`` writes it into the page.

A protocol is one entry of PROTOCOLS. What it loses is in LOST, with a rule that each cell which
differs must keep; all other cells are the database's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

from streaming.protocols.contract import Block
from tests.streaming.apply.type_matrix.extremes import (
    Notation,
    exchanged,
    exchanged_events,
    go_json,
    go_shortest,
    packed,
    plain,
)
from tests.streaming.apply.type_matrix.readings import (
    DEAD,
    LABELS,
    LOAD,
    Recording,
    of_avro_messages,
    of_csv_files,
    of_json_files,
    of_loaded_messages,
    of_messages,
    of_untimed_messages,
)

PAGE = Path(__file__).resolve().parents[4] / "docs/types.md"
BEGIN = "<!-- made by tests/streaming/apply/type_matrix/matrix.py -->\n"
END = "<!-- end -->\n"
EXACT = "exact"
MANY = 50  # `rows/alike.py`: FEW
VECTORS = f"{EXACT}; of MariaDB [binary](#what-a-binlog-tells)"
BINLOG = "MySQL's and MariaDB's binlog"  # `test_types_of_binlogs.py` reads those of servers


def recorded(
    variant: str,
    protocol: str,
    notation: Notation,
    blocks: Callable[[Recording], Iterable[Block]] = of_messages,
    *,
    labels: tuple[str, ...] = LABELS,
    exchange: Callable[[bytes, Notation], bytes] = exchanged,
    failed: frozenset[int] = frozenset(),
) -> Iterator[Recording]:
    """As it is, and with the extremes that it lacks: there in so many messages that they are read
    side by side. ``notation``: of its numbers."""
    for has_extremes in (False, True):
        yield Recording(
            variant=variant,
            protocol=protocol,
            blocks=blocks,
            labels=labels,
            exchange=partial(exchange, notation=notation),
            has_extremes=has_extremes,
            copies=MANY if has_extremes else 1,
            failed=failed,
        )


NULL_VECTORS = frozenset({5})  # of a row with one TiCDC's encoder of maxwell writes nothing
PROTOCOLS: Mapping[str, Sequence[Recording]] = {
    "canal-json": (
        *recorded("canal-json", "canal-json", plain),
        *recorded("canal-json-content-compatible", "canal-json", plain),
        *recorded("canal-json-noext", "canal-json", plain, of_untimed_messages),
        *recorded("storage-canal-json", "canal-json", plain, of_json_files),
    ),
    "open-protocol": tuple(
        recorded("open-protocol", "open-protocol", go_json, exchange=exchanged_events)
    ),
    "simple": (
        *recorded("simple-json", "simple", plain),
        *recorded("simple-avro", "simple", packed),
    ),
    "avro": (
        *recorded("avro-watermark", "avro", packed, of_avro_messages),
        *recorded("avro-string-modes", "avro", packed, of_avro_messages, labels=(LOAD,)),
    ),
    "csv": (
        *recorded("storage-csv", "csv", go_shortest, of_csv_files),
        *recorded("storage-csv-old-value-hex", "csv", go_shortest, of_csv_files),
    ),
    "debezium": (
        *recorded("debezium", "debezium", go_json),
        *recorded("debezium-noschema", "debezium", go_json),
    ),
    "maxwell": tuple(
        recorded(
            "maxwell",
            "maxwell",
            go_json,
            of_loaded_messages,
            labels=(LOAD,),
            failed=NULL_VECTORS,
        )
    ),
}

# The rows of the page, with the columns of the recorded table.
ROWS: Mapping[str, str] = {
    "tinyint … bigint": "id c_tinyint c_utinyint c_bool c_smallint c_usmallint c_mediumint "
    "c_umediumint c_int c_uint c_zero c_bigint c_nn_int c_gen_s select",
    "bigint unsigned": "c_ubigint",
    "bit": "c_bit1 c_bit10 c_bit64",
    "year": "c_year",
    "float, double": "c_float c_double c_ufloat c_udouble",
    "decimal": "c_dec c_dec2 c_udec",
    "char, varchar, text": "c_char c_varchar c_tinytext c_text c_mediumtext c_longtext "
    "c_nn_vc 列名",
    "… in gbk, latin1, ascii": "c_gbk c_gbktext c_latin1 c_ascii",
    "binary, varbinary, blob": "c_binary c_varbinary c_tinyblob c_blob c_mediumblob c_longblob",
    "date": "c_date",
    "datetime": "c_datetime c_datetime6",
    "timestamp": "c_timestamp c_timestamp6 c_nn_ts",
    "time": "c_time c_time6",
    "enum, set": "c_enum c_set",
    "json": "c_json",
    "vector": "c_vec",
}


@dataclass(frozen=True)
class Loss:
    """``text``: on the page. ``is_it``: whether a value, and what came of it, are this loss."""

    text: str
    is_it: Callable[[Any, Any], bool]


def is_rounded(was: Any, now: Any) -> bool:
    """As a double has it. A text of a decimal above 38 digits is one here, too."""
    return bool(now == DEAD or abs(Decimal(was) - Decimal(now)) <= abs(Decimal(was)) * _DOUBLE)


_DOUBLE = Decimal(2) ** -52
_OTHER_YEAR = Loss(
    "years below 100 are others",
    lambda was, now: was.year < 100 and now == was.replace(year=now.year),
)
LOST: Mapping[tuple[str, str], Loss] = {
    ("debezium", "decimal"): Loss(
        "rounded to a double; a dead letter if it has no place then", is_rounded
    ),
    ("debezium", "date"): _OTHER_YEAR,
    ("debezium", "datetime"): _OTHER_YEAR,
    ("debezium", "timestamp"): Loss(
        "`0000-00-00` is 1970-01-01", lambda was, now: was is None and now.timestamp() == 0
    ),
}


@dataclass(frozen=True)
class Cell:
    """A value that is other than the database's; or a row that is, with the column ``*``."""

    where: str  # recording, state and key
    column: str
    was: Any
    now: Any


def differing(recording: Recording) -> Iterator[Cell]:
    for label in recording.labels:
        found = recording.values(label)
        wanted = {row["id"]: row for row in recording.truth(label).rows}
        for key in found.keys() | wanted.keys():
            where = f"{recording.name} {label} {key}"
            if key not in found or key not in wanted:
                yield Cell(where, "*", wanted.get(key), found.get(key))
                continue
            for column, was in wanted[key].items():
                now = found[key][column]
                if type(now) is not type(was) or now != was:
                    yield Cell(where, column, was, now)


@cache
def cells_of(protocol: str) -> tuple[Cell, ...]:
    return tuple(cell for each in PROTOCOLS[protocol] for cell in differing(each))


def unexplained(protocol: str) -> list[Cell]:
    """Cells that differ in another way than LOST says."""
    row_of = {column: row for row, columns in ROWS.items() for column in columns.split()}
    found = []
    for cell in cells_of(protocol):
        loss = LOST.get((protocol, row_of.get(cell.column, "")))
        if loss is None or not loss.is_it(cell.was, cell.now):
            found.append(cell)
    return found


def table() -> str:
    """A row for each type, a column for each protocol: what was found in the recordings."""
    names = (*(f"`{name}`" for name in PROTOCOLS), BINLOG)
    lines = [("MySQL", *names), ("---",) * (1 + len(names))]
    for row, columns in ROWS.items():
        told = [_told(protocol, row, columns.split()) for protocol in PROTOCOLS]
        lines.append(
            (
                row,
                *told,
                EXACT if row != "vector" else "exact; of MariaDB [binary](#what-a-binlog-tells)",
            )
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _told(protocol: str, row: str, columns: Sequence[str]) -> str:
    differs = any(cell.column in columns for cell in cells_of(protocol))
    return LOST[protocol, row].text if differs else EXACT


def with_table(page: str) -> str:
    found = re.search(f"{re.escape(BEGIN)}.*?{re.escape(END)}", page, re.DOTALL)
    assert found is not None, BEGIN
    return page[: found.start()] + BEGIN + table() + END + page[found.end() :]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
