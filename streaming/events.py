"""Decoded messages: the columns that every protocol brings, and nothing of any protocol.

| column | type | of kind |
|---|---|---|
| topic, partition, offset | string, int, bigint | all |
| kind | string | row, ddl, watermark or bad |
| schema_name, table_name | string ('' where there is none) | all |
| op | string: INSERT, UPDATE, DELETE | row |
| commit_ts | bigint (TSO) | row, ddl |
| watermark_ts | bigint (TSO) | watermark |
| query, ddl_type | string | ddl |
| data | map<string,string>: the new row, of a DELETE the old one | row |
| old | map<string,string>: an UPDATE's old row, null where no key column of it changed | row |
| mysql_types, pk_names | map<string,string>, array<string>: of tables not known yet | row |
| error_class, error_message | string: why it cannot be applied | bad, row |
| value | binary: the message | bad |

A ``row`` with an error_class waits until it is due, like any row; a ``bad`` message has no
commit-ts to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql import DataFrame

from coordination.model import TableName, Ts
from streaming.source.ranges import TopicPartition as TopicPartition

ROW: Final = "row"
DDL: Final = "ddl"
WATERMARK: Final = "watermark"
BAD: Final = "bad"

EVENT_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "kind",
    "schema_name",
    "table_name",
    "op",
    "commit_ts",
    "watermark_ts",
    "query",
    "ddl_type",
    "data",
    "old",
    "mysql_types",
    "pk_names",
    "error_class",
    "error_message",
    "value",
)
ENVELOPE_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "kind",
    "schema_name",
    "table_name",
    "commit_ts",
    "watermark_ts",
    "value",
)
KAFKA_COLUMNS: Final = ("topic", "partition", "offset", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """A DDL as it was sent. Identity: (commit_ts, query, name); order: (commit_ts, offset)."""

    commit_ts: Ts
    offset: int
    name: TableName
    ddl_type: str
    query: str


class Decoder(Protocol):
    """``(topic, partition, offset, value)`` -> ``EVENT_COLUMNS``; no action, no state."""

    def __call__(
        self, messages: DataFrame, settled: Mapping[TableName, Sequence[str]]
    ) -> DataFrame:
        """``settled`` maps each table whose schema is known (or that is not wanted) to its key
        columns.
        """
        ...


class Envelope(Protocol):
    """``(topic, partition, offset, value)`` -> ``ENVELOPE_COLUMNS``: what a message is about, read
    without its row. A ``row`` may still turn out to be bad when it is decoded.
    """

    def __call__(self, messages: DataFrame) -> DataFrame: ...
