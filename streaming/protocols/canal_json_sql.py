"""canal-json with the TiDB extension, decoded in Spark SQL (facts 7.3).

Every value on the wire is a JSON *string*, so the row stays a map of text here and is cast later,
by the table's schema (``sinks/sql_casts.py``): a numeric schema in ``from_json`` would turn quoted
numbers into NULL without a word. ``mysqlType`` and the whole ``old`` are read only for tables that
are not known yet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import TableName
from streaming.events import BAD, DDL, ENVELOPE_COLUMNS, EVENT_COLUMNS, ROW, WATERMARK

_TIDB = (
    "_tidb struct<commitTs:bigint,watermarkTs:bigint,"
    "onlyHandleKey:boolean,claimCheckLocation:string>"
)
_WATERMARK_TYPE = "TIDB_WATERMARK"
_ROW_TYPES = ("INSERT", "UPDATE", "DELETE")
_PERMISSIVE = {"columnNameOfCorruptRecord": "_corrupt"}
_ENVELOPE = (
    "database string, table string, type string, isDdl boolean, "
    "_tidb struct<commitTs:bigint,watermarkTs:bigint>, _corrupt string"
)
_UNSETTLED_SCHEMA = (
    "mysqlType map<string,string>, old array<map<string,string>>, pkNames array<string>"
)


class CanalJson:
    """Implements ``streaming.events.Decoder``. Keeps the expressions of one set of settled tables:
    building them is a call into the JVM per operator, which costs more than a small batch."""

    def __init__(self) -> None:
        self._settled: Mapping[TableName, Sequence[str]] | None = None
        self._steps: tuple[Sequence[Column | str], ...] = ()

    def __call__(
        self, messages: DataFrame, settled: Mapping[TableName, Sequence[str]]
    ) -> DataFrame:
        """``(topic, partition, offset, value)`` -> ``EVENT_COLUMNS`` (see ``events.py``)."""
        if settled != self._settled:
            self._steps = _steps(settled)
            self._settled = dict(settled)
        for step in self._steps:
            messages = messages.select(*step)
        return messages


def decode(messages: DataFrame, settled: Mapping[TableName, Sequence[str]]) -> DataFrame:
    """Once, without keeping anything."""
    return CanalJson()(messages, settled)


def envelope(messages: DataFrame) -> DataFrame:
    """Implements ``streaming.events.Envelope``: what each message is about, without its row."""
    text = F.col("value").cast("string")
    read = messages.select("*", F.from_json(text, _ENVELOPE, _PERMISSIVE).alias("e"))
    kind, tidb = F.coalesce("e.type", F.lit("")), F.col("e._tidb")
    is_ddl = F.coalesce("e.isDdl", F.lit(False))
    is_watermark, is_row = kind == _WATERMARK_TYPE, kind.isin(*_ROW_TYPES)
    bad = (
        F.col("e").isNull()
        | F.col("e._corrupt").isNotNull()
        | F.when(is_watermark, tidb["watermarkTs"].isNull()).otherwise(tidb["commitTs"].isNull())
        | ~(is_watermark | is_ddl | is_row)
        | (is_row & (F.coalesce("e.table", F.lit("")) == ""))
    )
    named = read.select(
        "*",
        F.when(F.coalesce(bad, F.lit(True)), BAD)
        .when(is_watermark, WATERMARK)
        .when(is_ddl, DDL)
        .otherwise(ROW)
        .alias("kind"),
    )
    is_named = F.col("kind").isin(ROW, DDL)
    return named.select(
        "topic",
        "partition",
        "offset",
        "kind",
        F.when(is_named, F.coalesce("e.database", F.lit(""))).otherwise("").alias("schema_name"),
        F.when(is_named, F.coalesce("e.table", F.lit(""))).otherwise("").alias("table_name"),
        F.when(is_named, F.col("e._tidb.commitTs")).alias("commit_ts"),
        F.when(F.col("kind") == WATERMARK, F.col("e._tidb.watermarkTs")).alias("watermark_ts"),
        "value",
    ).select(*ENVELOPE_COLUMNS)


def watermark_of(value: bytes | None) -> int | None:
    """The promise of one message, or None: of any other, and of what cannot be read."""
    if value is None or _WATERMARK_TYPE.encode() not in value:
        return None
    try:
        message = json.loads(value)
        is_watermark = message["type"] == _WATERMARK_TYPE
        return int(message["_tidb"]["watermarkTs"]) if is_watermark else None
    except (ValueError, KeyError, TypeError):
        return None


def _steps(settled: Mapping[TableName, Sequence[str]]) -> tuple[Sequence[Column | str], ...]:
    """One ``select`` after the other: Spark evaluates what an earlier one made once."""
    keys = sorted({key for columns in settled.values() for key in columns})
    text = F.col("value").cast("string")
    parsed = (
        "topic",
        "partition",
        "offset",
        "value",
        F.from_json(text, _envelope_schema(keys), _PERMISSIVE).alias("e"),
    )
    named = (
        "*",
        F.coalesce("e.database", F.lit("")).alias("schema_name"),
        F.coalesce("e.table", F.lit("")).alias("table_name"),
        F.coalesce("e.type", F.lit("")).alias("type"),
        _is_settled(settled).alias("is_settled"),
        _decode_error().alias("undecodable"),
    )
    unsettled = F.when(
        (F.col("type").isin(*_ROW_TYPES)) & ~F.col("is_settled"),
        F.from_json(text, _UNSETTLED_SCHEMA),
    )
    kinds = ("*", _kind().alias("kind"), unsettled.alias("u"))
    return parsed, named, kinds, _events(keys), EVENT_COLUMNS


def _events(keys: Sequence[str]) -> Sequence[Column | str]:
    is_row, is_ddl = F.col("kind") == ROW, F.col("kind") == DDL
    named = is_row | is_ddl
    is_reduced = is_row & (F.col("type") != "DELETE")  # of a DELETE the key is all that counts
    error = F.coalesce("undecodable", F.when(is_reduced, _reduced_row()))
    return (
        "topic",
        "partition",
        "offset",
        "kind",
        F.when(named, F.col("schema_name")).otherwise("").alias("schema_name"),
        F.when(named, F.col("table_name")).otherwise("").alias("table_name"),
        F.when(is_row, F.col("type")).alias("op"),
        F.when(named, F.col("e._tidb.commitTs")).alias("commit_ts"),
        F.when(F.col("kind") == WATERMARK, F.col("e._tidb.watermarkTs")).alias("watermark_ts"),
        F.when(is_ddl, F.col("e.sql")).alias("query"),
        F.when(is_ddl, F.col("type")).alias("ddl_type"),
        F.when(is_row, F.col("e.data")[0]).alias("data"),
        F.when(is_row & (F.col("type") == "UPDATE"), _old(keys)).alias("old"),
        F.when(is_row, F.col("u.mysqlType")).alias("mysql_types"),
        F.when(is_row, F.col("u.pkNames")).alias("pk_names"),
        error["class"].alias("error_class"),
        error["message"].alias("error_message"),
        F.when(F.col("kind") == BAD, F.col("value")).alias("value"),
    )


def _envelope_schema(keys: Sequence[str]) -> str:
    """Of ``old`` only key columns are wanted: whether the key changed is all it can tell us."""
    old = ", ".join(f"`{key.replace('`', '``')}`: string" for key in keys) or "_none: string"
    return (
        "database string, table string, type string, isDdl boolean, sql string, "
        f"data array<map<string,string>>, old array<struct<{old}>>, {_TIDB}, _corrupt string"
    )


def _is_settled(settled: Mapping[TableName, Sequence[str]]) -> Column:
    names = [f"{name.schema}\0{name.table}" for name in settled]
    if not names:
        return F.lit(False)
    return F.concat_ws("\0", F.col("e.database"), F.col("e.table")).isin(*names)


def _error(name: str, message: str | Column) -> Column:
    text = F.lit(message) if isinstance(message, str) else message
    return F.struct(F.lit(name).alias("class"), text.alias("message"))


def _decode_error() -> Column:
    """The first reason for which a message means nothing, or null."""
    kind, tidb = F.col("e.type"), F.col("e._tidb")
    is_row = kind.isin(*_ROW_TYPES)
    is_ddl = F.coalesce("e.isDdl", F.lit(False))
    rows = F.coalesce(F.size("e.data"), F.lit(0))
    return (
        F.when(F.col("value").isNull(), _error("empty", "the message has no value"))
        .when(
            F.col("e").isNull() | F.col("e._corrupt").isNotNull() | kind.isNull(),
            _error("malformed", "not a canal-json message"),
        )
        .when(
            (kind == _WATERMARK_TYPE) & tidb["watermarkTs"].isNull(),
            _error("malformed", "a watermark without _tidb.watermarkTs"),
        )
        .when(kind == _WATERMARK_TYPE, F.lit(None))
        .when(
            (is_row | is_ddl) & tidb["commitTs"].isNull(),
            _error(
                "no-commit-ts",
                "no _tidb.commitTs: set enable-tidb-extension=true in TiCDC's sink URI",
            ),
        )
        .when(is_ddl, F.lit(None))
        .when(~is_row, _error("unknown-type", F.concat(F.lit("unknown message type "), kind)))
        .when(
            (rows != 1) | F.col("e.table").isNull() | (F.col("e.table") == ""),
            _error("malformed", "a row message must name its table and hold one row"),
        )
    )


def _kind() -> Column:
    return (
        F.when(F.col("undecodable").isNotNull(), BAD)
        .when(F.col("type") == _WATERMARK_TYPE, WATERMARK)
        .when(F.coalesce("e.isDdl", F.lit(False)), DDL)
        .otherwise(ROW)
    )


def _reduced_row() -> Column:
    """Rows that were cut to their key because they were too large: never NULLs in a table (rule
    8).
    """
    return F.when(
        F.col("e._tidb.claimCheckLocation").isNotNull(),
        _error("claim-check", "the row is in claim-check storage, which is not supported yet"),
    ).when(
        F.coalesce("e._tidb.onlyHandleKey", F.lit(False)),
        _error("handle-key-only", "only the key of a large row was sent: not supported yet"),
    )


def _old(keys: Sequence[str]) -> Column:
    """The old row where a key column of it changed (or where the table's key is not known yet)."""
    unsettled = F.col("u.old")[0]
    if not keys:
        return unsettled
    old, new = F.col("e.old")[0], F.col("e.data")[0]
    changed = F.lit(False)
    for key in keys:
        changed = changed | F.coalesce(old.getField(key) != new.getItem(key), F.lit(False))
    as_map = F.map_from_arrays(
        F.array(*[F.lit(key) for key in keys]), F.array(*[old.getField(key) for key in keys])
    )
    return F.coalesce(unsettled, F.when(F.col("is_settled") & changed, as_map))
