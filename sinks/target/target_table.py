"""An existing target table: inspect it, seal it, refuse it if it belongs to somebody else. By
delta-rs, without a Spark job (``lifecycle/create.py`` makes tables)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.model import SEALED_TS, TableName, Ts
from sinks.storage.errors import is_storage_error, one_line, one_sentence, storage_error
from sinks.target.retention_properties import (
    FILE_RETENTION,
    LOG_RETENTION,
    file_retention_ms,
    interval_ms,
    log_retention_ms,
)
from sinks.target.table_properties import SHOWN, WRITER, TableProperties, retention
from sinks.target.way_out import load_anew
from sinks.target.write_mode import WriteMode

ROWS_REACHED = "tidelake/rows"  # its version: up to where a table of counted rows holds changes
ONCE = CommitProperties(max_commit_retries=0)
ESCAPED_IN_PATHS = frozenset('%/\\`~"<>|')  # delta-rs reads %2F as "/", and "\" as "/"
ESCAPED_IN_URIS = ESCAPED_IN_PATHS | set("?#")  # where the path of a URI ends


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState(TableProperties):
    """A table as one handle shows it: version, identities and properties belong together."""

    handle: DeltaTable
    version: int

    def identity(self, app_id: str) -> Ts | None:
        """The limit of this app ID's last commit; SEALED_TS when it is sealed and cannot write any
        more; None when it never wrote."""
        version = self.handle.transaction_version(app_id)
        return None if version is None else Ts(version)


def refuse_another_key(name: TableName, state: TargetState, back_to: int) -> None:
    """Refuses a rewind to below a DDL of the key: rows that the old key told apart may be one row
    by the new one, and rows that EXCHANGE PARTITION moved would be moved once more. And one of
    counted rows: its changes are relative."""
    held = state.identity(ROWS_REACHED) or 0
    if back_to < held:
        raise TidelakeError(
            f"table {name} cannot go back to {back_to}: it has each row as often as the database "
            f"(key = 'rows') as of {held}, and none of its changes can be taken back. Rewind with "
            f"--overwrite-checkpoint-ts {held} at least, or leave the table out with [filter] rules"
        )
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


def inspect(
    uri: str, storage_options: Mapping[str, str], version: int | None = None
) -> TargetState | None:
    """The table at this version, or its newest one; None if there is no table. Blocks for a few
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


def refuse_unless_ours(
    there: TableProperties, name: TableName, uri: str, *, changefeed_id: str, incarnation: int
) -> None:
    """Raises TidelakeError for a table that this changefeed has not made, or that a newer
    incarnation of it writes."""
    owner, where = there.changefeed_id, f"table {name} at {uri}"
    if owner is None:
        raise TidelakeError(
            f"{where} was not made by Tidelake: move it away (then `tidelake table reload {name}` "
            "makes it anew, where its source is a database), or give another sink-uri"
        )
    if owner != changefeed_id:
        raise TidelakeError(
            f"{where} belongs to changefeed {owner!r}, and not to {changefeed_id!r}: move it away, "
            "or give another sink-uri"
        )
    if (there.incarnation or 0) > incarnation:
        raise TidelakeError(
            f"{where} belongs to incarnation {there.incarnation} of changefeed {owner!r}, and this "
            f"is incarnation {incarnation}: another process has rewound it, and goes on. End this "
            "one"
        )


def refuse_other_form(state: TargetState, name: TableName, form: WriteMode) -> None:
    """Raises ConfigError if the settings want another form, or choose or mask columns otherwise: a
    table keeps the form that it was made in, and its earlier rows would lack values, or have them
    in clear."""
    if state.form != form:
        raise ConfigError(
            f"table {name} was made with {state.form}, and [[sink.tables]] says {form}: set it as "
            f"it was, or {load_anew(name)}"
        )
    if state.schema is not None and (why := form.choice.difference(state.schema)):
        raise ConfigError(
            f"table {name} was made by other rules: {why}. Set them as they were, or "
            f"{load_anew(name)}"
        )


def lengthen(uri: str, state: TargetState, hours: int) -> TargetState:
    """Raise the table's retention if it is shorter, in one commit. Returns the table as it is then.
    Raises TryAgain when another commit came between."""
    has = state.properties
    kept_ms = {FILE_RETENTION: file_retention_ms(has), LOG_RETENTION: log_retention_ms(has)}
    wanted = retention(hours).items()
    shorter = {name: text for name, text in wanted if kept_ms[name] < interval_ms(text)}
    if not shorter:
        return state
    return _with_properties(uri, state, shorter, "set the retention of", ONCE)


def lengthened(uri: str, state: TargetState, hours: int) -> TargetState:
    """The table, kept for so long if that can be had. Raises TryAgain as ``lengthen``."""
    try:
        return lengthen(uri, state, hours)
    except TryAgain:
        raise
    except TidelakeError as error:  # the table can be replicated all the same
        logger.warning("snapshots of the table are kept for a shorter time: %s", error)
        return state


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
    under way conflicts with it, and sets ``properties`` (a new incarnation). Returns the sealed
    table. A table that is sealed already is returned as it is.
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
