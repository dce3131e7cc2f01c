"""A call to the JVM on the coordination thread would be seen."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.jvm_calls import refused_here


@pytest.mark.spark
def test_a_call_to_the_jvm_is_refused_where_it_is_watched_for(spark: SparkSession) -> None:
    with refused_here() as calls, pytest.raises(AssertionError, match="coordination thread"):
        spark.range(1)
    assert calls
    assert spark.range(3).count() == 3
