"""A process that has read a control table may end at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.sinks.control.test_control_table import add_one, table_in

ROOT = Path(__file__).resolve().parents[3]
READ_AND_END = """
import sys
from tests.sinks.control.test_control_table import counted, table_in
assert table_in(sys.argv[1]).read(counted) == 6
"""


def test_no_thread_aborts_a_process_that_ends_just_after_a_read(tmp_path: Path) -> None:
    """Arrow's threads do, where they read files through Python."""
    warehouse = tmp_path / "a place"
    for _ in range(6):
        table_in(warehouse).commit(add_one, "count in")
    command = [sys.executable, "-c", READ_AND_END, str(warehouse)]
    readers = [subprocess.Popen(command, cwd=ROOT) for _ in range(6)]
    assert [reader.wait() for reader in readers] == [0] * 6
