"""The temporary folder of this process, for all files of its own, of Spark and of embedded etcd.

    <temporary folder>/tidelake-<pid>-xxxxxxxx/    Spark's checkpoints, java.io.tmpdir, blocks

It is removed when the process ends. A folder that ``kill -9`` left behind is removed when the next
process starts. Whether the process of a folder lives is known by a lock on the folder, which the
kernel releases when the process ends. The pid in the name is for people only: in a container every
process has the pid 1, and pids are used again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from coordination.errors import ConfigError

PREFIX: Final = "tidelake-"
LOCAL_DIRS_VARIABLE: Final = "SPARK_LOCAL_DIRS"  # if set, the (larger) disks for Spark's blocks


@contextmanager
def scratch() -> Iterator[Path]:
    """Inside, Python's temporary files and Spark's blocks go into this process's own folder, which
    is removed at the end. Raises ConfigError if it cannot be made."""
    before = tempfile.tempdir, os.environ.get(LOCAL_DIRS_VARIABLE)
    with ExitStack() as stack:
        folder = stack.enter_context(_folder_in(Path(tempfile.gettempdir())))
        tempfile.tempdir = str(folder)
        if before[1]:
            places = [Path(each.strip()) for each in before[1].split(",") if each.strip()]
            ours = [str(stack.enter_context(_folder_in(each))) for each in places]
            os.environ[LOCAL_DIRS_VARIABLE] = ",".join(ours)
        try:
            yield folder
        finally:
            tempfile.tempdir = before[0]
            if before[1]:
                os.environ[LOCAL_DIRS_VARIABLE] = before[1]


def sweep(place: Path) -> None:
    """Remove the folders in ``place`` whose processes are gone, but not those of other users."""
    for folder in place.glob(f"{PREFIX}[0-9]*-*"):
        with suppress(OSError):  # a live process holds its lock, or it was removed just now
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


@contextmanager
def _folder_in(place: Path) -> Iterator[Path]:
    lock: int | None = None
    try:
        place.mkdir(parents=True, exist_ok=True)
        sweep(place)
        # It gets its name only when it is locked: before that another process would remove it.
        unnamed = Path(tempfile.mkdtemp(prefix=f"{PREFIX}new-", dir=place))
        with suppress(OSError):  # on a file system without locks ``sweep`` removes nothing
            lock = _lock(unnamed)
        suffix = unnamed.name.removeprefix(f"{PREFIX}new-")
        folder = unnamed.rename(place / f"{PREFIX}{os.getpid()}-{suffix}")
    except OSError as error:
        raise ConfigError(
            f"no temporary folder can be made in {place}: {error.strerror}; TMPDIR and "
            f"{LOCAL_DIRS_VARIABLE} say where it may be"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int:
    """Lock the folder; returns the handle that holds the lock. Raises OSError if another process
    holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
