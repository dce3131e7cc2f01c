"""Write messages that cannot be applied to the dead letters, with their bytes (rule 8).

A message that cannot be decoded comes with its bytes. For rows that fail later (by a cast, or since
the table has no key) the messages are read again, by their positions: to keep the bytes of
all rows for the few that fail would double the size of the carry. Each row is a letter of its own,
with as much of its message as tells that row (`row_bytes.py`)."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.dead_letters import DeadLetters, LetterWriter
from sinks.control.letter_states import LETTER, OPEN, SUPERSEDED
from streaming.apply.letters.row_bytes import Alone, FailedRow, whole_messages
from streaming.apply.values.row_errors import (
    CAST,
    NO_KEY,
    NO_TABLE,
    NO_WHOLE_ROW,
    UNKNOWN_COLUMN,
)
from streaming.protocols.contract import Block
from streaming.source.contract import Places

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
SLICE_ROWS = 20_000  # the messages of so many failed rows are read at a time
REASONS: Final = pa.schema(
    [
        ("part", pa.string()),
        ("position", pa.int64()),
        ("index", pa.int32()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("commit_ts", pa.int64()),
        ("error_class", pa.string()),
        ("message", pa.string()),
        ("head", pa.int32()),  # its number among the heads of all errors; null: it has none
    ]
)
_QUOTES_NOTHING: Final = pa.array([CAST, UNKNOWN_COLUMN, NO_KEY, NO_WHOLE_ROW, NO_TABLE])
MASKED_MESSAGE: Final = (
    "why it cannot be applied is not told, and its bytes are not kept, since columns are masked "
    "([[sink.column-masks]])"
)
_NAME: Final = ["schema_name", "table_name"]
_MESSAGE: Final = ["part", "position"]
_PLACE: Final = [*_MESSAGE, "index"]
_MESSAGES: Final = pa.schema(
    [*(each for each in REASONS if each.name != "head"), ("value", pa.binary())]
)
LETTERS: Final = _MESSAGES.append(pa.field("identity", pa.string()))


class DeadLetterWriter:
    """Writes dead letters. With ``on-error = "fail"`` it raises TidelakeError instead, which ends
    the stream."""

    def __init__(
        self,
        *,
        by: LetterWriter,
        dead_letters: DeadLetters,
        values: Callable[[Places], Iterable[pa.Table]],
        identities: Callable[[], Mapping[str, str]],
        alone: Alone = whole_messages,
        place: Callable[[str, int], str] = "{} position {}".format,
        fail: bool,
        fatal: Container[str] = (),
        most: int | None = None,
        hides: Callable[[TableName | None], bool] = lambda _: False,
        say: Callable[[str, str | None], None] = lambda about, what: None,  # noqa: ARG005
    ) -> None:
        """``values`` reads part, position and value of the messages at these positions, in several
        tables; messages that are gone are left out. ``identities``: of the source's parts.
        ``alone``: see `row_bytes`. ``fail``: stop at the first letter; ``fatal``: at the first of
        these classes. ``place``: gives the name of a place for a sentence. ``most``: a table with
        more open letters is stopped, and ``say`` gets that as a concern (None: it is over).
        ``hides``: whether a table has masked columns (None: the table is not known); its letters
        have no bytes."""
        self.by = by
        self.dead_letters = dead_letters
        self._values = values
        self._alone = alone
        self._identities = identities
        self._place = place
        self._fail = fail
        self._fatal = fatal
        self._most = most
        self._hides = hides
        self._say = say
        self._look_at_s = 0.0
        self.counts: dict[TableName | None, int] = dict(dead_letters.counts(by.changefeed_id))

    def refreshed(self) -> dict[TableName | None, int]:
        """Read the stored counts of open letters again: other captures write dead letters too, and
        operators handle them."""
        self.counts = dict(self.dead_letters.counts(self.by.changefeed_id))
        return self.counts

    def have_news(self) -> bool:
        """Whether operators have handled some beside us. It looks every ``LOOK_EVERY_S`` seconds,
        and only while there are open ones."""
        now_s = time.monotonic()
        if not self.counts or now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + LOOK_EVERY_S
        before = self.counts
        return self.refreshed() != before

    def stops(self, name: TableName) -> str | None:
        """Why the table is written no further: it has too many open ones; None: it is."""
        count, what = self.counts.get(name, 0), None
        if self._most is not None and count > self._most:
            what = (
                f"table {name} is stopped: it has {count} open dead letters, and max-dead-letters "
                f"is {self._most}. `tidelake dead-letters list --table {name}` shows them: replay "
                "them after a mend, resolve them, or raise max-dead-letters"
            )
        self.say_stopped(name, what)
        return what

    def say_stopped(self, name: TableName, what: str | None = None) -> None:
        self._say(f"dead letters of {name}", what)

    def emptied(self, name: TableName, ddl: str, *, is_whole: bool) -> None:
        """To be called before a DDL takes rows out of a table. Its letters are superseded; where
        only the rows of partitions go, theirs may be among them, and they are not to be replayed.
        """
        for letters in self.dead_letters.open_of(self.by.changefeed_id, name):
            rows = letters.select(list(LETTER))
            self.by.check()
            told = (
                {"state": SUPERSEDED, "note": f"{ddl} took its row out"}
                if is_whole
                else {
                    "state": OPEN,
                    "barred": f"{ddl} may have taken its row out: rewind to below "
                    "it, or resolve the letter",
                }
            )
            for column, value in told.items():
                rows = rows.append_column(column, pa.repeat(pa.scalar(value), len(rows)))
            self.dead_letters.states.change(rows, by=f"stream (capture {self.by.capture_id})")
        self.refreshed()

    def add_messages(self, blocks: Sequence[Block]) -> None:
        letters = [_letters_of(block) for block in blocks]
        if letters:
            self._add(pa.concat_tables(letters))

    def add_rows(
        self,
        errors: Mapping[TableName, pa.Table],
        added: Callable[[pa.Table], None] | None = None,
    ) -> None:
        """Write the rows that cannot be applied. ``errors``: by table, of schema
        ``row_errors.ERRORS``. If its message is gone, a row is written without bytes. ``added``
        gets the written letters, of schema ``LETTERS``, in parts."""
        heads = heads_of(errors)
        why = reasons(errors, heads)
        for start in range(0, len(why), SLICE_ROWS):
            left = why.slice(start, SLICE_ROWS)
            for messages in self._values(_positions(left)):
                here = left.join(messages.select(_MESSAGE), _MESSAGE, join_type="left semi")
                letters = self._add(self._with_bytes(here, messages, heads))
                if added is not None:
                    added(letters)
                left = left.join(messages.select(_MESSAGE), _MESSAGE, join_type="left anti")
            self._add(left.append_column("value", pa.nulls(len(left), pa.binary())))

    def _with_bytes(self, why: pa.Table, messages: pa.Table, heads: Sequence[bytes]) -> pa.Table:
        """``why``: of rows that are in these messages."""
        ordered = why.sort_by([(name, "ascending") for name in _PLACE])
        columns = (messages[name].to_pylist() for name in (*_MESSAGE, "value"))
        by_place = {(part, at): value for part, at, value in zip(*columns, strict=True)}
        columns = (ordered[name].to_pylist() for name in (*_PLACE, "commit_ts", "head"))
        values: list[bytes | None] = []
        rows = itertools.groupby(zip(*columns, strict=True), key=lambda row: row[:2])
        for place, group in rows:
            failed = [
                FailedRow(index, commit_ts, None if head is None else heads[head])
                for _, _, index, commit_ts, head in group
            ]
            message = by_place[place]
            values += [None] * len(failed) if message is None else self._alone(message, failed)
        return ordered.append_column("value", pa.array(values, pa.binary()))

    def _add(self, letters: pa.Table) -> pa.Table:
        letters = self._identified(letters.select(_MESSAGES.names).cast(_MESSAGES))
        if not len(letters):
            return letters
        letters = self._without_masked(letters)
        first = letters.slice(0, 1).to_pylist()[0]
        what = (
            f"{len(letters)} messages cannot be applied; the first: "
            f"{self._place(first['part'], first['position'])}: {first['message']}"
        )
        if self._fail:
            raise TidelakeError(
                f"{what}. on-error is 'fail': mend it, or set on-error = 'dead-letter'"
            )
        if any(each in self._fatal for each in letters["error_class"].to_pylist()):
            raise TidelakeError(
                f"{what}. corruption-handle-level is 'error': find out what has changed a row, or "
                "set 'warn'"
            )
        logger.warning("%s. They are in _tidelake/dead_letters", what)
        changefeed = pa.repeat(pa.scalar(self.by.changefeed_id), len(letters))
        self.dead_letters.merge(letters.append_column("changefeed_id", changefeed), self.by)
        self.refreshed()
        return letters

    def _without_masked(self, letters: pa.Table) -> pa.Table:
        """Without the bytes of tables with masked columns, and without what a decoder has said of
        them: it may quote."""
        pairs = zip(*(letters[name].to_pylist() for name in _NAME), strict=True)
        names = [None if table is None else TableName(schema, table) for schema, table in pairs]
        hidden = {name for name in set(names) if self._hides(name)}
        if not hidden:
            return letters
        is_hidden = pa.array([name in hidden for name in names])
        is_told = pc.and_(is_hidden, pc.invert(pc.is_in(letters["error_class"], _QUOTES_NOTHING)))
        nothing = pa.scalar(None, pa.binary())
        shown = {
            "value": pc.if_else(is_hidden, nothing, letters["value"]),
            "message": pc.if_else(is_told, MASKED_MESSAGE, letters["message"]),
        }
        for name, column in shown.items():
            at = letters.column_names.index(name)
            letters = letters.set_column(at, letters.schema.field(name), column)
        return letters

    def _identified(self, letters: pa.Table) -> pa.Table:
        known = self._identities() if len(letters) else {}
        found = [known[part] for part in letters["part"].to_pylist()]
        return letters.append_column("identity", pa.array(found, pa.string()))


def _positions(why: pa.Table) -> dict[str, list[int]]:
    """Each position once, however many of its rows fail."""
    found: dict[str, dict[int, None]] = {}
    columns = (why[name].to_pylist() for name in _MESSAGE)
    for part, position in zip(*columns, strict=True):
        found.setdefault(part, {})[position] = None
    return {part: [*positions] for part, positions in found.items()}


def _letters_of(block: Block) -> pa.Table:
    bad = block.table()
    rows = len(bad)
    name = block.name if block.name.table else None
    return pa.table(
        {
            "part": pa.repeat(pa.scalar(block.part), rows),
            "position": bad["position"],
            "index": bad["index"],
            "schema_name": pa.repeat(pa.scalar(name and name.schema, pa.string()), rows),
            "table_name": pa.repeat(pa.scalar(name and name.table, pa.string()), rows),
            "commit_ts": pa.nulls(rows, pa.int64()),
            "error_class": bad["error_class"],
            "message": bad["error_message"],
            "value": bad["value"].cast(pa.binary()),
        },
        schema=_MESSAGES,
    )


def heads_of(errors: Mapping[TableName, pa.Table]) -> list[bytes]:
    """The different heads of all these errors."""
    chunks = (chunk for rows in errors.values() for chunk in rows["head"].chunks)
    return sorted({each for chunk in chunks for each in chunk.dictionary.to_pylist()})


def reasons(errors: Mapping[TableName, pa.Table], heads: Sequence[bytes] = ()) -> pa.Table:
    """The errors as a table of schema ``REASONS`` with one row for each row of a message. An UPDATE
    may have two: the first one's reason counts."""
    tables = [REASONS.empty_table()]
    for name, rows in errors.items():
        schema, table = (
            pa.repeat(pa.scalar(each), len(rows)) for each in (name.schema, name.table)
        )
        named = rows.append_column("schema_name", schema).append_column("table_name", table)
        at = named.column_names.index("head")
        numbered = named.set_column(at, "head", _numbers(rows["head"], heads))
        tables.append(numbered.select(REASONS.names))
    ordered = pa.concat_tables(tables).sort_by([(name, "ascending") for name in _PLACE])
    others = [name for name in REASONS.names if name not in _PLACE]
    keeping = pc.ScalarAggregateOptions(skip_nulls=False)
    first = ordered.group_by(_PLACE, use_threads=False).aggregate(
        [(name, "first", keeping) for name in others]
    )
    found = first.select([*_PLACE, *(f"{name}_first" for name in others)])
    return found.rename_columns([*_PLACE, *others]).select(REASONS.names).cast(REASONS)


def _numbers(column: pa.ChunkedArray, heads: Sequence[bytes]) -> pa.ChunkedArray:
    """The place of each head among ``heads``."""
    known = pa.array(heads, pa.binary())
    chunks = [
        pc.index_in(chunk.dictionary, value_set=known).take(chunk.indices)
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.int32())
