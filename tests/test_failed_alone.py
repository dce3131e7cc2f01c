"""A test that passes alone and fails beside others is named as such, and is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
from pathlib import Path
def test_passes(): ...
def test_beside(): assert Path("alone").exists()
def test_alone_too(): assert False
def test_teardown(tmp_path_factory, request): request.addfinalizer(lambda: 1 / 0)
"""


def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, "-q", "-n", "0", f"--rootdir={folder}", "-c"]
    return subprocess.run(
        [*command, "pytest.ini", *arguments],
        cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_each_failure_has_its_kind(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    assert run(tmp_path, "pytest").returncode == 1
    (tmp_path / "alone").touch()
    again = run(tmp_path, "tests.failed_alone")
    assert again.returncode == 1
    assert again.stdout.splitlines()[-3:] == [
        "fails alone too: test_it.py::test_alone_too",
        "fails alone too: test_it.py::test_teardown",
        "fails beside other tests only: test_it.py::test_beside",
    ]
    (tmp_path / "test_it.py").write_text("def test_passes(): ...\ndef test_beside(): ...\n")
    last = run(tmp_path, "tests.failed_alone")
    assert (last.returncode, last.stdout.splitlines()[-1]) == (
        1,
        "fails beside other tests only: test_it.py::test_beside",
    )
