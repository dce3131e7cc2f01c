"""Columns that differ in what no cast looks at share their expressions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sinks.delta_types import cast_kind, delta_type
from sinks.schema import Column, MySQLType
from sinks.sql_casts import cast_column, cast_failure
from tests.sinks.cast_cases import DELTA_TYPES


@pytest.mark.spark
def test_columns_of_one_kind_are_cast_alike(spark: SparkSession) -> None:
    assert spark  # expressions are made by its JVM
    for text in DELTA_TYPES:
        of = MySQLType.parse(text)
        kind = cast_kind(of)
        assert (cast_kind(kind), delta_type(kind)) == (kind, delta_type(of))
        assert expressions(kind) == expressions(of), text


def expressions(of: MySQLType) -> tuple[str, str]:
    column, cell, typed = Column(name="c", type=of), F.col("cell"), F.col("typed")
    return str(cast_column(cell, column, "UTC")), str(cast_failure(cell, typed, column, "null"))
