"""A table's folder on a local disk, or on a file system that is mounted like one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from sinks.storage.table_storage import TEMPORARY_SUFFIX, Entry, Inside

_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class LocalStorage:
    """A folder of a file system that has hard links."""

    def __init__(self, root: str | Path) -> None:
        self.uri = str(root).rstrip("/") or "/"

    def _at(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def read(self, path: str) -> bytes:
        with open(self._at(path), "rb", buffering=0) as file:
            return file.read()

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with open(self._at(path), "rb", buffering=0) as file:
            file.seek(start)
            found = bytearray()
            while len(found) < end - start and (some := file.read(end - start - len(found))):
                found += some
            return bytes(found)

    def inside(self, folder: str) -> Inside:
        at = self._at(folder) if folder else self.uri
        try:
            scan = os.scandir(at)
        except (FileNotFoundError, NotADirectoryError):
            return Inside((), ())
        with scan:
            found = sorted((each.name, each.is_dir()) for each in scan)
        return Inside(
            tuple(name for name, is_folder in found if is_folder),
            tuple(name for name, is_folder in found if not is_folder),
        )

    def size(self, path: str) -> int | None:
        try:
            return os.stat(self._at(path)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_input(self, path: str) -> Any:
        return pa.memory_map(self._at(path))

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        found = sorted(self._walk(prefix.rstrip("/"), start_after), key=lambda each: each[0])
        for path, entry in found:
            with contextlib.suppress(FileNotFoundError):  # deleted since
                status = entry.stat(follow_symlinks=True)
                yield Entry(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def _walk(self, folder: str, start_after: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            scan = os.scandir(self._at(folder))
        except FileNotFoundError:
            return
        with scan:
            for entry in scan:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if path >= start_after[: len(path)]:  # else all in it comes before
                        yield from self._walk(path, start_after)
                elif path > start_after:
                    yield path, entry

    def write(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        target = self._at(path)
        try:
            _write_durably(target, data)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            _write_durably(target, data)

    def create(self, path: str, data: bytes | memoryview | pa.Buffer) -> bool:
        target = self._at(path)
        if os.path.lexists(target):
            return False
        temporary = self._temporary(path)
        self.write(temporary, data)
        try:
            os.link(self._at(temporary), target)
        except FileExistsError:
            return False
        finally:
            _unlink(self._at(temporary))
        self.sync_folder(os.path.dirname(path))
        return True

    def replace(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        temporary = self._temporary(path)
        self.write(temporary, data)
        try:
            # Hadoop's checksum is that of the old bytes: it would refuse to read the new ones.
            _unlink(self._checksum(path))
            os.replace(self._at(temporary), self._at(path))
        except OSError:
            _unlink(self._at(temporary))
            raise
        self.sync_folder(os.path.dirname(path))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            _unlink(self._at(path))
            _unlink(self._checksum(path))

    def sync_folder(self, path: str) -> None:
        _sync_folder(self._at(path))

    def _make_folder(self, path: str) -> None:
        """Make a folder and its missing parents (the warehouse's folders too), all durable."""
        missing = []
        folder = self._at(path).rstrip("/")
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        os.makedirs(self._at(path), exist_ok=True)
        for each in missing:
            _sync_folder(os.path.dirname(each))

    def _temporary(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        hidden = f".{name}.{os.urandom(16).hex()}{TEMPORARY_SUFFIX}"
        return f"{folder}/{hidden}" if folder else hidden

    def _checksum(self, path: str) -> str:
        """Where Hadoop's local file system keeps the checksum of a file that it wrote."""
        folder, _, name = path.rpartition("/")
        return self._at(f"{folder}/.{name}.crc" if folder else f".{name}.crc")


def _write_durably(target: str, data: bytes | memoryview | pa.Buffer) -> None:
    """Write a new file and sync it; after an OSError (a full disk, say) nothing of it is left.
    Raises FileNotFoundError if the folder is missing."""
    descriptor = os.open(target, _WRITE_FLAGS, 0o666)
    try:
        try:
            rest = memoryview(data).cast("B")
            while len(rest):
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        _unlink(target)
        raise


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unlink(target: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(target)
