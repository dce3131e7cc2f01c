"""Reads a Delta table with Delta Kernel, in the JVM of a Spark session with it on the class path.

Cell by cell over the gateway, so for small tables. Kernel leaves the rows of a predicate to its
engines; what it does itself is to skip files by statistics, and so that is what is asked of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JVMView
from pyspark.sql import SparkSession

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


# By Kernel's name of the type: its getter, and what Python makes of the value.
_CELLS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "byte": ("getByte", int),
    "short": ("getShort", int),
    "integer": ("getInt", int),
    "long": ("getLong", int),
    "float": ("getFloat", lambda value: struct.unpack("f", struct.pack("f", value))[0]),
    "double": ("getDouble", float),
    "boolean": ("getBoolean", bool),
    "string": ("getString", str),
    "binary": ("getBinary", bytes),
    "date": ("getInt", lambda days: date(1970, 1, 1) + timedelta(days=days)),
    "timestamp": ("getLong", _moment),
    "timestamp_ntz": ("getLong", lambda value: _moment(value).replace(tzinfo=None)),
    "decimal": ("getDecimal", lambda value: value),
}


class KernelReader:
    """One version of a table, the newest where none is given."""

    def __init__(self, spark: SparkSession, uri: str, version: int | None = None) -> None:
        context = spark.sparkContext
        jvm = context._jvm
        assert jvm is not None
        assert context._jsc is not None
        self._jvm: JVMView = jvm
        self._kernel = jvm.io.delta.kernel
        self._engine = self._kernel.defaults.engine.DefaultEngine.create(
            context._jsc.hadoopConfiguration()
        )
        builder = self._kernel.TableManager.loadSnapshot(uri)
        if version is not None:
            builder = builder.atVersion(version)
        self._snapshot = builder.build(self._engine)

    def rows(self) -> dict[str, list[Row]]:
        """All live rows, by the data file that they are in."""
        scan = self._snapshot.getScanBuilder().build()
        return {self._path(file): list(self._read(scan, file)) for file in self._files(scan)}

    def files(self, column: str, sign: str, value: Any, kind: pa.DataType) -> set[str]:
        """The data files that may hold rows of a predicate, by their statistics."""
        expressions = self._kernel.expressions
        predicate = expressions.Predicate(
            sign, expressions.Column(column), self._literal(value, kind)
        )
        scan = self._snapshot.getScanBuilder().withFilter(predicate).build()
        return {self._path(file) for file in self._files(scan)}

    def _literal(self, value: Any, kind: pa.DataType) -> Any:
        literal = self._kernel.expressions.Literal
        if pa.types.is_decimal(kind):
            exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=38))
            return literal.ofDecimal(exact, kind.precision, kind.scale)
        if pa.types.is_timestamp(kind):
            moment = pa.scalar(value, kind).value
            return (literal.ofTimestamp if kind.tz else literal.ofTimestampNtz)(moment)
        made = {
            pa.int8(): lambda: literal.ofByte(self._jvm.java.lang.Byte.parseByte(str(value))),
            pa.int16(): lambda: literal.ofShort(self._jvm.java.lang.Short.parseShort(str(value))),
            pa.int32(): lambda: literal.ofInt(value),
            pa.int64(): lambda: literal.ofLong(self._jvm.java.lang.Long.parseLong(str(value))),
            pa.float64(): lambda: literal.ofDouble(value),
            pa.float32(): lambda: literal.ofFloat(value),
            pa.string(): lambda: literal.ofString(value),
            pa.binary(): lambda: literal.ofBinary(value),
            pa.date32(): lambda: literal.ofDate(pa.scalar(value, kind).value),
        }
        return made[kind]()

    def _files(self, scan: Any) -> Iterator[Any]:
        batches = scan.getScanFiles(self._engine)
        for batch in _each(batches):
            yield from _each(batch.getRows())

    def _path(self, file: Any) -> str:
        status = self._kernel.internal.InternalScanFileUtils.getAddFileStatus(file)
        return str(status.getPath()).rpartition("/")[2]

    def _read(self, scan: Any, file: Any) -> Iterator[Row]:
        """As Kernel's guide says: the engine reads Parquet, Kernel makes it the table's rows."""
        state = scan.getScanState(self._engine)
        status = self._kernel.internal.InternalScanFileUtils.getAddFileStatus(file)
        util = self._kernel.internal.util.Utils
        schema = self._kernel.internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
        found = self._engine.getParquetHandler().readParquetFiles(
            util.singletonCloseableIterator(status), schema, self._jvm.java.util.Optional.empty()
        )
        data = self._jvm.java.util.ArrayList()
        for part in _each(found):
            data.add(part.getData())
        batches = self._kernel.Scan.transformPhysicalData(
            self._engine, state, file, util.toCloseableIterator(data.iterator())
        )
        fields = self._snapshot.getSchema().fields()
        columns = [
            (at, str(fields.get(at).getName()), str(fields.get(at).getDataType().toString()))
            for at in range(fields.size())
        ]
        for batch in _each(batches):
            for row in _each(batch.getRows()):
                yield {name: _cell(row, at, kind) for at, name, kind in columns}


def _cell(row: Any, at: int, kind: str) -> Any:
    if row.isNullAt(at):
        return None
    getter, plain = _CELLS[kind.lower().partition("(")[0]]
    return plain(getattr(row, getter)(at))


def _each(iterator: Any) -> Iterable[Any]:
    """Whole, in the JVM: py4j's own iterator takes an exception for the end."""
    return list(iterator.toInMemoryList())
