"""Installed as a wheel it works the same, and a namesake of our packages is noticed early."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.wheel import NATIVE, OFFLINE, PACKAGED, PIP, ROOT, build_wheel


def run(
    command: list[str | Path], cwd: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    hidden = {"PYTHONPATH"} | {name for name in os.environ if name.startswith("TIDELAKE_")}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel in it and nothing else of ours."""
    base = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(base)
    ended = run([*PIP, "install", *OFFLINE, "--target", base / "site", wheel], cwd=base)
    assert ended.returncode == 0, ended.stderr
    return base / "site"


def test_the_wheel_has_every_package_and_the_sample_files(installed: Path):
    ours = {path.relative_to(ROOT) for name in PACKAGED[:4] for path in (ROOT / name).rglob("*.py")}
    there = {path.relative_to(installed) for path in installed.rglob("*.py")}
    assert ours <= there
    samples = {
        "local.toml",
        "local-modes.toml",
        "production.toml",
        "spark.conf",
        "databricks.yml",
        "log4j2.properties",
        "ivy.xml",
    }
    assert samples <= {path.name for path in (installed / "conf").iterdir()}


def test_what_executors_need_comes_with_the_wheel(installed: Path):
    """Databricks installs a wheel on driver and executors as pip does, with what it requires."""
    (told,) = installed.glob("tidelake-*.dist-info/METADATA")
    required = set(re.findall(r"^Requires-Dist: ([\w-]+)", told.read_text(), re.MULTILINE))
    assert {each.replace("_", "-") for each in NATIVE} <= required


def test_what_executors_load_needs_no_more(tmp_path: Path):
    """Every decoder, and the tasks that read."""
    tasks = ("kafka.read_task", "storage.slices_task", "binlog.slice_task")
    names = ["streaming.protocols.decoders", *(f"streaming.source.{each}" for each in tasks)]
    code = f"import {', '.join(names)}, sys; print(*sys.modules)"
    loaded = run([sys.executable, "-c", code], cwd=tmp_path, path=ROOT).stdout.split()
    assert not {"sqlglot", "deltalake", "pymysql", "typer", "rich", "httpx"} & {*loaded}


def test_the_program_runs_from_the_wheel(installed: Path, tmp_path: Path):
    code = "import streaming.cli.main; print(streaming.cli.main.__file__)"
    ended = run([sys.executable, "-c", code], cwd=tmp_path, path=installed)
    assert ended.stdout.strip() == str(installed / "streaming" / "cli" / "main.py")
    program = installed / "bin" / "tidelake"
    ended = run([sys.executable, program, "--help"], cwd=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stderr
    assert "snapshot" in ended.stdout
    ended = run([sys.executable, program, "run"], cwd=tmp_path, path=installed)
    assert ended.returncode == 2
    assert ended.stderr.startswith("tidelake: ")
    assert "source-uri is missing: give the sink URI that TiCDC was given" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("where", ["wheel", "repository"])
def test_job_is_the_same_program(installed: Path, tmp_path: Path, where: str):
    job = (installed if where == "wheel" else ROOT) / "streaming" / "job.py"
    ended = run([sys.executable, job, "run"], cwd=tmp_path)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "source-uri is missing" in ended.stderr
    assert run([sys.executable, job, "--help"], cwd=tmp_path).returncode == 0


def test_job_from_the_repository_is_not_misled_by_a_namesake(tmp_path: Path):
    foreign(tmp_path / "other")
    ended = run([sys.executable, ROOT / "streaming/job.py", "run"], tmp_path, tmp_path / "other")
    assert "source-uri is missing" in ended.stderr


def test_a_namesake_that_comes_first_stops_the_job_early(tmp_path: Path):
    """job.py was shipped alone, into a cluster's folder, and ``streaming`` is another package."""
    folder = foreign(tmp_path / "other")
    job = Path(shutil.copy(ROOT / "streaming" / "job.py", tmp_path / "job.py"))
    for name in ("conf", "coordination", "sinks"):
        shutil.copytree(ROOT / name, tmp_path / "other" / name)
    ended = run([sys.executable, job, "run"], tmp_path, tmp_path / "other")
    assert ended.returncode == 2
    assert ended.stderr == (
        f"tidelake: package 'streaming' is not Tidelake's: the one in {folder} comes first; "
        "install Tidelake where no other package is called 'streaming' "
        "(mosaicml-streaming has one of that name)\n"
    )


def test_a_namesake_installed_over_ours_stops_the_job_early(installed: Path, tmp_path: Path):
    site = tmp_path / "site"
    shutil.copytree(installed, site)
    foreign(site)
    ended = run([sys.executable, site / "streaming" / "job.py", "run"], tmp_path)
    assert ended.returncode == 2
    assert "another package wrote over" in ended.stderr
    assert ended.stderr.count("\n") == 1


def foreign(site: Path) -> Path:
    """A package named ``streaming`` as mosaicml-streaming has it: with code in its __init__."""
    folder = site / "streaming"
    folder.mkdir(parents=True, exist_ok=True)
    init = "import a_heavy_dependency\nfrom streaming.dataset import StreamingDataset\n"
    (folder / "__init__.py").write_text(init, encoding="utf-8")
    return folder
