"""What is in the folder, looked at again and again at the price of what is new.

    metadata ─► is its checkpoint-ts another one? ─► databases ─► tables ─► each: what is behind the
                last file that is known of its newest version ─► a `Look`

The checkpoint-ts is read *before* the files are listed: all rows at or below it are in files that
the listing has. A look asks for one file, and lists the databases, the tables of each, and the
new files of each table (of each partition), however many files, dates and versions there are.
The first look lists all, and so does one after the checkpoint-ts has gone back.

TiCDC deletes files by their date, whether they were read or not. So the survey knows where what was
listed and is gone ends (`refuse_gone`); and files that came and went between two looks can only be
where these are a day apart (`blind_spots`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeVar

from conf.sources.storage_uri import StorageSettings
from coordination.model import SEALED_TS, TableName
from coordination.secrets import revealed
from sinks.storage.errors import STORAGE_ERRORS, StorageAway, storage_error
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import StorageOpener
from sinks.storage.table_storage import Entry, ReadStorage
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.positions import Positions
from streaming.source.storage.layout import (
    METADATA,
    SCHEMAS,
    DataFile,
    Packing,
    Place,
    SchemaFile,
    folder_of,
    is_id,
    schema_position,
    version_of,
)
from streaming.source.storage.part_log import Known, PartLog
from streaming.source.storage.schema_files import NotWhole, SchemaText, read_schema_text
from streaming.source.storage.table_folder import TableFolder

AT_ONCE: Final = 16  # requests to an object store side by side
FEW: Final = 4  # so many requests are made one by one
HEAD_BYTES: Final = 4096  # of a part's first file: its first row, or the beginning of that
LEAST_EXPIRY_S: Final = 86_400  # file-expiration-days is a day at least
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Identity:
    """A part is known by its first file, and a hash of that file's first row."""

    place: Place
    row: str

    def __str__(self) -> str:
        return f"{self.place.day}.{self.place.index}:{self.row}"

    def told(self, recorded: str | None) -> str:
        """The identity as it was recorded, where files at the part's beginning were deleted
        since."""
        if recorded is not None and Identity.parse(recorded).place < self.place:
            return recorded
        return str(self)

    @staticmethod
    def parse(text: str) -> Identity:
        at, _, row = text.partition(":")
        day, _, index = at.partition(".")
        return Identity(Place(int(day), int(index)), row)


@dataclass(frozen=True, slots=True)
class Look:
    """``checkpoint_ts``: TiCDC's, 0 where there is no `metadata` yet. ``ends``: of all parts;
    ``identities``: of those with rows."""

    checkpoint_ts: int
    identities: Mapping[str, Identity]
    ends: Mapping[str, int]


