"""Write messages that cannot be applied to the dead letters, with their bytes (rule 8).

A message that cannot be decoded comes with its bytes. For rows that fail later (by a cast, or since
the table has no key) the messages are read from Kafka again, by their offsets: to keep the bytes of
all rows for the few that fail would double the size of the carry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.dead_letters import DeadLetters, LetterWriter
from streaming.protocols.contract import Block
from streaming.source.ranges import TopicPartition

logger = logging.getLogger(__name__)

SLICE_ROWS = 20_000  # the messages of so many failed rows are read at a time
REASONS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("commit_ts", pa.int64()),
        ("error_class", pa.string()),
        ("message", pa.string()),
    ]
)
_PLACE: Final = ["topic", "partition", "offset"]
LETTERS: Final = REASONS.append(pa.field("value", pa.binary()))


class DeadLetterWriter:
    """Writes dead letters. With ``on-error = "fail"`` it raises TidelakeError instead, which ends
    the stream."""

    def __init__(
        self,
        *,
        by: LetterWriter,
        dead_letters: DeadLetters,
        values: Callable[[Mapping[TopicPartition, Sequence[int]]], Iterable[pa.Table]],
        fail: bool,
    ) -> None:
        """``values`` reads topic, partition, offset and value of the messages at these offsets, in
        several tables; messages that Kafka no longer has are left out."""
        self._by = by
        self._dead_letters = dead_letters
        self._values = values
        self._fail = fail
        self.counts: dict[TableName | None, int] = dict(dead_letters.counts(by.changefeed_id))

    def refreshed(self) -> dict[TableName | None, int]:
        """Read the stored counts again, since other captures write dead letters too."""
        self.counts = dict(self._dead_letters.counts(self._by.changefeed_id))
        return self.counts

    def add_messages(self, blocks: Sequence[Block]) -> None:
        letters = [_letters_of(block) for block in blocks]
        if letters:
            self._add(pa.concat_tables(letters))

    def add_rows(self, errors: Mapping[TableName, pa.Table]) -> None:
        """Write the messages of rows that cannot be applied. ``errors``: by table, of schema
        ``row_errors.ERRORS``. A message that Kafka no longer has is written without its bytes."""
        why = reasons(errors)
        for start in range(0, len(why), SLICE_ROWS):
            left = why.slice(start, SLICE_ROWS)
            for values in self._values(_offsets(left)):
                self._add(left.join(values, _PLACE, join_type="inner"))
                left = left.join(values.select(_PLACE), _PLACE, join_type="left anti")
            self._add(left.append_column("value", pa.nulls(len(left), pa.binary())))

    def _add(self, letters: pa.Table) -> None:
        if not len(letters):
            return
        letters = letters.select(LETTERS.names).cast(LETTERS)
        first = letters.slice(0, 1).to_pylist()[0]
        what = (
            f"{len(letters)} messages cannot be applied; the first: topic {first['topic']} "
            f"partition {first['partition']} offset {first['offset']}: {first['message']}"
        )
        if self._fail:
            raise TidelakeError(
                f"{what}. on-error is 'fail': mend it, or set on-error = 'dead-letter'"
            )
        logger.warning("%s. They are in _tidelake/dead_letters with their bytes", what)
        changefeed = pa.repeat(pa.scalar(self._by.changefeed_id), len(letters))
        self._dead_letters.merge(letters.append_column("changefeed_id", changefeed), self._by)
        self.refreshed()


def _offsets(why: pa.Table) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    columns = (why[name].to_pylist() for name in ("topic", "partition", "offset"))
    for topic, partition, offset in zip(*columns, strict=True):
        found.setdefault(TopicPartition(topic, partition), []).append(offset)
    return found


def _letters_of(block: Block) -> pa.Table:
    bad = block.table()
    rows = len(bad)
    name = block.name if block.name.table else None
    return pa.table(
        {
            "topic": pa.repeat(pa.scalar(block.topic), rows),
            "partition": pa.repeat(pa.scalar(block.partition, pa.int32()), rows),
            "offset": bad["offset"],
            "schema_name": pa.repeat(pa.scalar(name and name.schema, pa.string()), rows),
            "table_name": pa.repeat(pa.scalar(name and name.table, pa.string()), rows),
            "commit_ts": pa.nulls(rows, pa.int64()),
            "error_class": bad["error_class"],
            "message": bad["error_message"],
            "value": bad["value"].cast(pa.binary()),
        },
        schema=LETTERS,
    )


def reasons(errors: Mapping[TableName, pa.Table]) -> pa.Table:
    """The errors as a table of schema ``REASONS`` with one row per message. If several rows of a
    message cannot be applied, it is the first row's error."""
    tables = [REASONS.append(pa.field("index", pa.int32())).empty_table()]
    for name, rows in errors.items():
        schema, table = (
            pa.repeat(pa.scalar(each), len(rows)) for each in (name.schema, name.table)
        )
        tables.append(rows.append_column("schema_name", schema).append_column("table_name", table))
    ordered = pa.concat_tables([each.select(tables[0].column_names) for each in tables]).sort_by(
        [(name, "ascending") for name in (*_PLACE, "index")]
    )
    others = [name for name in REASONS.names if name not in _PLACE]
    first = ordered.group_by(_PLACE, use_threads=False).aggregate([(n, "first") for n in others])
    found = first.select([*_PLACE, *(f"{name}_first" for name in others)])
    return found.rename_columns([*_PLACE, *others]).select(REASONS.names).cast(REASONS)
