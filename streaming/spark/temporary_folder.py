"""The temporary folder of this process, for all files of its own, of Spark and of embedded etcd.

    <temporary folder>/tidelake-<pid>-xxxxxxxx/    Spark's checkpoints, java.io.tmpdir, blocks

A tool that cleans a temporary folder by age may take it away while the process works: Python and
the JVM then meet files and folders that are gone. ``remake`` brings its folders back, so that the
failed work can be begun anew; the files in them can all be read or made again.

It is removed when the process ends. A folder that ``kill -9`` left behind is removed when the next
process starts. A lock on the folder tells whether its process lives; the kernel releases the lock
when the process ends. The pid in the name is for people only: in a container every process has the
pid 1, and pids are used again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from coordination.errors import ConfigError

logger = logging.getLogger(__name__)

PREFIX: Final = "tidelake-"
LOCAL_DIRS_VARIABLE: Final = "SPARK_LOCAL_DIRS"  # if set, the (larger) disks for Spark's blocks
BLOCKS: Final = "blockmgr-"  # Spark's folders of blocks; each has up to so many folders, made once
BLOCK_FOLDERS: Final = [f"{each:02x}" for each in range(64)]

_locks: dict[Path, int | None] = {}  # this process's folders, and the handles that lock them
_known: set[Path] = set()  # what was in them when ``note`` was called last


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


def note() -> None:
    """Remember which folders there are, for ``remake``: called when Spark and its stream are up."""
    for place in tuple(_locks):
        for folder, names, _files in os.walk(place):
            _known.update(Path(folder, name) for name in names)


def remake(error: BaseException) -> bool:
    """Whether folders of this process were gone, which may have caused ``error``. They are made
    again, and a line says so."""
    lost = [each for each in (*_locks, *sorted(_known)) if not each.is_dir()]
    missed = getattr(error, "filename", None)
    parent = Path(missed).parent if isinstance(missed, str) else None
    if parent and not parent.is_dir() and any(each in parent.parents for each in _locks):
        lost.append(parent)
    for folder in lost:
        names = BLOCK_FOLDERS if folder.name.startswith(BLOCKS) else ()
        for each in (folder, *(folder / name for name in names)):
            each.mkdir(parents=True, exist_ok=True)
        if folder in _locks:
            _lock_anew(folder)
    if lost:
        logger.warning(
            "the temporary folder of this process was cleaned while the process works: %s was "
            "gone, %d folders in all. They are made again, and the failed work is begun anew. "
            "Exclude %s* in %s from the program that cleans it (systemd-tmpfiles: a line with x), "
            "or set TMPDIR to a folder that nothing cleans",
            *(lost[0], len(lost), PREFIX, next(iter(_locks)).parent),
        )
    return bool(lost)


def _lock_anew(folder: Path) -> None:
    before = _locks[folder]
    if before is not None:
        os.close(before)
    _locks[folder] = None
    with suppress(OSError):
        _locks[folder] = _lock(folder)


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
    _locks[folder] = lock
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _known.difference_update([each for each in _known if folder in each.parents])
        if (lock := _locks.pop(folder)) is not None:
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
