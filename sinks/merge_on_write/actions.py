"""The actions of a Delta log, as values: what a line of a commit says, and what a line must say.

Names and meanings are those of Delta's protocol text. What a foreign writer put into an ``add`` and
we do not understand is kept in ``extra`` and written back, since an ``add`` of the same path
replaces all that was known of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


def _told(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


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
        """Tells apart the vectors that one data file has had."""
        name = f"{self.storage_type}{self.path_or_inline}"
        return name if self.offset is None else f"{name}@{self.offset}"

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


_ADD_FIELDS = frozenset(
    (
        *("path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"),
        "deletionVector",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A live logical file: a Parquet file and the vector of its deleted rows."""

    path: str  # as the log has it: a URI, percent-encoded, relative to the table or absolute
    size: int  # bytes
    modification_time_ms: int
    stats: str | None  # the JSON text as it stands in the log, never parsed and written again
    deletion_vector: DeletionVectorDescriptor | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, str] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields of other features

    @property
    def vector_id(self) -> str | None:
        return None if self.deletion_vector is None else self.deletion_vector.unique_id

    def add(self, *, data_change: bool) -> Json:
        """The action that brings the file into the table."""
        own = _told(modificationTime=self.modification_time_ms, stats=self.stats)
        return {"add": self._fields(data_change) | own}

    def remove(self, now_ms: int, *, data_change: bool) -> Json:
        """The action that takes the file, with exactly this vector, out of the table."""
        own = {"deletionTimestamp": now_ms, "extendedFileMetadata": True}
        return {"remove": self._fields(data_change) | own}

    def _fields(self, data_change: bool) -> Json:
        vector = self.deletion_vector
        return _told(
            path=self.path,
            partitionValues=dict(self.partition_values),
            size=self.size,
            dataChange=data_change,
            tags=None if self.tags is None else dict(self.tags),
            deletionVector=None if vector is None else vector.to_json(),
            **self.extra,
        )

    @classmethod
    def from_add(cls, fields: Mapping[str, Any]) -> DataFile:
        """``fields`` is what stands under ``add``."""
        vector = fields.get("deletionVector")
        return cls(
            path=fields["path"],
            size=fields["size"],
            modification_time_ms=fields["modificationTime"],
            stats=fields.get("stats"),
            deletion_vector=DeletionVectorDescriptor.from_json(vector) if vector else None,
            partition_values=fields.get("partitionValues") or {},
            tags=fields.get("tags"),
            extra={
                name: value
                for name, value in fields.items()
                if name not in _ADD_FIELDS and value is not None
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A logical file that was taken out: its bytes stay until the retention is over."""

    path: str
    deletion_timestamp_ms: int
    deletion_vector: DeletionVectorDescriptor | None
    action: Mapping[str, Any]  # what stands under ``remove``, for the next checkpoint

    @classmethod
    def from_remove(cls, fields: Mapping[str, Any]) -> Tombstone:
        vector = fields.get("deletionVector")
        return cls(
            path=fields["path"],
            deletion_timestamp_ms=fields.get("deletionTimestamp") or 0,
            deletion_vector=DeletionVectorDescriptor.from_json(vector) if vector else None,
            action=fields,
        )

    @property
    def vector_id(self) -> str | None:
        return None if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Which features a reader and a writer of the table must know."""

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
    """The table's schema and properties: ``fields`` is all that stands under ``metaData``."""

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
    """An application's identity and how far it says it is."""

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
