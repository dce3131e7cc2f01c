"""The decoder of the rows in a folder's files, by the folder's protocol, and single rows again."""

from __future__ import annotations

from collections.abc import Sequence

from conf.sources.storage_uri import StorageSettings
from streaming.protocols.csv.decoder import first_row
from streaming.protocols.decoders import decoder_of
from streaming.source.storage.csv_rows import CsvRows
from streaming.source.storage.json_rows import JsonRows
from streaming.source.storage.layout import SCHEMAS, schema_version
from streaming.source.storage.slices_task import RowDecoder
from streaming.source.storage.survey import Survey, answers


def row_decoder(settings: StorageSettings, *, start_ts: int) -> RowDecoder:
    if settings.protocol == "csv":
        return CsvRows(start_ts)
    return JsonRows(decoder_of(settings.protocol, start_ts=start_ts))


def rows_at(survey: Survey, part: str, positions: Sequence[int]) -> list[bytes | None]:
    """The bytes of the rows at these places, as they are in a dead letter; None: gone."""
    return [_row_at(survey, part, each) for each in positions]


def _row_at(survey: Survey, part: str, position: int) -> bytes | None:
    with survey.lock, answers(survey.settings.folder):
        if part == SCHEMAS:
            paths = (
                p
                for file, p in survey.schema_files.items()
                if file.version == schema_version(position)
            )
            path = next(paths, None)
            return None if path is None else survey.storage.read(path)
        place, offset = survey.packing.place(position)
        log = survey.logs.get(part)
        path = None if log is None else log.path_of(place)
        if log is None or path is None:
            return None
        text = survey.storage.read_range(path, offset, log.size_of(place))
    if survey.settings.csv is not None:
        return first_row(text, survey.settings.csv)
    return text.partition(b"\n")[0].removesuffix(b"\r")
