"""The decoder of the rows in a folder's files, by the folder's protocol, and single rows again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from conf.sources.storage_uri import StorageSettings
from sinks.storage.table_storage import ReadStorage
from streaming.protocols.csv.decoder import first_row
from streaming.protocols.decoders import decoder_of
from streaming.source.storage.csv_rows import CsvRows
from streaming.source.storage.json_rows import JsonRows
from streaming.source.storage.layout import SCHEMAS, schema_version
from streaming.source.storage.slices_task import RowDecoder
from streaming.source.storage.survey import Survey, answers

ROW_BYTES: Final = 64 << 10  # that a row takes, or more
PIECE_BYTES: Final = 4 << 20  # of a file, read at once


def row_decoder(settings: StorageSettings, *, start_ts: int) -> RowDecoder:
    if settings.protocol == "csv":
        return CsvRows(start_ts)
    return JsonRows(decoder_of(settings.protocol, start_ts=start_ts))


def rows_at(survey: Survey, part: str, positions: Sequence[int]) -> list[bytes | None]:
    """The bytes of the rows at these places, as they are in a dead letter; None: gone. Each file is
    read once, however many rows of it are asked for."""
    with answers(survey.settings.folder):
        if part == SCHEMAS:
            return [_schema_at(survey, each) for each in positions]
        found = dict[int, bytes | None]()
        by_file = groupby(sorted(positions), key=lambda each: survey.packing.place(each)[0])
        for place, of in by_file:
            with survey.lock:
                log = survey.logs.get(part)
                path = None if log is None else log.path_of(place)
                size = 0 if log is None else log.size_of(place)
            if path is None:
                continue
            file = _File(survey.storage, path, size)
            for each in of:
                found[each] = _row_at(file, survey.packing.place(each)[1], survey.settings)
    return [found.get(each) for each in positions]


def _schema_at(survey: Survey, position: int) -> bytes | None:
    with survey.lock:
        paths = (
            path
            for file, path in survey.schema_files.items()
            if file.version == schema_version(position)
        )
        path = next(paths, None)
    return None if path is None else survey.storage.read(path)


class _File:
    """Reads a file forwards, in pieces."""

    def __init__(self, storage: ReadStorage, path: str, size: int) -> None:
        self._storage, self._path, self.size = storage, path, size
        self._text, self._begin = b"", 0

    def text(self, begin: int, end: int) -> bytes:
        """``begin`` rises from call to call."""
        if end > self._begin + len(self._text):
            until = min(self.size, max(end, begin + PIECE_BYTES))
            self._text = self._storage.read_range(self._path, begin, until)
            self._begin = begin
        return self._text[begin - self._begin : end - self._begin]


def _row_at(file: _File, begin: int, settings: StorageSettings) -> bytes | None:
    length = ROW_BYTES
    while begin < file.size:
        end = min(file.size, begin + length)
        text = file.text(begin, end)
        if settings.csv is not None:
            row = first_row(text, settings.csv, is_whole=end == file.size)
        else:
            line, ends, _ = text.partition(b"\n")
            row = line.removesuffix(b"\r") if ends or end == file.size else None
        if row is not None or end == file.size:
            return row
        length *= 4
    return None
