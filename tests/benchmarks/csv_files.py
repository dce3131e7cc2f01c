"""Rows of csv files, decoded to blocks, beside Arrow's own csv reader on the same bytes.

Arrow makes columns of texts; here each row has its place and its commit-ts besides, and the blocks
are compressed as they are sent. Without a quote Arrow does not read what TiCDC writes: there its
time is that of the same rows with quotes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

import pyarrow as pa
from pyarrow import csv as arrow_csv
from rich.table import Table

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName, Ts
from streaming.protocols.contract import Kind, WantedTable
from streaming.protocols.csv.decoder import Text, decode_text
from streaming.protocols.csv.table_head import TableHead
from tests.benchmarks.bench import Bench
from tests.benchmarks.printing import new_table, number

NAME: Final = TableName("shop", "orders")
COLUMNS: Final = (
    *(("id", "bigint"), ("name", "varchar(64)"), ("amount", "decimal(20,4)")),
    *(("created_at", "datetime(3)"), ("items", "int"), ("note", "text")),
)
FORMATS: Final = {
    "quotes": CsvFormat(),
    "quotes, old rows": CsvFormat(has_old=True),
    "no quote": CsvFormat(delimiter="|", quote=""),
}
RUNS: Final = 5
TS: Final = 470_620_744_164_048_896


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRun:
    """CPU seconds of each run."""

    form: str
    rows: int
    size: int  # bytes
    ours_s: list[float]
    arrow_s: list[float]


def run(bench: Bench, results: list[CsvRun]) -> None:
    count = max(1_000, bench.size.garbage_changes // 2)
    for form, csv in FORMATS.items():

        def work(form: str = form, csv: CsvFormat = csv) -> None:
            bench.say(f"csv: {count} rows, {form}")
            text, quoted = text_of(csv, count), text_of(FORMATS["quotes"], count)
            ours, arrow = list[float](), list[float]()
            for _ in range(RUNS):
                ours.append(timed(lambda: decoded(csv, text, count)))
                arrow.append(timed(lambda: read_by_arrow(quoted if not csv.quote else text, count)))
            results.append(
                CsvRun(form=form, rows=count, size=len(text), ours_s=ours, arrow_s=arrow)
            )

        bench.attempt(f"csv, {form}", work)


def timed(work: Callable[[], None]) -> float:
    begun_s = time.process_time()
    work()
    return time.process_time() - begun_s


def text_of(csv: CsvFormat, count: int) -> bytes:
    rng, quote, lines = random.Random(1), csv.quote, list[str]()
    for at in range(count):
        note = csv.null if at % 3 else "a, b"
        note = note if note == csv.null or not quote else quote + note + quote
        texts = (
            *(f"{quote}{each}{quote}" for each in ("I", NAME.table, NAME.schema)),
            *(str(TS + at), *(("false",) if csv.has_old else ()), str(at)),
            f"{quote}name {at} of a customer{quote}",
            f"{quote}{rng.randrange(10**9)}.{rng.randrange(10**4):04}{quote}",
            f"{quote}2004-03-17 18:51:51.412{quote}",
            *(str(rng.randrange(1000)), note),
        )
        lines.append(csv.delimiter.join(texts))
    return "\r\n".join([*lines, ""]).encode()


def decoded(csv: CsvFormat, text: bytes, count: int) -> None:
    of = Text(
        part="p",
        text=text,
        position=0,
        head=TableHead(NAME, COLUMNS, ("id",), csv),
        is_first=True,
        is_whole=True,
    )
    wanted = {NAME: WantedTable(above_ts=Ts(0), key=("id",))}
    blocks = decode_text(of, wanted, latest_ts=1 << 62, start_ts=0, most_rows=1 << 40)
    assert sum(block.rows for block in blocks if block.kind is Kind.ROW) == count


def read_by_arrow(text: bytes, count: int, *, fields: int = 11) -> None:
    found = arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
        arrow_csv.ParseOptions(newlines_in_values=True),
        arrow_csv.ConvertOptions(
            column_types={f"f{at}": pa.string() for at in range(fields)},
            null_values=["\\N"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    assert len(found) == count


def tables(results: list[CsvRun]) -> list[Table]:
    table = new_table(
        "Rows of csv files, one thread, median of the runs",
        "format", "rows", "MB", "rows/s", "CPU-µs a row", "Arrow's reader", "times Arrow's",
    )  # fmt: skip
    for each in results:
        ours, arrow = median(each.ours_s), median(each.arrow_s)
        table.add_row(
            *(
                each.form,
                number(each.rows, 0),
                number(each.size / 1e6),
                number(each.rows / ours, 0),
            ),
            *(f"{ours / each.rows * 1e6:.2f}", f"{arrow / each.rows * 1e6:.2f}"),
            f"{ours / arrow:.1f}",
        )
    return [table]
