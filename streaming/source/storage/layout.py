"""What the names of a storage sink's files say, and positions in them. Pure.

    metadata                                                         {"checkpoint-ts": …}
    <schema>/meta/schema_<version>_<checksum>.json                   a DDL of the database
    <schema>/<table>/meta/schema_<version>_<checksum>.json           columns from there on, a DDL
    <schema>/<table>/<version>/[<partition>/][<date>/]CDC<index>.csv rows (or .json)
    <schema>/<table>/<version>/[<partition>/][<date>/]meta/CDC.index

With `use-table-id-as-path` a table's folder is `<id>` instead of `<schema>/<table>`, and each
partition of a table is a table of its own: only a schema file says which table that is.

A *part* is where one writer numbers its files: a table's version, a partition of it, and with
`enable-table-across-nodes` a dispatcher (its ID is in the names of its files). So a part only grows
at its end, whatever else happens in the folder. Its positions are

    date (see `Packing`) | index of the file | byte in the file

The part `SCHEMAS` has all schema files; a position there is a version, which is a commit-ts, and a
rank among those of the version (`schema_position`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

from conf.sources.storage_uri import Separator
from coordination.errors import ConfigError
from coordination.model import TSO_LOGICAL_BITS, TableName

METADATA: Final = "metadata"
SCHEMAS: Final = "schema files"
OFFSET_BITS: Final = 30  # of a position: TiCDC's files have 512 MiB at most
_REST_BITS: Final = 33  # of the date and the index
_FIRST_YEAR: Final = 2018
_EASTERNMOST: Final = timedelta(hours=14)  # ahead of UTC
_DATE: Final[Mapping[Separator, re.Pattern[str]]] = {
    "none": re.compile("(?!)"),
    "year": re.compile(r"\d{4}"),
    "month": re.compile(r"\d{4}-\d{2}"),
    "day": re.compile(r"\d{4}-\d{2}-\d{2}"),
}
_DATE_BITS: Final[Mapping[Separator, int]] = {"none": 0, "year": 7, "month": 11, "day": 15}
_DATED: Final = re.compile(r"\d{4}(?:-\d{2}){1,2}")
_VERSION: Final = re.compile(r"\d{1,19}")
_FILE: Final = re.compile(r"CDC(?:_(?P<of>.+)_)?(?P<index>\d{1,20})\.(?:csv|json)")
_SCHEMA_FILE: Final = re.compile(r"schema_(?P<version>\d{1,19})_(?P<checksum>\d{10})\.json")


_RANK_BITS: Final = 3  # of a position in `SCHEMAS`: enough for versions up to the year 2109


def schema_position(version: int, rank: int = 0) -> int:
    return version << _RANK_BITS | min(rank, (1 << _RANK_BITS) - 1)


def schema_version(position: int) -> int:
    return position >> _RANK_BITS


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A file in its part: by date, then index."""

    day: int  # 0 without date folders
    index: int


@dataclass(frozen=True, slots=True)
class DataFile:
    part: str
    place: Place


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """``folder``: of its table or database. ``is_named``: not by a table's ID."""

    folder: str
    version: int
    checksum: int
    is_named: bool = True

    @property
    def name(self) -> TableName | None:
        """The table's; a database's has no table; None where the file alone says it."""
        schema, _, table = self.folder.partition("/")
        return TableName(schema, table) if self.is_named else None

    @property
    def is_of_table(self) -> bool:
        return "/" in self.folder or not self.is_named


