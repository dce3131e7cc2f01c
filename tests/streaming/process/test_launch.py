"""The JVM is launched before the settings are checked, where Spark is to be started at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.streaming.cli.test_main import ROOT, SOURCE
from tests.streaming.spark.test_jvm import spark_home


@pytest.mark.parametrize("submitted", [{}, {"PYSPARK_GATEWAY_PORT": "1"}])
def test_a_jvm_ends_with_the_run_whose_settings_are_wrong(
    tmp_path: Path, submitted: dict[str, str]
):
    said, no_folder = tmp_path / "pid", tmp_path / "a-file"
    no_folder.touch()
    home = spark_home(tmp_path, f"echo $$ >{said}; exec sleep 600")
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "streaming.cli.main", "run", "--source-uri", SOURCE),
            *("--sink-uri", f"delta://{no_folder}"),
        ],
        cwd=ROOT,
        env={**os.environ, "SPARK_HOME": home, "TMPDIR": str(tmp_path), **submitted},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert "is no folder" in ended.stderr
    assert said.exists() != bool(submitted)
    if said.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(said.read_text()), 0)
    assert not list(tmp_path.glob("tidelake-*"))
