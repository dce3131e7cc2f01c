"""Decides about an error out of the work on one table: its message names the table.

An error that may be the table's alone (a constraint, a property or a column that an operator has
set, no permission for its folder) holds the table: its rows wait and are tried again, and others go
on. An error that concerns more than one table (the storage is away, the lease is gone) is raised.
"""

from __future__ import annotations

import logging
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from coordination.errors import (
    CaptureSuicide,
    ConfigError,
    Fenced,
    Stop,
    TableSealed,
    TermRefused,
    TidelakeError,
    TryAgain,
)
from coordination.failpoint import FailpointHit
from coordination.model import TableName
from sinks.spark.jvm_errors import line
from streaming.apply.commit_guard import CommitWithdrawn

logger = logging.getLogger(__name__)

OF_THE_CAPTURE: Final = (
    *(Fenced, CaptureSuicide, TermRefused, TableSealed, Stop),
    *(CommitWithdrawn, FailpointHit),  # the table is another's; a test
)
OF_SPARK: Final = (PySparkException, Py4JJavaError)  # the latter where Python has no name for it
ENDS: Final = ("cancelled", "stopped SparkContext", "SparkContext was shut down")  # by us


def holding(name: TableName, error: Exception) -> str:
    """Why the table is held. Raises the error, with the table's name, where it is not the table's
    alone."""
    is_of_spark = isinstance(error, OF_SPARK)
    if isinstance(error, OF_THE_CAPTURE) or (isinstance(error, Py4JError) and not is_of_spark):
        raise error  # of the latter: the JVM is gone
    text = named(name, line(error))
    if isinstance(error, TryAgain | ConfigError):
        raise type(error)(text) from error
    if is_of_spark and any(end in text for end in ENDS):
        raise error
    if isinstance(error, TidelakeError) or is_of_spark:
        return text
    logger.error("an unexpected error table=%s", name, exc_info=error)
    raise TidelakeError(named(name, f"{type(error).__name__}: {line(error)}")) from error


def named(name: TableName, text: str) -> str:
    """The message, which begins with the table's name."""
    for known in (f"table {name}: ", f"table {name} "):
        text = text.removeprefix(known)
    return f"table {name}: {text}"
