"""RECOVER TABLE, FLASHBACK TABLE: rows that a DROP TABLE has kept come back, under the same or
another name.

TiDB recovers the rows that the newest DROP TABLE or TRUNCATE TABLE of a name took away, and sends
none of them. A DROP TABLE with ``on-drop = "keep"`` leaves a table of its own (``kept``), which
changes no more. Its version comes to the name in one commit, as in a RENAME TABLE
(``shallow_clone``). It stays under the kept name too: both name the same files, which nobody
deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.ddl.effects import DropTable
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.shallow_clone import ShallowClone, clone_into
from sinks.merge_on_write.log.deletion_vector import file_of
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.errors import one_sentence
from sinks.target.engine_port import Applied, Skipped, Target
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import TargetState

WITHOUT_ROWS = (
    "`tidelake ddl apply` with its CREATE TABLE makes it without the rows that it had, else load "
    "the tables anew"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecovery:
    """``kept``: where `kept_place` says; ``target``: the table under the name that it comes to,
    with the kept table's schema. ``properties``: ``tables.ownership`` of it."""

    kept: str
    target: Target
    ddl: DdlIdentity
    properties: Mapping[str, str]
    before_commit: Callable[[], None] = lambda: None


def kept_place(name: TableName, uri: str, dropped: TargetState | None) -> str:
    """The URI of the table that the newest DROP TABLE of this name has kept. ``dropped``: the table
    at the name now. Raises TidelakeError if TiDB recovers other rows."""
    ddl = None if dropped is None else dropped.dropped
    if dropped is None or ddl is None:
        raise TidelakeError(
            f"no DROP TABLE of {name} was carried out here, so none of its rows were kept: "
            f"{WITHOUT_ROWS}"
        )
    effects = read_ddl(ddl.query, "", name.schema, name.table).effects
    if not all(isinstance(each, DropTable) for each in effects):
        raise TidelakeError(
            f"the last DDL that took {name} away was no DROP TABLE but {ddl.query}: {WITHOUT_ROWS}"
        )
    if dropped.truncated_ts > ddl.commit_ts:
        raise TidelakeError(
            f"a DDL at commit-ts {dropped.truncated_ts} truncated {name}, or was skipped, and its "
            f"rows were not kept: {WITHOUT_ROWS}"
        )
    return kept_uri(uri, ddl)


def not_kept(name: TableName, kept: str) -> TidelakeError:
    """The error where nothing is at ``kept_place``."""
    return TidelakeError(
        f"the rows of {name} were not kept (on-drop = 'drop'), or were removed: there is no table "
        f"{kept}; {WITHOUT_ROWS}"
    )


def recover(engine: MergeOnWriteEngine, order: TableRecovery) -> Applied | Skipped:
    """Carry it out, or find that it was. Raises TidelakeError where the kept rows are gone, or
    another table has the name; TableHeld, TryAgain."""

    def coming() -> LogState:
        with one_sentence("read", order.kept):
            found = read_log(engine.table(order.kept).storage)
            if found is None:
                raise not_kept(order.target.name, order.kept)
            _refuse_lost_files(engine, order, found)
        return found

    return clone_into(
        engine.table(order.target.uri),
        ShallowClone(
            target=order.target,
            ddl=order.ddl,
            properties=order.properties,
            operation="RECOVER TABLE",
            source=order.kept,
            coming=coming,
            before_commit=order.before_commit,
        ),
    )


def _refuse_lost_files(engine: MergeOnWriteEngine, order: TableRecovery, kept: LogState) -> None:
    located = engine.table(order.kept).located
    for file in kept.files.values():
        vector = file.deletion_vector
        for path in (file.path, None if vector is None else file_of(vector)):
            if path is not None and not located.is_there(path):
                raise TidelakeError(
                    f"the rows of {order.target.name} are gone: {unquote(path)}, which was kept, "
                    f"was deleted; {WITHOUT_ROWS}"
                )


def is_recovered(at: TargetState | None, ddl: DdlIdentity) -> bool:
    """Whether this very DDL, or a later one, has made the table at its name."""
    return at is not None and at.is_at_least(ddl.arrival)
