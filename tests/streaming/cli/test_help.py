"""What ``--help`` says, and that nothing heavy is imported for it."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import pytest

from streaming.cli.main import app
from streaming.cli.options import ORDER
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


def test_help_fills_the_lines_of_any_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    for command in [(), ("check",), ("ddl", "skip"), ("capture", "drain")]:
        with pytest.raises(SystemExit):
            app(args=[*command, "--help"], prog_name="tidelake")
        above = capsys.readouterr().out.partition("╭")[0].splitlines()
        texts = [line.strip() for line in above]
        for line, below in pairwise(texts):
            if line and below and not line.startswith(("Example", "tidelake", "--")):
                assert len(line) + len(below.split()[0]) >= 77, (command, line, below)


def test_the_first_command_is_the_one_that_is_needed_first(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        app(args=["--help"], prog_name="tidelake")
    told = capsys.readouterr().out.partition("Commands")[2]
    names = [found[1] for found in re.finditer(r"^│ ([a-z-]+) ", told, re.MULTILINE)]
    assert names[:4] == ["run", "check", "progress", "snapshot"]
    assert set(names[:-2]) == set(ORDER)


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
