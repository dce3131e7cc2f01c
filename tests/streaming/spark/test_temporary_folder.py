"""What a process leaves in the temporary folder goes with it, or when the next one starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from streaming.spark.temporary_folder import BLOCK_FOLDERS, PREFIX, note, remake, scratch, sweep
from tests.own_lines import own_lines

ROOT = Path(__file__).resolve().parents[3]
OTHER = """
import pathlib, sys, tempfile
from streaming.spark.temporary_folder import scratch
with scratch() as folder:
    (folder / "blockmgr-1").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, of this process and of those that it starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    return tmp_path


def other() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_all_temporary_files_go_with_the_process(place: Path):
    with scratch() as folder:
        assert folder.name.startswith(f"{PREFIX}{os.getpid()}-")
        made = Path(tempfile.mkdtemp(prefix="tidelake-checkpoint-"))
        assert made.parent == folder
    assert list(place.iterdir()) == []
    assert tempfile.gettempdir() == str(place)


def test_what_a_killed_process_left_goes_at_the_next_start(place: Path):
    process, folder = other()
    with scratch():
        assert (folder / "blockmgr-1").is_dir()  # it lives
    process.kill()
    process.communicate()
    assert folder.is_dir()
    with scratch() as ours:
        assert list(place.iterdir()) == [ours]


def test_the_lock_says_who_lives_and_not_the_pid(place: Path):
    """In containers that share a folder all have the pid 1; a dead one's pid is used again."""
    process, folder = other()
    with_a_dead_pid = folder.rename(place / f"{PREFIX}999999999-a")
    with_our_pid = place / f"{PREFIX}{os.getpid()}-b"
    with_our_pid.mkdir()
    sweep(place)
    assert list(place.iterdir()) == [with_a_dead_pid]
    process.kill()
    process.communicate()


def test_what_is_not_of_such_a_process_stays(place: Path):
    for name in ("tidelake-etcd-1-a", "tidelake-new-a", "spark-1", "tidelake-demo-1"):
        (place / name).mkdir()
    file, elsewhere = place / "tidelake-1-file", place / "tidelake-demo-1"
    file.touch()
    (place / "tidelake-1-link").symlink_to(elsewhere)
    before = sorted(place.iterdir())
    sweep(place)
    assert sorted(place.iterdir()) == before


def test_a_place_where_nothing_can_be_made_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    (place / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "file"))
    with (
        pytest.raises(ConfigError, match=r"no temporary folder can be made in .*TMPDIR"),
        scratch(),
    ):
        pass


def test_blocks_go_into_folders_of_ours_on_the_disks_that_were_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    disks = [place / "disk-1", place / "disk-2"]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, disks)))
    left = disks[1] / f"{PREFIX}1-left"
    left.mkdir(parents=True)
    with scratch():
        ours = [Path(each) for each in os.environ["SPARK_LOCAL_DIRS"].split(",")]
        assert [each.parent for each in ours] == disks
        assert all(each.is_dir() for each in ours)
    assert os.environ["SPARK_LOCAL_DIRS"] == ",".join(map(str, disks))
    assert [list(disk.iterdir()) for disk in disks] == [[], []]


def test_folders_that_a_cleaner_took_away_are_made_again(
    place: Path, caplog: pytest.LogCaptureFixture
):
    with scratch() as folder:
        for name in ("spark-1/userFiles-1", "blockmgr-1/0a", "tidelake-carry-1"):
            (folder / name).mkdir(parents=True)
        note()
        assert not remake(OSError("of something else"))
        assert own_lines(caplog) == []
        shutil.rmtree(folder)
        with pytest.raises(FileNotFoundError) as gone:
            tempfile.mkstemp(dir=folder / "spark-1")
        assert remake(gone.value)
        assert (folder / "spark-1" / "userFiles-1").is_dir()
        assert (folder / "tidelake-carry-1").is_dir()
        # Spark believes that each folder that it has made is there.
        assert {each.name for each in (folder / "blockmgr-1").iterdir()} == set(BLOCK_FOLDERS)
        (said,) = own_lines(caplog)
        assert "was cleaned" in said
        assert f"Exclude {PREFIX}*" in said
        assert "TMPDIR" in said
        sweep(place)  # as the next process does
        assert folder.is_dir(), "nothing locks the new one"
    assert list(place.iterdir()) == []


def test_a_folder_that_was_made_since_is_made_again_where_something_misses_it(place: Path):
    with scratch():
        note()
        later = Path(tempfile.mkdtemp(prefix="bodies-"))
        later.rmdir()
        with pytest.raises(FileNotFoundError) as gone:
            tempfile.mkstemp(dir=later)
        assert remake(gone.value)
        assert later.is_dir()
        with pytest.raises(FileNotFoundError) as elsewhere:
            (place / "other" / "file").read_text()
        assert not remake(elsewhere.value)
        assert not (place / "other").exists()
