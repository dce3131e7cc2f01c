"""A folder of TiCDC's storage sink as a source (`layout.py` has its parts and positions).

W is the checkpoint-ts of the file ``metadata``, of all parts alike: it is read before the files are
listed, so it holds when all that was listed then has been read. Rows beyond it are read too. Before
that W is the least commit-ts of all rows that were listed and not read, where that is known: a
reader finds it out for a large backlog. What is listed later is above the checkpoint-ts, or was
sent again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from conf.sources.storage_uri import StorageSettings
from coordination.errors import ConfigError
from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.clocks import latest_ts, shown_ts
from streaming.source.contract import (
    RAW,
    Identities,
    Kept,
    Places,
    RecordedPlace,
    SourceChanged,
    SourceClock,
    SourceLost,
    SourceMoved,
    SourceShape,
)
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits, Marks, Stored
from streaming.source.resolved.watermarks import Watermarks
from streaming.source.storage.layout import SCHEMAS, folder_of, schema_version, version_of
from streaming.source.storage.row_decoder import row_decoder, rows_at
from streaming.source.storage.survey import LEAST_EXPIRY_S, Look, Survey, survey_of
from streaming.source.storage.table_heads import NOTHING_TOLD, ToldColumns

if TYPE_CHECKING:
    from streaming.jobs.port import Jobs
    from streaming.source.storage.reader import StorageReader

logger = logging.getLogger(__name__)

_FOLDERS: Final = "the folder's own"  # the identity of `SCHEMAS`


class StorageSource:
    """See `contract.Source`."""

    server = "the storage"
    is_numbered = False

    def __init__(self, settings: StorageSettings, told: ToldColumns = NOTHING_TOLD) -> None:
        """``told``: of the columns of csv."""
        self._settings = settings
        self._told = told
        self.has_end = settings.has_end
        self._opened: Survey | None = None
        self._kept_to: Identities = {}
        self._far_ts = 0
        self._blind_spots = 0

    @property
    def _survey(self) -> Survey:
        """One for the source and its readers."""
        if self._opened is None:
            self._opened = survey_of(self._settings)
        return self._opened

    def close(self) -> None: ...

    def keep_to(self, identities: Identities) -> None:
        self._kept_to = identities
        self._blind_spots = self._survey.blind_spots

    def shape(self) -> SourceShape:
        return SourceShape(self._identities(self._survey.look()))

    def goes_on(
        self,
        place: RecordedPlace,
        shape: SourceShape,
        reached_ts: int,  # noqa: ARG002
    ) -> RecordedPlace:
        """A part that is gone was read up to its watermark. Above that it may have got files."""
        self.check_identities(place.identities, shape)
        for part in place.positions.keys() - shape.parts:
            mark = place.marks.get(part)
            if mark is None or place.positions[part] <= mark.position:
                raise self._survey.lost(
                    f"{self._settings.folder}/{part} is gone, and rows in it were not applied yet: "
                    "bring its files back, or load the tables anew"
                )
            if part != SCHEMAS and not self._is_closed(part, mark.ts) and self._is_past(mark.ts):
                raise _expired(f"{self._settings.folder}/{part}", mark.ts)
        return place

    def check_unchanged(self, start: SourceShape) -> None:
        now = self.shape()
        self.check_identities(start.identities, now)
        self._refuse_news(now.parts - start.parts)

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        for part, identity in recorded.items():
            if shape.identities.get(part, identity) != identity:
                raise self._survey.lost(
                    f"{self._settings.folder}/{part} has other rows than this changefeed has read: "
                    "give the earlier folder, or give this one a changefeed-id and a warehouse of "
                    "its own"
                )

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:
        look = self._survey.look()
        if any(at > look.ends.get(part, at) for part, at in positions.items() if part != SCHEMAS):
            look = self._survey.look(anew=True)  # another capture has looked later
        for part, at in sorted(positions.items()):
            if part != SCHEMAS and part in look.ends and at > look.ends[part]:
                raise self._survey.lost(
                    f"{self.place(part, at)} was read, and is not there any more: bring the files "
                    "back, or load the tables anew"
                )
            self._refuse_gap(part, at)
            if checkpoint_ts and self._is_dated_before(part, at) and self._is_past(checkpoint_ts):
                raise _expired(self.place(part, at), checkpoint_ts)

    def begin_at(self, shape: SourceShape, low_water: Positions) -> dict[str, int]:
        first = self.beginnings(shape.parts - low_water.keys())
        for part, at in first.items():
            if part != SCHEMAS and (place := self._survey.packing.place(at)[0]).index > 1:
                raise self._survey.lost(
                    f"{self._settings.folder}/{part} is new and begins with file {place.index} "
                    "already: the changefeed starts again, and looks whether anything is missing"
                )
        begin = {part: (low_water if part in low_water else first)[part] for part in shape.parts}
        for part, at in begin.items():
            self._refuse_gap(part, at)
        return begin

    def refuse_a_hole(
        self, first: Positions, *, checkpoint_ts: int, reached_ts: int | None
    ) -> None:
        """A first file with a higher number than 1 has had others before it. All rows in those are
        older than the first one that is left. With dates, numbers tell this of one date alone."""
        late = []
        with self._survey.lock:
            for part in sorted(first.keys() & self._survey.logs.keys()):
                log = self._survey.logs[part]
                oldest_ts = log.first.modified_ms << TSO_LOGICAL_BITS
                if log.first_place.index > 1 and checkpoint_ts < oldest_ts:
                    raise self._survey.lost(
                        f"{self._settings.folder}/{log.first.path} is the first file of its folder "
                        "that is left, and files before it may have rows above the checkpoint "
                        f"{reached_ts or checkpoint_ts}: load the tables anew, and begin at "
                        f"{shown_ts(oldest_ts)} or later (start-ts {oldest_ts})"
                    )
                version_day = self._survey.packing.day_of(version_of(part))
                if log.first_place.day > version_day and checkpoint_ts < oldest_ts:
                    late.append(part)
        if late:
            more = f" (so do {len(late) - 1} more)" if len(late) > 1 else ""
            logger.warning(
                "%s/%s begins at a later date than the table's version%s. If files of earlier dates"
                " were deleted (file-expiration-days), their rows are missing: load the tables then"
                " before anything is streamed",
                *(self._settings.folder, late[0], more),
            )

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        with self._survey.lock:
            logs = self._survey.logs
            return {part: logs[part].beginning if part in logs else 0 for part in parts}

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        look = self._survey.look()
        return {part: look.ends[part] for part in parts if part in look.ends}

    def limits(self, shape: SourceShape, recorded: Marks) -> Watermarks:
        return Watermarks(parts=shape.parts, recorded=recorded)

    def settled(
        self,
        shape: SourceShape,
        limits: Limits,
        position: Positions,
        stored: Stored,  # noqa: ARG002
    ) -> Limits:
        """Raises SourceChanged where there are new parts, which is noticed here alone."""
        assert isinstance(limits, Watermarks)
        with self._survey.lock:
            look = self._survey.last
            self._survey.refuse_gone(position)
            if self._survey.blind_spots > self._blind_spots:
                raise SourceMoved(
                    f"{self._settings.folder} was not looked at for more than a day, and files may "
                    "have come and gone meanwhile: the changefeed begins again, and looks whether "
                    "any is missing"
                )
        self._refuse_news({SCHEMAS, *look.identities} - shape.parts)
        if look.checkpoint_ts <= limits.global_ts or not self._is_believed(look.checkpoint_ts):
            return limits
        ts = min(look.checkpoint_ts, self._survey.read_up_to(position))
        if ts <= limits.global_ts:
            return limits
        marks = {
            part: RecordedWatermark(ts=ts, position=position.get(part, 0) - 1)
            for part in shape.parts
        }
        return limits.advance(marks, position)

    def reach(self, ends: Positions, stored: Stored) -> Positions:  # noqa: ARG002
        return ends

    def distance(self, begin: Positions, end: Positions) -> int:
        with self._survey.lock:
            logs, found = self._survey.logs, 0.0
            for part, at in end.items():
                if part in logs and begin.get(part, at) < at:
                    size = logs[part].bytes_before(at) - logs[part].bytes_before(begin[part])
                    found += max(1.0, size / self._survey.row_bytes)
            return int(found)

    def clock(self) -> SourceClock:
        checkpoint_ts = self._survey.last.checkpoint_ts
        return SourceClock(newest_ms=(checkpoint_ts >> TSO_LOGICAL_BITS) or None)

    def kept(self, positions: Positions) -> Kept | None:  # noqa: ARG002
        return None

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        self.check_identities(identities, self.shape())
        for part, positions in sorted(places.items()):
            at = sorted(set(positions))
            values = rows_at(self._survey, part, at)
            there = [(each, value) for each, value in zip(at, values, strict=True) if value]
            columns = [
                pa.repeat(pa.scalar(part), len(there)),
                pa.array([each for each, _ in there], pa.int64()),
                pa.array([value for _, value in there], pa.large_binary()),
            ]
            yield pa.table(columns, schema=RAW)

    def place(self, part: str, position: int) -> str:
        if part == SCHEMAS:
            return (
                f"the schema files of version {schema_version(position)} in {self._settings.folder}"
            )
        place, offset = self._survey.packing.place(position)
        with self._survey.lock:
            log = self._survey.logs.get(part)
            path = None if log is None else log.path_of(place)
        name = path or f"{part} file {place.index}"
        return f"{self._settings.folder}/{name} byte {offset}"

    def unlogged(self) -> Sequence[TableName]:
        return ()

    def held_back(self, parts: Iterable[str]) -> str | None: ...

    def tell_of(self, shape: SourceShape, begin: Positions) -> None: ...

    def end_ts(self) -> Ts | None:
        """The checkpoint-ts, of a folder that gets nothing more."""
        if not self.has_end:
            return None
        checkpoint_ts = self._survey.look().checkpoint_ts
        if not checkpoint_ts:
            raise ConfigError(
                f"source-uri: {self._settings.folder} has no file `metadata` with a checkpoint-ts, "
                "so no row is known to be complete"
            )
        return Ts(checkpoint_ts)

    def reader(self, jobs: Jobs, *, start_ts: int, name: str) -> StorageReader:
        from streaming.source.storage.reader import StorageReader  # Spark is up by then

        decode = row_decoder(self._settings, start_ts=start_ts)
        return StorageReader(
            jobs, self._survey, decode, start_ts=start_ts, name=name, told=self._told
        )

    def _identities(self, look: Look) -> dict[str, str]:
        told = {part: each.told(self._kept_to.get(part)) for part, each in look.identities.items()}
        return {SCHEMAS: _FOLDERS, **told}

    def _refuse_gap(self, part: str, at: int) -> None:
        with self._survey.lock:
            log = self._survey.logs.get(part)
            gone = None if log is None else log.missing(at)
        if gone is not None:
            raise self._survey.lost(
                f"{self._settings.folder}/{part}: file {gone.index} is gone before it was applied: "
                "bring it back, or load the tables anew"
            )

    def _is_dated_before(self, part: str, at: int) -> bool:
        """Whether all files of the position's date are gone."""
        with self._survey.lock:
            log = self._survey.logs.get(part)
            return log is not None and self._survey.packing.place(at)[0].day < log.first_place.day

    def _is_closed(self, part: str, ts: int) -> bool:
        """Whether the table had a later version by then, so that the part got nothing more."""
        with self._survey.lock:
            folder, version = folder_of(part), version_of(part)
            later = {each.version for each in self._survey.schema_files if each.folder == folder}
            later |= {version_of(each) for each in self._survey.logs if folder_of(each) == folder}
            return any(version < each <= ts for each in later)

    def _is_past(self, ts: int) -> bool:
        """Whether files with rows above a ts may have expired. TiCDC deletes by date, in the whole
        folder: not while a file is there that is as old, and not within a day."""
        if ts >= int((time.time() - LEAST_EXPIRY_S) * 1e3) << TSO_LOGICAL_BITS:
            return False
        with self._survey.lock:
            oldest = (each.first.modified_ms for each in self._survey.logs.values())
            return all(each << TSO_LOGICAL_BITS > ts for each in oldest)

    def _is_believed(self, ts: int) -> bool:
        if ts <= latest_ts(time.time() * 1e3):
            return True
        if ts != self._far_ts:
            self._far_ts = ts
            logger.warning(
                "%s/metadata has the checkpoint-ts %d (%s), which is more than a minute ahead of "
                "this machine's clock: it does not count",
                *(self._settings.folder, ts, shown_ts(ts)),
            )
        return False

    def _refuse_news(self, parts: Iterable[str]) -> None:
        if news := sorted(parts):
            more = f" and {len(news) - 1} more" if len(news) > 1 else ""
            raise SourceChanged(f"new folder {news[0]}{more}: reading it too")


def _expired(what: str, ts: int) -> SourceLost:
    return SourceLost(
        f"{what} is gone, all files that are left are younger than {shown_ts(ts)}, and all was "
        "read up to there: later files may have been deleted before they were applied. Load the "
        "tables anew, and let file-expiration-days be longer than any pause"
    )
