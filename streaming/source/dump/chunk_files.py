"""The Parquet files of one chunk, and what is said where the disk does not take them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from coordination.errors import TidelakeError, TryAgain

_PART: Final = ".part"
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class StagingFull(TryAgain):
    """The disk of the staging folder is full: the copy goes on when there is room."""


class StagingFailed(TidelakeError):
    """The staging folder cannot be written or read."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """``bytes``: its size on the disk."""

    name: str
    rows: int
    bytes: int


class ChunkFiles:
    """The files of one chunk: a new one where a column's type changes (dates of no calendar)."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._rows: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Files of a chunk that failed are deleted: they may be what fills the disk."""
        if kind is not None:
            with suppress(OSError, pa.ArrowException):
                self._close()
            for path in self._folder.glob(f"{self._name}-*"):
                with suppress(OSError):
                    path.unlink()

    def write(self, rows: pa.Table) -> None:
        """Raises StagingFull or StagingFailed."""
        with refusals(self._folder):
            if self._writer is None or not self._writer.schema.equals(rows.schema):
                self._close()
                path = self._folder / f"{self._name}-{len(self._rows)}.parquet{_PART}"
                self._sink = pa.OSFile(str(path), "wb")
                self._writer = pq.ParquetWriter(
                    self._sink,
                    rows.schema,
                    compression="lz4",
                    use_dictionary=False,
                    write_statistics=False,
                )
                self._rows.append(0)
            self._writer.write_table(rows)
            self._rows[-1] += len(rows)

    def finish(self) -> list[StagedFile]:
        """They are on the disk under their names then; ``StagedTable.done`` makes them count."""
        found = []
        with refusals(self._folder):
            self._close()
            for number, rows in enumerate(self._rows):
                name = f"{self._name}-{number}.parquet"
                part = self._folder / f"{name}{_PART}"
                flush(part)
                found.append(StagedFile(name, rows, part.stat().st_size))
                part.rename(self._folder / name)
            if found:
                flush(self._folder)
        return found

    def _close(self) -> None:
        writer, sink = self._writer, self._sink
        self._writer = self._sink = None
        try:
            if writer is not None:
                writer.close()
        finally:
            if sink is not None:
                sink.close()


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def refusals(folder: Path) -> Iterator[None]:
    """An error of the disk as a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StagingFull(
                f"no room in the staging folder {folder}: free some space; the copy goes on"
                " with the next chunk"
            ) from error
        raise StagingFailed(f"the staging folder {folder} cannot be used: {error}") from error
