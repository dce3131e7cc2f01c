"""The actions of a Delta log as values, read from the lines of a commit and written to them.

Names and meanings are those of Delta's protocol. Fields of an ``add`` that another writer wrote and
that we do not know are written back, since a new ``add`` of the same path replaces everything that
was known of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps makes one each time


def _told(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _vector_id(storage_type: str, path_or_inline: str, offset: int | None) -> str:
    name = f"{storage_type}{path_or_inline}"
    return name if offset is None else f"{name}@{offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorDescriptor:
    """Where the set of deleted ordinals of one data file is kept."""

    storage_type: str  # u: a file named by a UUID beneath the table; p: absolute path; i: inline
    path_or_inline: str
    offset: int | None  # of the vector in its file, in bytes; None where inline
    size_in_bytes: int
    cardinality: int

    @property
    def unique_id(self) -> str:
        """The ID by which the vectors of one data file, over time, are told apart."""
        return _vector_id(self.storage_type, self.path_or_inline, self.offset)

    def to_json(self) -> Json:
        return _told(
            storageType=self.storage_type,
            pathOrInlineDv=self.path_or_inline,
            offset=self.offset,
            sizeInBytes=self.size_in_bytes,
            cardinality=self.cardinality,
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DeletionVectorDescriptor:
        return cls(
            storage_type=fields["storageType"],
            path_or_inline=fields["pathOrInlineDv"],
            offset=fields.get("offset"),
            size_in_bytes=fields["sizeInBytes"],
            cardinality=fields["cardinality"],
        )


@dataclass(frozen=True, slots=True)
class LogFile:
    """A logical file: a Parquet file and the vector of its deleted rows. ``fields`` are all fields
    under ``add`` or ``remove``, also those of other writers that we do not know."""

    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The path as the log has it: a percent-encoded URI, relative to the table or absolute."""
        return str(self.fields["path"])

    @property
    def deletion_vector(self) -> DeletionVectorDescriptor | None:
        vector = self.fields.get("deletionVector")
        return DeletionVectorDescriptor.from_json(vector) if vector else None

    @property
    def vector_id(self) -> str | None:
        vector = self.fields.get("deletionVector")
        if not vector:
            return None
        return _vector_id(vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


class DataFile(LogFile):
    """A logical file that is in the table."""

    __slots__ = ()

    @classmethod
    def new(cls, *, path: str, size: int, modification_time_ms: int, stats: str) -> DataFile:
        """A new file of ``size`` bytes. ``stats``: its statistics as JSON text for the log."""
        of_file = {"path": path, "partitionValues": {}, "size": size, "stats": stats}
        return cls({**of_file, "modificationTime": modification_time_ms})

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return int(self.fields["size"])

    @property
    def stats(self) -> str | None:
        """The statistics as the log has them: JSON text that is never parsed and written again,
        since that might round bounds."""
        stats: str | None = self.fields.get("stats")
        return stats

    def changed(self, **fields: Any) -> DataFile:
        """The same file with other fields of its ``add``."""
        return DataFile(_told(**{**self.fields, **fields}))

    def add(self, *, data_change: bool) -> Json:
        """The action that brings the file into the table."""
        return {"add": {**self.fields, "dataChange": data_change}}

    def remove(self, now_ms: int, *, data_change: bool) -> Json:
        """The action that takes the file, with exactly this vector, out of the table."""
        known = {n: v for n, v in self.fields.items() if n not in ("modificationTime", "stats")}
        own = {"deletionTimestamp": now_ms, "extendedFileMetadata": True, "dataChange": data_change}
        return {"remove": known | own}

    @classmethod
    def from_add(cls, fields: Mapping[str, Any]) -> DataFile:
        """``fields``: the content of ``add``."""
        known = _told(**fields)
        known.pop("dataChange", None)
        return cls({"partitionValues": {}, **known})


class Tombstone(LogFile):
    """A logical file that was removed from the table: its bytes stay until retention is over."""

    __slots__ = ()

    @property
    def deletion_timestamp_ms(self) -> int:
        return int(self.fields.get("deletionTimestamp") or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The versions and features that a reader and a writer of the table must know."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None

    @property
    def features(self) -> frozenset[str]:
        return (self.reader_features or frozenset()) | (self.writer_features or frozenset())

    def to_json(self) -> Json:
        reader, writer = self.reader_features, self.writer_features
        fields = _told(
            minReaderVersion=self.min_reader_version,
            minWriterVersion=self.min_writer_version,
            readerFeatures=None if reader is None else sorted(reader),
            writerFeatures=None if writer is None else sorted(writer),
        )
        return {"protocol": fields}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Protocol:
        def features(name: str) -> frozenset[str] | None:
            return None if fields.get(name) is None else frozenset(fields[name])

        return cls(
            min_reader_version=fields["minReaderVersion"],
            min_writer_version=fields["minWriterVersion"],
            reader_features=features("readerFeatures"),
            writer_features=features("writerFeatures"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The table's schema and properties: ``fields`` are all fields under ``metaData``."""

    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def schema(self) -> Json:
        """Delta's JSON schema: ``{"type": "struct", "fields": [...]}``."""
        found: Json = json.loads(self.fields["schemaString"])
        return found

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.fields.get("partitionColumns") or ())

    @property
    def configuration(self) -> Mapping[str, str]:
        return self.fields.get("configuration") or {}

    def to_json(self) -> Json:
        return {"metaData": dict(self.fields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTransaction:
    """A transaction identity: an application's ID, and the last version that it has committed."""

    app_id: str
    version: int
    last_updated_ms: int | None = None

    def to_json(self) -> Json:
        return {
            "txn": _told(appId=self.app_id, version=self.version, lastUpdated=self.last_updated_ms)
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AppTransaction:
        return cls(
            app_id=fields["appId"],
            version=fields["version"],
            last_updated_ms=fields.get("lastUpdated"),
        )