class Survey:
    """Thread-safe; who reads its other values holds ``lock``. Raises SourceAway where the storage
    does not answer, StorageRefuses where it never will, and ConfigError."""

    def __init__(self, settings: StorageSettings, storage: ReadStorage | None = None) -> None:
        """``storage``: the folder's, if it is open already."""
        self.settings = settings
        self.packing = Packing(settings.date_separator, settings.by_id)
        self.opener = StorageOpener({name: revealed(name, each) for name, each in settings.options})
        self.lock = threading.RLock()
        self.logs: dict[str, PartLog] = {}
        self.schema_files: dict[SchemaFile, str] = {}  # and their paths
        self.row_bytes = 200.0  # the average; a guess until rows have been read
        self.storage: ReadStorage = storage or self.opener(settings.folder)
        self._tables: dict[str, TableFolder] = {}
        self._schemas_in: dict[str, dict[str, SchemaFile]] = {}  # by folder and path
        self._texts: dict[str, SchemaText] = {}  # of schema files, by path
        self._gaps: set[tuple[str, Place]] = set()  # files that are known to be gone
        self._identities: dict[str, tuple[Known, Identity]] = {}  # with the first file as it was
        self._last: Look | None = None
        self._gone: dict[str, int] = {}  # by part: where the last file ends that is gone
        self._lists_all = False
        self._looked_s = 0.0
        self.blind_spots = 0  # times in which files may have come and gone

    @property
    def last(self) -> Look:
        """The last look; if there is none, one now."""
        return self._last or self.look()

    def look(self, *, anew: bool = False) -> Look:
        """Lists what is new where the checkpoint-ts is another one than at the last look, and where
        there is none; ``anew``: all, whatever it is."""
        with self.lock, answers(self.settings.folder):
            before = self._last
            checkpoint_ts = self._checkpoint_ts(0 if before is None else before.checkpoint_ts)
            self._note_blind_spot(time.time())
            if self._lists_all or anew:
                before = None
            if before is not None and checkpoint_ts == before.checkpoint_ts != 0:
                return before
            is_below = before is None or checkpoint_ts < before.checkpoint_ts
            if is_below or not self._list_news() or self._has_new_gaps():
                self._list_all()
                self._lists_all = False
                self._has_new_gaps()
            for each in self._tables.values():
                each.close_up_to(checkpoint_ts)
            identities = self._told_identities()
            ends = {part: self.logs[part].end for part in identities}
            self._last = Look(
                checkpoint_ts, identities, {SCHEMAS: schema_position(checkpoint_ts), **ends}
            )
            return self._last

    def lost(self, says: str) -> SourceLost:
        """The error. What is there is listed anew then: files may be brought back."""
        self._lists_all = True
        return SourceLost(says)

    def refuse_gone(self, positions: Positions) -> None:
        """Raises SourceLost where rows from these positions on were listed once, and are gone."""
        with self.lock:
            for part in sorted(self._gone.keys() & positions.keys()):
                if positions[part] < self._gone[part]:
                    place, _ = self.packing.place(self._gone[part])
                    raise self.lost(
                        f"{self.settings.folder}/{part}: files up to number {place.index} of their "
                        "date are gone, and were not read to their end: bring them back, or load "
                        "the tables anew. Let file-expiration-days be longer than the changefeed "
                        "may lag or pause"
                    )

    def read_up_to(self, positions: Positions) -> int:
        """All that the last look has found below this ts lies before these positions; 0: not
        known. A row that was sent again may be below."""
        with self.lock:
            least, ends = SEALED_TS, self.last.ends
            for part, end in ends.items():
                if (at := positions.get(part, 0)) < end:
                    found = 0 if part == SCHEMAS else self.logs[part].least_ts(at)
                    least = min(least, found)
            return least

    def cut_at(self, part: str, place: Place, size: int, at: int) -> None:
        """A reader has found that the file, of this size, has no whole row from there on."""
        with self.lock:
            log = self.logs[part]
            log.cut_at(place, size, at)
            if self._last is not None and part in self._last.ends:
                ends = {**self._last.ends, part: log.end}
                self._last = Look(self._last.checkpoint_ts, self._last.identities, ends)

    def schema_texts(self, part: str) -> list[SchemaText]:
        """The texts of a part's own version. Raises SourceAway for one that is being written."""
        version, files = version_of(part), self._schemas_in.get(folder_of(part), {})
        return self._texts_in([path for path, file in files.items() if file.version == version])

    def texts_of(self, name: TableName) -> list[SchemaText]:
        """By version. Raises as `schema_texts`."""
        mine = list(self._schemas_in.get(f"{name.schema}/{name.table}", {}))
        if self.packing.by_id:
            mine += [path for file, path in self.schema_files.items() if not file.is_named]
        found = [each for each in self._texts_in(mine) if each.name == name]
        return sorted(found, key=lambda each: each.version)

    def _texts_in(self, paths: Sequence[str]) -> list[SchemaText]:
        unread = [path for path in paths if path not in self._texts]
        with answers(self.settings.folder):
            texts = self._each(self.storage.read, unread)
        for path, text in zip(unread, texts, strict=True):
            try:
                self._texts[path] = read_schema_text(text)
            except NotWhole as error:
                raise SourceAway(f"{path}: {error}") from error
        return [self._texts[path] for path in paths]

    def _checkpoint_ts(self, before: int) -> int:
        try:
            found = json.loads(self.storage.read(METADATA))["checkpoint-ts"]
        except FileNotFoundError:
            return 0
        except (ValueError, TypeError, KeyError):
            return before  # it is being written
        return found if type(found) is int and 0 <= found < 1 << 63 else before

    def _note_blind_spot(self, now_s: float) -> None:
        if self._looked_s and now_s - self._looked_s > LEAST_EXPIRY_S:
            self.blind_spots += 1
            self._lists_all = True
        self._looked_s = now_s

    def _list_all(self) -> None:
        before = self.logs, self.schema_files, self._schemas_in, self._tables
        try:
            self.logs, self.schema_files, self._schemas_in, self._tables = {}, {}, {}, {}
            self._keep(self.storage.list(""), before[0])
        except BaseException:
            self.logs, self.schema_files, self._schemas_in, self._tables = before
            raise
        self._gone = {part: end for part, end in self._gone.items() if not self._is_back(part, end)}
        for part, log in before[0].items():
            if part in self.logs:
                self.logs[part].take_notes(log)
            if end := log.gone_before(self.logs.get(part)):
                self._gone[part] = max(end, self._gone.get(part, 0))

    def _is_back(self, part: str, end: int) -> bool:
        log, (place, offset) = self.logs.get(part), self.packing.place(end)
        return log is not None and log.size_of(place) >= offset

    def _list_news(self) -> bool:
        """False where a file is gone that was there."""
        folders = self.storage.inside("").folders
        by_id = {each for each in folders if self.packing.by_id and is_id(each)}
        schemas = [each for each in folders if each not in by_id]
        inside = self._each(self.storage.inside, schemas)
        pairs = zip(schemas, inside, strict=True)
        names = by_id | {f"{s}/{t}" for s, of in pairs for t in of.folders if t != "meta"}
        if not names.issuperset(self._tables):
            return False
        known = [self._tables.get(each) or TableFolder(each) for each in sorted(names)]
        found = self._each(lambda of: of.news(self.storage, self.packing), known)
        for each in found:
            self._keep(each)
        of_schemas = self._each(lambda of: [*self.storage.list(f"{of}/meta/")], schemas)
        for each in of_schemas:
            self._keep(each)
        return all(
            of.awaited <= {entry.path for entry in each}
            for of, each in zip(known, found, strict=True)
            if of.folder in self._tables
        )

    def _has_new_gaps(self) -> bool:
        """Whether files are missing between others. A folder that is listed while files come into
        it may show a later file and not the one before."""
        found = set[tuple[str, Place]]()
        for part, log in self.logs.items():
            if log.has_gap and (place := log.missing(log.beginning)) is not None:
                found.add((part, place))
        news = found - self._gaps
        self._gaps |= found
        return bool(news)

    def _keep(self, entries: Iterable[Entry], before: Mapping[str, PartLog] | None = None) -> None:
        """``entries``: by path, so that the last one of a part is its newest file. ``before``: what
        was known if that is not what is kept. Raises SourceAway for a file that is shorter now."""
        last: tuple[DataFile, str] | None = None
        for each in entries:
            if (file := self.packing.data_file(each.path)) is not None:
                log = self.logs.get(file.part)
                if log is None:
                    log = self.logs[file.part] = PartLog(self.packing)
                known = (self.logs if before is None else before).get(file.part)
                if known is not None and each.size < known.size_of(file.place):
                    raise SourceAway(
                        f"{self.settings.folder}/{each.path} had {known.size_of(file.place)} bytes "
                        f"and has {each.size} now: it is awaited that TiCDC writes it again"
                    )
                log.put(file.place, Known(each.path, each.size, each.modified_ms))
                if last is not None and (last[0].part, last[0].place.day) != (
                    file.part,
                    file.place.day,
                ):
                    self._table(folder_of(last[0].part)).keep_file(*last)
                last = file, each.path
            elif (schema := self.packing.schema_file(each.path)) is not None:
                self.schema_files[schema] = each.path
                self._schemas_in.setdefault(schema.folder, {})[each.path] = schema
                if schema.is_of_table:
                    self._table(schema.folder).keep_schema(schema)
        if last is not None:
            self._table(folder_of(last[0].part)).keep_file(*last)

    def _table(self, folder: str) -> TableFolder:
        return self._tables.setdefault(folder, TableFolder(folder))

    def _told_identities(self) -> dict[str, Identity]:
        unknown = [
            (part, log)
            for part, log in self.logs.items()
            if part not in self._identities or self._identities[part][0] != log.first
        ]
        for (part, log), found in zip(unknown, self._each(self._identity, unknown), strict=True):
            if found is None:  # its first row is being written
                self._identities.pop(part, None)
            else:
                self._identities[part] = log.first, found
        known = self._identities
        return {part: known[part][1] for part in sorted(self.logs) if part in known}

    def _identity(self, of: tuple[str, PartLog]) -> Identity | None:
        """None while the first row is being written. Where another file comes behind, the first one
        stays as it is, whole or not."""
        first, size = of[1].first, min(of[1].first.size, HEAD_BYTES)
        head = self.storage.read_range(first.path, 0, size) if size else b""
        row, end, _ = head.partition(b"\n")
        if not end and len(head) < HEAD_BYTES and of[1].is_one_file:
            return None
        return Identity(of[1].first_place, sha256(row).hexdigest()[:16])

    def _each(self, ask: Callable[[A], B], of: Sequence[A]) -> list[B]:
        if isinstance(self.storage, LocalStorage) or len(of) < FEW:
            return [ask(each) for each in of]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="survey") as threads:
            return list(threads.map(ask, of))


@contextmanager
def answers(folder: str) -> Iterator[None]:
    """Errors of the storage become those of a source."""
    try:
        yield
    except STORAGE_ERRORS as error:
        found = storage_error("read", folder, error)
        if isinstance(found, StorageAway):
            raise SourceAway(str(found)) from error
        raise found from error


@lru_cache(maxsize=8)
def survey_of(settings: StorageSettings) -> Survey:
    """All sources of a process that read one folder share its survey."""
    return Survey(settings)
