"""What operators read of an error that came out of the JVM."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PythonException

from sinks.spark.jvm_errors import line

OF_THE_JVM = """An error occurred while calling o18507.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)
Caused by: java.io.IOException: write failed
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
Caused by: java.io.IOException: No space left on device
\t... 12 more
"""

OF_A_WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "streaming/source/kafka/read_task.py", line 12, in <module>
    from confluent_kafka import KafkaException
ModuleNotFoundError: No module named 'confluent_kafka'

"""
OF_A_WORKER_IN_THE_JVM = """An error occurred while calling o70.collectAsArrowToPython.
: org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):
  File "pyspark/worker.py", line 1, in main
MemoryError

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Py4JError(OF_THE_JVM),
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 "
            "times <- java.io.IOException: No space left on device",
        ),
        (
            PythonException(OF_A_WORKER),
            "An exception was thrown from the Python worker <- ModuleNotFoundError: No module "
            "named 'confluent_kafka'",
        ),
        (
            Py4JError(OF_A_WORKER_IN_THE_JVM),
            "org.apache.spark.SparkException: Job aborted <- MemoryError",
        ),
        (Py4JError("Answer from Java side is empty"), "Answer from Java side is empty"),
        (ConnectionError("\n no broker answers \n at x"), "no broker answers"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_line_says_what_went_wrong_and_why(error: Exception, said: str) -> None:
    assert line(error) == said
