"""The first steps of `tidelake run`: the JVM is launched, then everything else is imported.

A JVM needs a second until it can be talked to, and so do the imports and checks here, on the other
core. So this module imports none of them. If a check fails, the JVM is killed at once.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from conf.settings import Settings
from streaming.process.signals import handling, stop_before_start
from streaming.spark.jvm import DriverJvm
from streaming.spark.light_imports import importing
from streaming.spark.spark_conf import asked_master, conf_of_jvm
from streaming.spark.temporary_folder import scratch


def run(settings: Settings) -> int:
    """Be one capture until its changefeed finishes or a stop is asked for; returns the exit
    code."""
    with ExitStack() as stack:
        stack.enter_context(handling(stop_before_start))
        stack.enter_context(scratch())
        jvm = DriverJvm()
        stack.callback(jvm.stop)
        if not _has_spark():
            jvm.launch(conf_of_jvm(asked_master()))
        with importing():
            from streaming.process import run
        return run.run(settings, jvm)


def _has_spark() -> bool:
    """Whether somebody else has started Spark, or may have: spark-submit, or Databricks."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "pyspark" in sys.modules
