"""What Spark's Python daemon has imported before it forks its workers."""

from __future__ import annotations

import subprocess
import sys

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
