"""What Spark's Python daemon has imported before it forks its workers, and how these end."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

FORKED = """
import sys
import streaming.source.worker_daemon
before = set(sys.modules)
import pyarrow
assert pyarrow.array(["a"]).to_pylist() == ["a"]
print([each for each in set(sys.modules) - before if each.partition(".")[0] == "pandas"])
"""


def test_a_worker_does_not_import_pandas_with_its_first_array() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


@pytest.fixture
def short() -> Iterator[str]:
    """A folder of a short name: the path of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tl-") as folder:
        yield folder


def test_a_worker_that_spark_lets_go_of_ends_without_a_word(short: str) -> None:
    """As Spark does with workers that had nothing to do for a minute."""
    daemon = subprocess.Popen(
        [sys.executable, "-m", "streaming.source.worker_daemon", "pyspark.worker"],
        env={
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": short,
            "SPARK_REUSE_WORKER": "1",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    (length,) = struct.unpack("!i", daemon.stdout.read(4))
    with socket.socket(socket.AF_UNIX) as spark:
        spark.connect(daemon.stdout.read(length))
        (worker,) = struct.unpack("!i", spark.recv(4))
    with suppress(psutil.NoSuchProcess):  # it has ended already
        psutil.Process(worker).wait(60)
    _, said = daemon.communicate(timeout=60)
    assert said == b""
