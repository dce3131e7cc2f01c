"""Tidelake as a wheel, and Pythons that have it and little else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGED: Final = ("conf", "coordination", "sinks", "streaming", "pyproject.toml", "README.md")
PIP: Final = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check")
OFFLINE: Final = ("--no-deps", "--no-index", "--no-cache-dir", "--quiet")
NATIVE: Final = ("confluent_kafka", "numpy", "pyarrow")  # what executors need beside ours


def build_wheel(folder: Path) -> Path:
    """Without network and build isolation; building in the repository would leave folders there."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in PACKAGED:
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(origin, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, source / name)
    command = [*PIP, "wheel", ".", *OFFLINE, "--no-build-isolation", "--wheel-dir", folder / "dist"]
    subprocess.run(command, cwd=source, check=True, stdin=subprocess.DEVNULL, timeout=300)
    (wheel,) = (folder / "dist").glob("tidelake-*.whl")
    return wheel


def make_python(folder: Path, wheel: Path | None, native: Sequence[str] = NATIVE) -> Path:
    """A virtual environment with these alone; native packages are links to this Python's."""
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=60)
    (site,) = made.glob("lib/python*/site-packages")
    if wheel is not None:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(site)
    for name in native:
        for found in Path(pyarrow.__file__).parents[1].glob(f"{name}*"):
            (site / found.name).symlink_to(found)
    return made / "bin" / "python"
