"""Which parts of a table's folder may have news, and how they are listed.

A version of a table is closed when the checkpoint-ts has passed the version after it: TiCDC writes
the schema file of a DDL when all rows before it are in files. What comes into a closed version
later was there before, since TiCDC sends rows again after a restart. Files of an open version come
behind the last one that is known; where several dispatchers share a date folder, they come in that
folder and the one before.
"""

from __future__ import annotations

from itertools import pairwise

from sinks.storage.table_storage import Entry, ReadStorage
from streaming.source.storage.layout import (
    DataFile,
    Packing,
    SchemaFile,
    is_shared,
    partition_of,
    version_of,
)

_WHOLE: str = ""  # the "partition" of a table that has none


class TableFolder:
    """For one thread at a time. ``folder``: schema/table, or an ID."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._open: set[int] = set()
        self._closed: set[int] = set()
        self._listed_from = 0  # from this version on by the last listing
        self._shared: set[int] = set()  # versions whose files have dispatchers in their names
        self._last: dict[int, dict[str, str]] = {}  # version -> partition -> path of the last file
        self._folders: dict[tuple[int, str], list[str]] = {}  # the last two with files

    def keep_file(self, file: DataFile, path: str) -> None:
        version, partition = version_of(file.part), partition_of(file.part)
        self._note(version)
        if is_shared(file.part):
            self._shared.add(version)
        last = self._last.setdefault(version, {})
        last[partition] = max(path, last.get(partition, ""))
        folder, known = path.rpartition("/")[0], self._folders.setdefault((version, partition), [])
        if folder not in known:
            known[:] = sorted([*known, folder])[-2:]

    def keep_schema(self, file: SchemaFile) -> None:
        self._note(file.version)

    def close_up_to(self, checkpoint_ts: int) -> None:
        """After a listing. ``checkpoint_ts``: as it was before that."""
        for version, after in pairwise(sorted(self._open)):
            if after <= checkpoint_ts and version >= self._listed_from:
                self._open.discard(version)
                self._closed.add(version)

    def news(self, storage: ReadStorage, packing: Packing) -> list[Entry]:
        """Files of open versions that may be new, and schema files. Some are known."""
        self._listed_from = min(self._open, default=0)
        if not any(self._partitions(each) for each in self._open):
            after = min((self._after(each, _WHOLE) for each in self._open), default="")
            return list(storage.list(f"{self.folder}/", after))
        found = list(storage.list(f"{self.folder}/meta/"))
        for each in found:
            if (schema := packing.schema_file(each.path)) is not None:
                self.keep_schema(schema)
        self._listed_from = min(self._open)
        for version in sorted(self._open):
            at = f"{self.folder}/{version}"
            if not self._partitions(version):
                found += storage.list(f"{at}/", self._after(version, _WHOLE))
                continue
            for name in storage.inside(at).folders:
                found += storage.list(f"{at}/{name}/", self._after(version, name))
        return found

    @property
    def awaited(self) -> set[str]:
        """The files that `news` finds again, unless they are gone."""
        return {path for of in self._open for path in self._last.get(of, {}).values()}

    def _note(self, version: int) -> None:
        if version not in self._closed:
            self._open.add(version)

    def _partitions(self, version: int) -> set[str]:
        return set(self._last.get(version, {})) - {_WHOLE}

    def _after(self, version: int, partition: str) -> str:
        """Behind which path something new may be. The last file comes again: it may have grown."""
        last = self._last.get(version, {}).get(partition)
        if last is None:
            return f"{self.folder}/{version}" if partition == _WHOLE else ""
        if version in self._shared:
            return self._folders[version, partition][0]
        return last[:-1]
