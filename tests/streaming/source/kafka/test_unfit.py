"""Executors whose Python lacks something: errors as Spark words them, sentences as we do."""

from __future__ import annotations

import pytest

from streaming.jobs.executors import NEEDS, unfit

MISSING = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "streaming/source/kafka/read_task.py", line 12, in <module>
    from confluent_kafka import KafkaException
ModuleNotFoundError: No module named 'confluent_kafka'
"""
OTHER_VERSION = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyspark/worker_util.py", line 86, in check_python_version
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
NOWHERE = """An error occurred while calling o69.collectAsArrowToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 \
times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.1 executor 1): \
java.io.IOException: Cannot run program "python-not-there": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
BROKEN = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyarrow/__init__.py", line 70, in <module>
ImportError: libarrow.so.2600: cannot open shared object file: No such file or directory
"""
PASSING = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyspark/worker.py", line 1, in main
MemoryError
"""
NO_MEMORY = 'java.io.IOException: Cannot run program "python3": error=12, Cannot allocate memory'


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MISSING, "has no module confluent_kafka"),
        ("/usr/bin/python3: No module named streaming.source", "has no module streaming.source"),
        (OTHER_VERSION, "is a Python 3.12"),
        (NOWHERE, "cannot be run there: No such file or directory"),
        (BROKEN, "says ImportError: libarrow.so.2600: cannot open shared object file: No such "
         "file or directory"),
    ],
)  # fmt: skip
def test_one_line_says_what_is_missing_where_and_what_to_do(error: str, says: str):
    found = unfit(error, "./environment/bin/python")
    expected = f"the Python of Spark's executors, ./environment/bin/python, {says}: {NEEDS}"
    assert str(found) == expected


@pytest.mark.parametrize("error", [PASSING, NO_MEMORY])
def test_what_may_pass_is_not_of_the_environment(error: str):
    assert unfit(error, "python3") is None
