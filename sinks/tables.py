"""Target tables: looked at and sealed through delta-rs without a Spark job (made: ``creation``).

What a later owner can no longer read from the stream stands in the table's properties (rule 5):
whose table it is, in which incarnation and generation, by which DDL, its columns and key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from coordination.errors import TidelakeError, TryAgain
from coordination.model import SEALED_TS, TableName, Ts
from sinks.schema import TableSchema
from sinks.storage_errors import is_storage_error, one_line, one_sentence, storage_error

CHANGEFEED = "tidelake.changefeed"
INCARNATION = "tidelake.incarnation"
GENERATION = "tidelake.generation"
KEY = "tidelake.key"
SCHEMA = "tidelake.schema"
DDL = "tidelake.ddl"
ALTERED = "tidelake.altered"  # the newest DDL that the table's shape holds
DROPPED = "tidelake.dropped"  # the newest DROP TABLE of it; a later CREATE TABLE makes it again
LAST_DDL = "tidelake.last-ddl"  # which its present writer has carried out: app ID, commit-ts, order
WRITER = "tidelake.writer"  # the app ID that may write since the last seal
SHOWN = "tidelake.shown"  # what the table held when it was rewound below it: a TSO

ESCAPED_IN_PATHS = frozenset('%/\\`~"<>|')  # delta-rs reads %2F as "/", and "\" as "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlIdentity:
    """Which DDL made a table, or altered it: commit-ts, and its order among the DDLs there."""

    commit_ts: Ts
    order: int
    query: str

    def to_json(self) -> str:
        parts = {"commit_ts": self.commit_ts, "order": self.order, "query": self.query}
        return json.dumps(parts, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> DdlIdentity:
        return cls(**json.loads(text))

    @property
    def position(self) -> tuple[Ts, int]:
        return self.commit_ts, self.order

    def same_as(self, other: DdlIdentity | None) -> bool:
        """The position in the stream is the identity: the text may have been rewritten."""
        return other is not None and self.position == other.position


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """One look at a table's log: version, identities and properties all belong to that version."""

    handle: DeltaTable
    version: int
    properties: Mapping[str, str]
    features: frozenset[str]

    def identity(self, app_id: str) -> Ts | None:
        """The limit of this app ID's last commit; SEALED_TS when it may never write again."""
        version = self.handle.transaction_version(app_id)
        return None if version is None else Ts(version)

    @property
    def changefeed_id(self) -> str | None:
        return self.properties.get(CHANGEFEED)

    @property
    def incarnation(self) -> int | None:
        return _number(self.properties.get(INCARNATION))

    @property
    def generation(self) -> int | None:
        return _number(self.properties.get(GENERATION))

    @property
    def schema(self) -> TableSchema | None:
        text = self.properties.get(SCHEMA)
        return None if text is None else TableSchema.from_json(text)

    @property
    def ddl(self) -> DdlIdentity | None:
        text = self.properties.get(DDL)
        return None if text is None else DdlIdentity.from_json(text)

    def last_ddl_ts(self, app_id: str) -> Ts:
        """Of the last DDL that this writer has carried out on it; 0: of none."""
        writer, commit_ts, _ = json.loads(self.properties.get(LAST_DDL, '["", 0, 0]'))
        return Ts(commit_ts if writer == app_id else 0)

    @property
    def shape_ts(self) -> Ts:
        """Of the DDL that its shape is of."""
        text = self.properties.get(ALTERED) or self.properties.get(DDL)
        return Ts(0 if text is None else DdlIdentity.from_json(text).commit_ts)

    @property
    def is_dropped(self) -> bool:
        """By a DROP TABLE, and not made again since: it has no rows, its name is free."""
        return is_dropped(self.properties)

    @property
    def shown_ts(self) -> Ts:
        """The table may show changes up to here, whatever its identity says: it was rewound."""
        return Ts(_number(self.properties.get(SHOWN)) or 0)


def is_dropped(properties: Mapping[str, str]) -> bool:
    if DROPPED not in properties:
        return False
    made, dropped = (DdlIdentity.from_json(properties[name]) for name in (DDL, DROPPED))
    return dropped.position > made.position


