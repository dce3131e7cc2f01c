"""What ``--help`` says, and that nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.streaming.cli.test_main import ROOT, quick, tidelake


@pytest.mark.parametrize("command", [(), ("run",), ("progress",), ("snapshot",)])
def test_help_is_complete_and_quick(command: tuple[str, ...]):
    with quick():
        ended = tidelake(*command, "--help", COLUMNS="200")
    assert ended.returncode == 0
    wanted = {
        (): ["run", "progress", "snapshot", "--version"],
        ("run",): [
            *("--source-uri", "--sink-uri", "--changefeed-id", "--start-ts", "--target-ts"),
            *("--config", "--etcd", "--overwrite-checkpoint-ts", "--cluster-id"),
            *("--log-format", "--log-level"),
        ],
        ("progress",): ["--sink-uri", "--changefeed-id", "--config", "--format", "--watch"],
        ("snapshot",): [
            "--sink-uri",
            "--changefeed-id",
            "--config",
            "--format",
            "--as-of",
            "--sql",
        ],
    }
    assert [option for option in wanted[command] if option not in ended.stdout] == []


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys, streaming.cli.main; "
        "heavy = {'pyspark', 'deltalake', 'etcd3', 'pydantic', 'pythonjsonlogger'}; "
        "print(heavy & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "set()"
