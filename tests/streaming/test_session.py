"""The session that is started by whoever needs it first."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkRuntimeError

from coordination.errors import TidelakeError
from streaming.session import SparkOnDemand


def test_threads_that_ask_at_once_get_one_session():
    session, together = Mock(), threading.Barrier(3, timeout=10)
    start = Mock(return_value=session)
    spark, found = SparkOnDemand(start), []

    def ask() -> None:
        together.wait()
        found.append(spark())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [session] * 3
    start.assert_called_once_with()
    spark.stop()
    session.stop.assert_called_once_with()


def test_what_was_never_started_is_not_stopped():
    start = Mock()
    spark = SparkOnDemand(start)
    spark.stop()
    assert spark.started is None
    start.assert_not_called()


def test_a_start_that_fails_is_one_line_that_says_what_spark_needs():
    failure = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    spark = SparkOnDemand(Mock(side_effect=failure))
    with pytest.raises(TidelakeError, match=r"Spark does not start: .*Java gateway.*needs Java 17"):
        spark()
    assert spark.started is None
