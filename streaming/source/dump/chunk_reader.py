"""One step of a table's copy on one connection: it asks the server, and writes what comes.

A chunk is one SELECT, by itself a consistent read. Chunks of a table are of different moments; the
binlog since before the first of them makes the table exact again, key by key (rule 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from sinks.types.masks import HIDDEN
from streaming.source.dump.cells import UnreadableCells
from streaming.source.dump.chunk_files import ChunkFiles, StagedFile
from streaming.source.dump.chunks import (
    ChunkPlan,
    Measure,
    Measured,
    Outcome,
    Read,
    WasRead,
    chunk_rows,
    integer_plan,
    measured_plan,
    no_rows,
    whole_table,
)
from streaming.source.dump.key_ranges import (
    Bound,
    bound_statement,
    first_statement,
    is_integer_key,
    last_statement,
    rows_statement,
)
from streaming.source.dump.moment import one_moment
from streaming.source.dump.session import Connect, Session, UnreadableValue
from streaming.source.dump.source_table import SourceColumn, SourceTable

SHOWN_BYTES: Final = 32  # of a value that cannot be read
Counted = Callable[[int, int], None]  # rows and bytes of texts that have come


@dataclass(frozen=True, slots=True)
class StepDone:
    """``note``: the SnapshotPosition of a read in one moment, as a dict."""

    outcome: Outcome
    files: tuple[StagedFile, ...] = ()
    note: Mapping[str, Any] | None = None


class TableReader:
    """Takes steps of one table on a session. All methods raise as ``Session.query`` does."""

    def __init__(self, session: Session, connect: Connect, table: SourceTable) -> None:
        """``connect``: for a second connection, where MySQL needs one for an instant."""
        self._session = session
        self._connect = connect
        self._table = table

    def begin(self, rows_per_chunk: int | None, *, is_whole: bool) -> ChunkPlan:
        """The plan by the table's first and last key now. ``is_whole``: one chunk."""
        table = self._table
        if is_whole:
            return whole_table()
        last = self._key(last_statement(table))
        if last is None:
            return no_rows()
        rows = rows_per_chunk or chunk_rows(table)
        if not is_integer_key(table):
            return measured_plan(last, rows)
        first = self._key(first_statement(table)) or last
        return integer_plan(int(first[0]), int(last[0]), table.rows, rows)

    def measure(self, step: Measure) -> StepDone:
        bound = self._key(bound_statement(self._table, step.range, step.rows))
        return StepDone(Measured(step.range, bound))

    def read(self, step: Read, files: ChunkFiles, counted: Counted) -> StepDone:
        """The rows in files. Raises StagingFull and StagingFailed too."""
        rows, ends = 0, list[int]()
        with files:
            for chunk in self._tables(step, counted):
                files.write(chunk)
                rows += len(chunk)
                if step.limit is not None:
                    key = chunk.column(self._table.key[0])
                    ends += [key[0].as_py(), key[-1].as_py()]
            staged = tuple(files.finish())
        is_cut = step.limit is not None and rows >= step.limit
        return StepDone(WasRead(step.range, (ends[0], ends[-1]) if is_cut else None), staged)

    def read_at_once(self, step: Read, files: ChunkFiles, counted: Counted) -> StepDone:
        """The whole table at one position of the binlog, which is the note."""
        with one_moment(self._session, self._connect, self._table) as position:
            done = self.read(step, files, counted)
        return StepDone(done.outcome, done.files, asdict(position))

    def _tables(self, step: Read, counted: Counted) -> Iterator[pa.Table]:
        columns = self._table.columns
        names = [column.name for column in columns]
        statement = rows_statement(self._table, step.range, step.limit)
        for texts in self._session.blocks(statement, len(names)):
            cells = [self._cells(column, texts) for column in range(len(columns))]
            counted(len(texts[0]), sum(text.nbytes for text in texts))
            yield pa.table(cells, names)

    def _cells(self, number: int, texts: Sequence[pa.LargeBinaryArray]) -> pa.Array:
        column, values = self._table.columns[number], texts[number]
        try:
            return column.cells(values)
        except UnreadableCells as error:
            raise UnreadableValue(
                self._table.name,
                self._unreadable(number, texts) or f"column {column.name}: {error}",
            ) from error

    def _unreadable(self, number: int, texts: Sequence[pa.LargeBinaryArray]) -> str:
        """Which row has bytes that are no text; empty where all are."""
        table, column = self._table, self._table.columns[number]
        for row, value in enumerate(texts[number].to_pylist()):
            try:
                str(value or b"", "utf-8")
            except UnicodeDecodeError:
                told = zip(table.columns, texts, strict=True)
                key = {each.name: _shown(each, found[row].as_py()) for each, found in told}
                shown = ", ".join(f"{name} = {key[name]}" for name in table.key)
                raw = HIDDEN if column.is_masked else f"0x{value[:SHOWN_BYTES].hex()}"
                charset = column.charset or "utf8mb4"
                return (
                    f"column {column.name} of its row {shown or 'without a key'} has bytes that "
                    f"are no text of {charset}: {raw}. Mend the value in "
                    "the database, or leave the column out with [[sink.column-selectors]]"
                )
        return ""

    def _key(self, statement: str) -> Bound | None:
        """The one key that a statement answers with."""
        rows = self._session.query(statement)
        return tuple(map(str, rows[0])) if rows else None


def _shown(column: SourceColumn, value: bytes | None) -> str:
    if column.is_masked:
        return HIDDEN
    return "NULL" if value is None else repr(value.decode("utf-8", "backslashreplace"))