@dataclass(frozen=True, slots=True)
class Packing:
    """Positions of parts, how dates are numbered, and how folders are named. ``by_id``: there are
    tables whose folder is their ID; others may be there besides."""

    separator: Separator
    by_id: bool = False

    @property
    def _index_bits(self) -> int:
        return _REST_BITS - _DATE_BITS[self.separator]

    def position(self, place: Place, offset: int) -> int:
        """Raises ConfigError for a number that is too large."""
        if place.index >> self._index_bits or offset >> OFFSET_BITS:
            raise ConfigError(
                f"source-uri: a folder has a file with number {place.index} and {offset} bytes, and"
                f" up to {(1 << self._index_bits) - 1} files of up to {1 << OFFSET_BITS} bytes are "
                f"read where date-separator={self.separator}: raise TiCDC's flush-interval, or "
                "lower its file-size"
            )
        return (place.day << self._index_bits | place.index) << OFFSET_BITS | offset

    def place(self, position: int) -> tuple[Place, int]:
        """The file, and the byte in it."""
        rest, offset = position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
        return Place(rest >> self._index_bits, rest & ((1 << self._index_bits) - 1)), offset

    def day(self, text: str) -> int | None:
        """The number of a date folder; None where it is none."""
        if _DATE[self.separator].fullmatch(text) is None:
            return None
        year, *rest = map(int, text.split("-"))
        try:
            day = date(year, *[*rest, 1, 1][:2])
        except ValueError:
            return None
        if not 0 < year - _FIRST_YEAR < 80:
            return None
        return _NUMBERS[self.separator](day)

    def day_of(self, ts: int) -> int:
        """The last number that the date of a TSO may have, in whatever time zone TiCDC runs."""
        at = datetime.fromtimestamp((ts >> TSO_LOGICAL_BITS) / 1e3, UTC) + _EASTERNMOST
        return _NUMBERS[self.separator](at.date())

    def data_file(self, path: str) -> DataFile | None:
        """None for another file. Raises ConfigError for a date folder that should not be there."""
        inside, _, name = path.rpartition("/")
        found = _FILE.fullmatch(name)
        folder = None if found is None else self._folder(inside)
        if found is None or folder is None:
            return None
        part, day = folder
        if found["of"] is not None:
            part = f"{part}#{found['of']}"
        return DataFile(part, Place(day, int(found["index"])))

    @lru_cache(maxsize=1 << 16)  # noqa: B019  # of a few objects
    def _folder(self, path: str) -> tuple[str, int] | None:
        """The part of a folder's files, and their date. Raises as ``data_file``."""
        folder, day = path.split("/"), 0
        is_dated = self.separator != "none"
        if is_dated and len(folder) > 2 and (number := self.day(folder[-1])) is not None:
            folder.pop()
            day = number
        elif not is_dated and len(folder) > 2 and _DATED.fullmatch(folder[-1]) is not None:
            raise ConfigError(_other_separator(path, folder[-1]))
        elif is_dated and 3 <= len(folder) <= 5 and _VERSION.fullmatch(folder[2]) is not None:
            raise ConfigError(_no_date(path, self.separator))
        if len(folder) == 2 and all(_VERSION.fullmatch(each) for each in folder):
            if not self.by_id:
                raise ConfigError(_BY_ID.format(path=path))
        elif not 3 <= len(folder) <= 4 or not all(map(_VERSION.fullmatch, folder[2:])):
            return None
        return "/".join(folder), day

    def schema_file(self, path: str) -> SchemaFile | None:
        """None for another file."""
        parts = path.split("/")
        found = _SCHEMA_FILE.fullmatch(parts[-1])
        if found is None or len(parts) not in (3, 4) or parts[-2] != "meta":
            return None
        is_named = len(parts) == 4 or not (self.by_id and is_id(parts[0]))
        return SchemaFile(
            "/".join(parts[:-2]), int(found["version"]), int(found["checksum"]), is_named
        )


def is_id(folder: str) -> bool:
    """Whether the name of a folder may be a table's ID."""
    return _VERSION.fullmatch(folder) is not None


def folder_of(part: str) -> str:
    """The folder of a part's table."""
    return "/".join(part.split("/")[: -len(_behind(part))])


def version_of(part: str) -> int:
    return int(_behind(part)[0].partition("#")[0])


def partition_of(part: str) -> str:
    """Empty where the table has none."""
    return "/".join(_behind(part)[1:]).partition("#")[0]


def is_shared(part: str) -> bool:
    """Whether several dispatchers write into its folder: their IDs are in the files' names."""
    return "#" in _behind(part)[-1]


def _behind(part: str) -> list[str]:
    """The version, and the partition; the table's names may have any sign but a slash."""
    folders = part.split("/")
    return folders[1:] if len(folders) == 2 else folders[2:]


_NUMBERS: Final[Mapping[Separator, Callable[[date], int]]] = {
    "none": lambda _: 0,
    "year": lambda day: day.year - _FIRST_YEAR,
    "month": lambda day: (day.year - _FIRST_YEAR) * 12 + day.month,
    "day": lambda day: (day - date(_FIRST_YEAR, 1, 1)).days,
}


_BY_ID: Final = (
    "source-uri: {path} is named by a table's ID: give use-table-id-as-path=true, as TiCDC has it"
)


def _other_separator(path: str, folder: str) -> str:
    meant = {1: "month", 2: "day"}[folder.count("-")]
    return f"source-uri: {path} is in a date folder: give date-separator={meant}, as TiCDC has it"


def _no_date(path: str, separator: str) -> str:
    return (
        f"source-uri: {path} is in no folder of a {separator}: give date-separator as TiCDC has it "
        "(none, year, month or day)"
    )
