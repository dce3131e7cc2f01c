"""Target tables: inspect and seal them, by delta-rs, without a Spark job (`creation` makes them).

A table's properties hold what a later owner can no longer read from the stream (rule 5): the
changefeed that it belongs to, incarnation and generation, the DDL that made it, columns and key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.model import SEALED_TS, TableName, Ts
from sinks.control.upkeep import ONCE
from sinks.merge_on_write.log.actions import Metadata
from sinks.storage.errors import is_storage_error, one_line, one_sentence, storage_error
from sinks.target.engine_port import GENERATION
from sinks.target.retention_properties import (
    FILE_RETENTION,
    LOG_RETENTION,
    file_retention_ms,
    interval_ms,
    log_retention_ms,
)
from sinks.target.write_mode import TableForm
from sinks.types.table_schema import TableSchema

CHANGEFEED = "tidelake.changefeed"
INCARNATION = "tidelake.incarnation"
KEY = "tidelake.key"
SCHEMA = "tidelake.schema"
DDL = "tidelake.ddl"
ALTERED = "tidelake.altered"  # the newest DDL that the table's shape holds
DROPPED = "tidelake.dropped"  # the newest DROP TABLE of it; a later CREATE TABLE makes it again
SHAPED_AT = "tidelake.shaped-at"  # of ALTERED: commit-ts, order, and the version that it made
LEFT = "tidelake.left"  # what the last RENAME or EXCHANGE of it took away: commit-ts, version
TRUNCATED = "tidelake.truncated"  # commit-ts of the last DDL that took rows which nobody has kept
LAST_DDL = "tidelake.last-ddl"  # the last one that its writer has run: app ID, commit-ts, order
WRITER = "tidelake.writer"  # the app ID that may write since the last seal
SHOWN = "tidelake.shown"  # TSO up to which the table had changes when it was rewound below that
CLOSED = "tidelake.closed"  # a history's last TRUNCATE: app ID, commit-ts
ASSUMED = "tidelake.assumed"  # of sessions that ran DDLs: pairs of commit-ts and sentence
REKEYED = "tidelake.rekeyed"  # commit-ts of the last DDL that changed its key, or exchanged rows

ESCAPED_IN_PATHS = frozenset('%/\\`~"<>|')  # delta-rs reads %2F as "/", and "\" as "/"
ESCAPED_IN_URIS = ESCAPED_IN_PATHS | set("?#")  # where the path of a URI ends


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlIdentity:
    """Identifies a DDL by its commit-ts and its order among the DDLs of that commit-ts."""

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

    @property
    def arrival(self) -> DdlIdentity:
        """Of a RENAME TABLE, where a table comes to its new name: another may have left that one by
        the same statement, before."""
        return replace(self, order=self.order + 1)

    def same_as(self, other: DdlIdentity | None) -> bool:
        """Whether both are one DDL: only the position counts, since the text may be rewritten."""
        return other is not None and self.position == other.position


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNotes:
    """What a table's properties say of it, whoever has read them."""

    properties: Mapping[str, str]

    @property
    def changefeed_id(self) -> str | None:
        return self.properties.get(CHANGEFEED)

    @property
    def incarnation(self) -> int | None:
        return _number(self.properties.get(INCARNATION))

    @property
    def form(self) -> TableForm:
        return TableForm.of_properties(self.properties)

    @property
    def schema(self) -> TableSchema | None:
        text = self.properties.get(SCHEMA)
        return None if text is None else TableSchema.from_json(text)

    @property
    def ddl(self) -> DdlIdentity | None:
        text = self.properties.get(DDL)
        return None if text is None else DdlIdentity.from_json(text)

    def last_ddl_ts(self, app_id: str) -> Ts:
        """The commit-ts of the last DDL that this writer has run on the table; 0 for none."""
        commit_ts, _ = self._last_ddl(app_id)
        is_half_done = commit_ts > 0 and self.left_version is not None
        return Ts(commit_ts - 1 if is_half_done else commit_ts)

    def _last_ddl(self, app_id: str) -> tuple[int, int]:
        writer, commit_ts, order = json.loads(self.properties.get(LAST_DDL, '["", 0, 0]'))
        return (commit_ts, order) if writer == app_id else (0, 0)

    def is_carried_out(self, app_id: str, reached: Ts, ddl: DdlIdentity) -> bool:
        """Whether this writer has been at the DDL or beyond: by rows above its commit-ts (a
        sealed one is beyond all), or by a DDL. A rewound table knows of DDLs that another has done.
        """
        return reached > ddl.commit_ts or self._last_ddl(app_id) >= ddl.position

    def is_at_least(self, ddl: DdlIdentity) -> bool:
        """Whether the table's shape is what the DDL makes of it, or a later one."""
        return self.shape_ddl is not None and self.shape_ddl.position >= ddl.position

    @property
    def shape_ts(self) -> Ts:
        """The commit-ts of the DDL that gave the table its present columns; 0 if not known."""
        text = self.properties.get(ALTERED) or self.properties.get(DDL)
        return Ts(0 if text is None else DdlIdentity.from_json(text).commit_ts)

    @property
    def shape_ddl(self) -> DdlIdentity | None:
        """The newest of the DDLs that have made and altered it."""
        texts = [self.properties[name] for name in (DDL, ALTERED) if name in self.properties]
        found = map(DdlIdentity.from_json, texts)
        return max(found, key=lambda each: each.position, default=None)

    @property
    def shaped_at(self) -> int | None:
        """The version that ``shape_ddl`` has made; None: an earlier release did not say."""
        ddl = self.shape_ddl
        *position, version = json.loads(self.properties.get(SHAPED_AT, "[0]"))
        if ddl is not None and tuple(position) == ddl.position:
            return int(version)
        return 0 if ddl == self.ddl else None

    @property
    def is_dropped(self) -> bool:
        """Whether a DROP TABLE was run on it and no CREATE TABLE since: it has no rows, and its
        name is free."""
        return self.dropped_ts is not None

    @property
    def dropped_ts(self) -> Ts | None:
        """Of the DROP TABLE, where it is dropped."""
        if DROPPED not in self.properties:
            return None
        made, dropped = (DdlIdentity.from_json(self.properties[name]) for name in (DDL, DROPPED))
        return dropped.commit_ts if dropped.position > made.position else None

    @property
    def truncated_ts(self) -> Ts:
        """Of the last DDL by which what TiDB can recover may be other rows than what a DROP TABLE
        has kept: a TRUNCATE, or one that an operator has skipped; 0: none has run."""
        return Ts(_number(self.properties.get(TRUNCATED)) or 0)

    @property
    def left_version(self) -> int | None:
        """The last one with rows, where a RENAME TABLE has taken them away, perhaps not yet to
        their new name. None: it has not, or another table has its name by now."""
        return self.left_at(self.dropped_ts)

    def left_at(self, commit_ts: Ts | None) -> int | None:
        """The version whose rows the RENAME or EXCHANGE of this commit-ts has taken away; None: it
        has not."""
        left_ts, version = json.loads(self.properties.get(LEFT, "[0, 0]"))
        return int(version) if left_ts == commit_ts else None

    @property
    def begun_ts(self) -> Ts:
        """Of the CREATE TABLE that made it, or the DDL that brought it to its name: what comes of
        that name at or below is another's. 0: rows have told what it is."""
        return Ts(0) if self.ddl is None else self.ddl.commit_ts

    @property
    def shown_ts(self) -> Ts:
        """The ts up to which a rewound table may show changes, although its identity is lower."""
        return Ts(_number(self.properties.get(SHOWN)) or 0)

    @property
    def assumed(self) -> dict[Ts, str]:
        """What was taken for the time of the sessions that ran DDLs on it, by commit-ts."""
        return {Ts(ts): told for ts, told in json.loads(self.properties.get(ASSUMED, "[]"))}

    @property
    def rekeyed_ts(self) -> Ts:
        """Of the last DDL that has given it another key, or another table's rows; 0: none has."""
        return Ts(_number(self.properties.get(REKEYED)) or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState(TableNotes):
    """A table as one handle shows it: version, identities and properties belong together."""

    handle: DeltaTable
    version: int

    def identity(self, app_id: str) -> Ts | None:
        """The limit of this app ID's last commit; SEALED_TS when it is sealed and cannot write any
        more; None when it never wrote."""
        version = self.handle.transaction_version(app_id)
        return None if version is None else Ts(version)


def refuse_another_key(name: TableName, state: TargetState, back_to: int) -> None:
    """Of a rewind: what the old key told apart may be one row by the new one, and what EXCHANGE
    PARTITION moved would be moved once more."""
    if back_to < state.rekeyed_ts - 1:
        raise TidelakeError(
            f"table {name} cannot go back to {back_to}: a DDL at commit-ts {state.rekeyed_ts} gave "
            "it another key or other rows, on which earlier changes cannot be applied. Rewind with "
            f"--overwrite-checkpoint-ts {state.rekeyed_ts - 1} at least, or leave the table out "
            "with [filter] rules"
        )


def table_uri(warehouse: str, name: TableName) -> str:
    """``<warehouse>/<schema>/<table>``; characters that a path cannot hold are written ``~XX``."""
    escaped = ESCAPED_IN_URIS if "://" in warehouse else ESCAPED_IN_PATHS
    return f"{warehouse}/{_path_part(name.schema, escaped)}/{_path_part(name.table, escaped)}"


def ownership(*, changefeed_id: str, incarnation: int, ddl: DdlIdentity) -> dict[str, str]:
    """The properties that say to which changefeed a table belongs and which DDL made it, for
    ``creation.create``.
    """
    return {
        CHANGEFEED: changefeed_id,
        INCARNATION: str(incarnation),
        "tidelake.generation": str(GENERATION),
        DDL: ddl.to_json(),
    }


def retention(hours: int) -> dict[str, str]:
    """The properties by which a version stays readable for so long after the next one."""
    return dict.fromkeys((FILE_RETENTION, LOG_RETENTION), f"interval {hours} hours")


def inspect(
    uri: str, storage_options: Mapping[str, str], version: int | None = None
) -> TargetState | None:
    """The table at this version, or its newest one, or None where there is none. Blocks for a few
    milliseconds, without a Spark job. Raises StorageAway or StorageRefuses."""
    try:
        with one_sentence("read the Delta log of", uri):
            options = dict(storage_options) or None
            handle = DeltaTable(uri, version=version, storage_options=options)
    except TableNotFoundError:
        return None
    return state_of(handle)


def state_of(handle: DeltaTable) -> TargetState:
    """The state of a handle's version, without reading the log again."""
    properties = handle.metadata().configuration
    return TargetState(handle=handle, version=handle.version(), properties=properties)


def _with_properties(
    uri: str, state: TargetState, properties: dict[str, str], doing: str, commit: CommitProperties
) -> TargetState:
    """The table once these are set, in one commit on top of ``state``. Raises TryAgain when another
    commit came between."""
    try:
        with one_sentence(doing, uri):
            state.handle.alter.set_table_properties(
                properties, raise_if_not_exists=False, commit_properties=commit
            )
    except CommitFailedError as error:
        raise refused(uri, error) from error
    return state_of(state.handle)


def refuse_other_form(state: TargetState, name: TableName, form: TableForm) -> None:
    """Raises ConfigError: a table stays what it was made as."""
    if state.form != form:
        raise ConfigError(
            f"table {name} was made with {state.form}, and [[sink.tables]] says {form}: set it as "
            "it was, or move the table away and load it anew"
        )


def lengthen(uri: str, state: TargetState, hours: int) -> TargetState:
    """Raise the table's retention where it is shorter, in one commit; the table as it is then.
    Raises TryAgain when another commit came between."""
    has = Metadata(fields={"configuration": state.properties})
    kept_ms = {FILE_RETENTION: file_retention_ms(has), LOG_RETENTION: log_retention_ms(has)}
    wanted = retention(hours).items()
    shorter = {name: text for name, text in wanted if kept_ms[name] < interval_ms(text)}
    if not shorter:
        return state
    return _with_properties(uri, state, shorter, "set the retention of", ONCE)


def seal(
    uri: str,
    old_app_ids: Sequence[str],
    new_app_id: str,
    begin: Callable[[Ts], Ts],
    storage_options: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
) -> TargetState:
    """End the right of the old app IDs to write and begin that of the new one, in one commit.

    ``begin`` maps the ts that the old app IDs have reached (0: none has written) to the start-ts of
    the new one. The ts is read from the very version that the commit follows; raises TryAgain when
    another commit came between. The commit changes the table's metadata, so that a Spark write
    under way conflicts with it, and sets ``properties`` (a new incarnation). Returns
    the sealed table. A table that is sealed so already is returned as it is.
    """
    found = inspect(uri, storage_options)
    if found is None:
        raise TidelakeError(f"cannot seal {uri}: there is no Delta table any more; restore it")
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
    wanted = {**(properties or {}), WRITER: new_app_id, **shown}
    return _with_properties(uri, found, wanted, "seal", commit)


def refused(uri: str, error: CommitFailedError) -> TidelakeError:
    """The error for a commit that delta-rs did not make: TryAgain for a lost compare-and-set,
    another one for a table that it cannot write, or a storage that fails."""
    message = one_line(error)
    if "nsupported" in message:
        return TidelakeError(
            f"delta-rs cannot write {uri}: {message}; set apply-engine = 'spark' for this sink"
        )
    if is_storage_error(error):
        return storage_error("write to", uri, error)
    return TryAgain(f"another commit came first on {uri}: {message}")


def _path_part(name: str, escaped: Container[str]) -> str:
    text = "".join(f"~{ord(c):02X}" if c in escaped or c < " " else c for c in name)
    if text[:1] in {".", "_"}:  # "..", "_tidelake", and names that Hadoop takes for hidden
        return f"~{ord(text[0]):02X}{text[1:]}"
    return text


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
