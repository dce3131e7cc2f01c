"""Files for what the carry's memory has no room for: bodies one after the other, read by mapping.

A file goes when no body in it is wanted any more. Nothing here outlives the process: the rows are
in Kafka, and a restart reads them again.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from coordination.errors import TidelakeError

FILE_BYTES = 64 << 20  # then the next file: small ones go sooner


@dataclass(frozen=True, slots=True)
class Spilled:
    path: Path
    begin: int
    size: int

    def read(self) -> pa.Buffer:
        """A view of the file, valid even after the file is gone."""
        with pa.memory_map(str(self.path)) as file:
            file.seek(self.begin)
            return file.read_buffer(self.size)


class SpillFiles:
    """Makes a folder of its own in ``place``, with the first body that comes."""

    def __init__(self, place: Path, *, file_bytes: int = FILE_BYTES) -> None:
        self._place = place
        self._file_bytes = file_bytes
        self._folder: Path | None = None
        self._current: tuple[Path, BinaryIO, int] | None = None  # what is written, and its size
        self._wanted: dict[Path, int] = {}  # bodies of each file
        self._made = 0

    def write(self, body: pa.Buffer) -> Spilled:
        """Raises TidelakeError where the disk does not take it."""
        try:
            path, file, begin = self._current or self._next()
            file.write(body)
            file.flush()
        except OSError as error:
            self._end_current()  # nobody knows where in it the next body would begin
            raise TidelakeError(
                f"rows that wait for their watermark cannot be kept in {self._place}: "
                f"{error.strerror}. Give it room, or set TMPDIR to a folder that has some"
            ) from error
        self._wanted[path] += 1
        end = begin + body.size
        self._current = (path, file, end)
        if end >= self._file_bytes:
            self._end_current()
        return Spilled(path, begin, body.size)

    def release(self, spilled: Spilled) -> None:
        path = spilled.path
        self._wanted[path] -= 1
        if not self._wanted[path]:
            if self._current is not None and self._current[0] == path:
                self._end_current()
            del self._wanted[path]
            path.unlink(missing_ok=True)

    def close(self) -> None:
        self._end_current()
        self._wanted.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _next(self) -> tuple[Path, BinaryIO, int]:
        if self._folder is None:
            self._place.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="carry-", dir=self._place))
        self._made += 1
        path = self._folder / f"{self._made}.blocks"
        file = path.open("xb")
        self._wanted[path] = 0
        self._current = (path, file, 0)
        return self._current

    def _end_current(self) -> None:
        if self._current is not None:
            with suppress(OSError):  # of a disk that is full, with the bytes that it did not take
                self._current[1].close()
            self._current = None
