"""Rows that are longer than what a task reads of a file at once."""

from __future__ import annotations

from itertools import accumulate

import pytest

from conf.sources.csv_format import CsvFormat
from conf.sources.storage_uri import StorageSettings
from coordination.model import TableName, Ts
from sinks.storage.open_storage import StorageOpener
from streaming.protocols.contract import Block, Kind, WantedTable
from streaming.protocols.csv.table_head import TableHead
from streaming.source.storage.csv_rows import CsvRows
from streaming.source.storage.layout import Place
from streaming.source.storage.part_log import Slice
from streaming.source.storage.row_decoder import rows_at
from streaming.source.storage.slices_task import RowWork, SlicesTask
from streaming.source.storage.survey import Survey
from tests.streaming.source.storage.counted_tree import CountedTree

NAME = TableName("shop", "t")
PATH = "shop/t/1/CDC000001.csv"
TS = 470_000_000_000_000_001
LONG = "\n".join(["line"] * 20)


def read(text: str, csv: CsvFormat, *, is_last: bool) -> list[Block]:
    """Twenty bytes of the file are to be read."""
    tree = CountedTree()
    tree.put(PATH, text.encode())
    head = TableHead(NAME, (("id", "int"), ("v", "text")), ("id",), csv)
    of = Slice(Place(0, 1), PATH, 0, 20, len(text), is_last=is_last)
    task = SlicesTask(
        opener=StorageOpener({}),
        folder="/unused",
        lists=(),
        decode=CsvRows(0),
        wanted={NAME: WantedTable(above_ts=Ts(0), key=("id",))},
        most_rows=100,
        start_ts=0,
    )
    return list(task.blocks(tree, RowWork("part", of, 0, head)))


@pytest.mark.parametrize("is_last", [True, False])
def test_a_row_with_many_lines_is_read_to_its_end(*, is_last: bool) -> None:
    row = f'"I","t","shop",{TS},1,"{LONG}"\r\n'
    *rows, done = read(row + row.replace(",1,", ",2,"), CsvFormat(), is_last=is_last)
    assert [block.kind for block in rows] == [Kind.ROW]
    assert done.kind is Kind.DONE
    assert done.rows in (1, 2)
    assert done.last == len(row) * done.rows


def test_an_update_of_two_long_rows_is_read_to_its_end() -> None:
    csv = CsvFormat(has_old=True)
    row = f'"D","t","shop",{TS},true,1,"x"\r\n"I","t","shop",{TS},true,1,"{LONG}"\r\n'
    (taken, done) = read(row, csv, is_last=True)
    assert (taken.kind, taken.rows) == (Kind.ROW, 1)
    assert (done.rows, done.last) == (2, len(row))


def test_a_long_row_without_an_end_waits_or_is_a_dead_letter() -> None:
    torn = f'"I","t","shop",{TS},"{LONG}'
    (done,) = read(torn, CsvFormat(), is_last=True)
    assert (done.rows, done.last) == (0, 0)
    bad, done = read(torn, CsvFormat(), is_last=False)
    assert (bad.kind, done.last) == (Kind.BAD, len(torn))


def test_the_rows_of_many_dead_letters_are_read_with_their_file_once() -> None:
    rows = [f'"I","t","shop",{TS},{n},"{LONG * (n % 7 == 0)}"\r\n' for n in range(3_000)]
    long = f'"I","t","shop",{TS},0,"{"x" * 300_000}"\r\n'
    rows = [*rows, long, *rows]
    tree = CountedTree()
    tree.put(PATH, "".join(rows).encode())
    tree.checkpoint(TS)
    settings = StorageSettings(
        folder="/unused", protocol="csv", csv=CsvFormat(), date_separator="none"
    )
    survey = Survey(settings, tree)
    survey.look()
    tree.counts()
    base = survey.packing.position(Place(0, 1), 0)
    begins = [base, *accumulate(map(len, rows), initial=base)][1:-1]
    found = rows_at(survey, "shop/t/1", begins)
    assert found == [each.removesuffix("\r\n").encode() for each in rows]
    assert tree.counts()[1] <= 3
    assert rows_at(survey, "shop/t/1", [base + (1 << 29)]) == [None]
    assert rows_at(survey, "shop/gone/1", [base]) == [None]
