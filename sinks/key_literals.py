"""Key values on their way into SQL text: not rounded, not re-encoded, in no other time zone.

``written`` renders a key inside Spark; ``literal`` makes SQL of that text, of exactly the column's
type: a comparison that casts the column would read every file.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # the name everybody gives it
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from coordination.errors import TidelakeError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(key: Column, of: DataType) -> Column:
    """The key as text that ``literal`` understands; strings and bytes as hexadecimal digits."""
    match of:
        case StringType() | BinaryType():
            return F.hex(key.cast("binary"))
        case TimestampType():
            return F.unix_micros(key).cast("string")
        case DateType() | TimestampNTZType() | NumericType():
            return key.cast("string")
        case _:
            raise TidelakeError(f"a key column of type {of.simpleString()} cannot be matched")


def literal(text: str, of: DataType) -> str:
    match of:
        case StringType():
            return f"CAST(X'{text}' AS STRING)"
        case BinaryType():
            return f"X'{text}'"
        case TimestampType():
            at = _EPOCH + timedelta(microseconds=int(text))
            return f"TIMESTAMP'{at.isoformat(sep=' ', timespec='microseconds')}'"
        case TimestampNTZType() | DateType():
            return f"{of.typeName()}'{text}'"
        case _:
            return f"CAST('{text}' AS {of.simpleString()})"


def quoted(name: str) -> str:
    """A column name in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