def table_uri(warehouse: str, name: TableName) -> str:
    """``<warehouse>/<schema>/<table>``; characters that a path cannot keep are written ``~XX``."""
    return f"{warehouse}/{_path_part(name.schema)}/{_path_part(name.table)}"


def ownership(
    *, changefeed_id: str, incarnation: int, generation: int, ddl: DdlIdentity
) -> dict[str, str]:
    """The properties that say whose table it is and where it came from: ``creation.create`` takes
    them.
    """
    return {
        CHANGEFEED: changefeed_id,
        INCARNATION: str(incarnation),
        GENERATION: str(generation),
        DDL: ddl.to_json(),
    }


def open_table(uri: str, storage_options: Mapping[str, str]) -> DeltaTable | None:
    """A fresh handle at the newest version, or None where there is no Delta table."""
    try:
        with one_sentence("read the Delta log of", uri):
            return DeltaTable(uri, storage_options=dict(storage_options) or None)
    except TableNotFoundError:
        return None


def state_of(handle: DeltaTable) -> TargetState:
    """What a handle shows, without reading anything again."""
    protocol = handle.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return TargetState(
        handle=handle,
        version=handle.version(),
        properties=handle.metadata().configuration,
        features=frozenset(features),
    )


def inspect(uri: str, storage_options: Mapping[str, str]) -> TargetState | None:
    """The table as of now, or None where there is none; a few milliseconds, no Spark job."""
    handle = open_table(uri, storage_options)
    return None if handle is None else state_of(handle)


def seal(
    uri: str,
    old_app_ids: Sequence[str],
    new_app_id: str,
    begin: Callable[[Ts], Ts],
    storage_options: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
) -> TargetState:
    """End the old app IDs' right to write and begin the new one's, in one commit.

    ``begin`` gives the new one's start-ts for what the old ones have reached (0: nothing), as the
    very version says that the commit follows: TryAgain when another commit came between. The commit
    changes the table's metadata, so that a Spark write that is under way conflicts with it, and
    carries ``properties`` (a new incarnation or generation). Returns the sealed table.
    """
    handle = open_table(uri, storage_options)
    if handle is None:
        raise TidelakeError(f"cannot seal {uri}: there is no Delta table any more; restore it")
    found = state_of(handle)
    open_ids = [app for app in old_app_ids if found.identity(app) != SEALED_TS]
    begun = found.identity(new_app_id)
    if not open_ids and begun is not None:
        return found
    reached = Ts(max((found.identity(app) or 0 for app in open_ids), default=0))
    start_ts = Ts(max(begin(reached), begun or 0))
    identities = [Transaction(app, SEALED_TS) for app in open_ids]
    commit = CommitProperties(
        app_transactions=[*identities, Transaction(new_app_id, start_ts)],
        max_commit_retries=0,
        custom_metadata={"userMetadata": json.dumps({"sealed": open_ids, "writer": new_app_id})},
    )
    shown = {SHOWN: str(max(reached, found.shown_ts))} if reached > start_ts else {}
    try:
        with one_sentence("seal", uri):
            handle.alter.set_table_properties(
                {**(properties or {}), WRITER: new_app_id, **shown},
                raise_if_not_exists=False,
                commit_properties=commit,
            )
    except CommitFailedError as error:
        raise refused(uri, error) from error
    return state_of(handle)


def refused(uri: str, error: CommitFailedError) -> TidelakeError:
    """A commit that delta-rs did not make: a lost compare-and-set, or a table it cannot write."""
    message = one_line(error)
    if "nsupported" in message:
        return TidelakeError(
            f"delta-rs cannot write {uri}: {message}; set apply-engine = 'spark' for this sink"
        )
    if is_storage_error(error):
        return storage_error("write to", uri, error)
    return TryAgain(f"another commit came first on {uri}: {message}")


def _path_part(name: str) -> str:
    text = "".join(f"~{ord(c):02X}" if c in ESCAPED_IN_PATHS or c < " " else c for c in name)
    if text[:1] in {".", "_"}:  # "..", "_tidelake", and names that Hadoop takes for hidden
        return f"~{ord(text[0]):02X}{text[1:]}"
    return text


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
