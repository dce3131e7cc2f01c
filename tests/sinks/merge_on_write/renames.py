"""Two tables of different shape in one folder, and RENAME TABLE of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.lifecycle.rename import TableRename, rename
from sinks.target.engine_port import Applied, Skipped, Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.types.table_schema import TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import C, rows
from tests.sinks.merge_on_write.orders import Changes, target, write

USERS = TableSchema(columns=(column("name", "varchar(9)"), column("n", "int")), key=("name",))
ORDERS = target("").schema


def named(uri: str, schema: TableSchema = ORDERS, incarnation: int = 1) -> Target:
    """The table that is at this place."""
    name = TableName("shop", Path(uri).name)
    app = app_id("shop", incarnation, name)
    return Target(name=name, uri=uri, schema=schema, app_id=app)


def origin(commit_ts: int, incarnation: int = 1) -> dict[str, str]:
    made_by = DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="…")
    return ownership(changefeed_id="shop", incarnation=incarnation, ddl=made_by)


def two_tables(folder: Path | str, options: Mapping[str, str] | None = None) -> str:
    """``a`` of orders, with rows that were deleted and updated, and ``b`` of users."""
    for each in (named(f"{folder}/a"), named(f"{folder}/b", USERS)):
        create(each, properties=origin(5), storage_options=options)
    engine = MergeOnWriteEngine(options or {}, keeps_up=False)
    for number in range(4):
        more: dict[int, str | None] = {10 * number + at: "a" for at in range(5)}
        put(engine, f"{folder}/a", number + 1, {**more, 10 * number - 9: None})
        put_users(engine, f"{folder}/b", number + 1, {f"b{at}": number for at in range(number, 6)})
    engine.close()
    return str(folder)


def put(
    engine: MergeOnWriteEngine, uri: str, limit: int, changes: Changes, incarnation: int = 1
) -> Applied | Skipped:
    aim = named(uri, incarnation=incarnation)
    return engine.apply(replace(write(uri, limit, changes), target=aim))


def put_users(
    engine: MergeOnWriteEngine, uri: str, limit: int, users: Mapping[str, int]
) -> Applied | Skipped:
    cells = [{"name": name, "n": n} for name, n in users.items()]
    return engine.apply(replace(rows(uri, limit, USERS, *cells), target=named(uri, USERS)))


def order(
    folder: str, names: Mapping[str, str], commit_ts: int = C, incarnation: int = 1, **options: Any
) -> TableRename:
    """``names``: old to new, all at once."""

    def at(name: str, of: str) -> Target:
        return named(f"{folder}/{name}", USERS if of == "b" else ORDERS, incarnation)

    return TableRename(
        moves=[(at(old, old), at(new, old)) for old, new in names.items()],
        ddl=DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="RENAME TABLE …"),
        properties=origin(commit_ts, incarnation),
        **options,
    )


def renamed(folder: str, names: Mapping[str, str], **options: Any) -> None:
    """By an engine of its own."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    try:
        rename(engine, order(folder, names, **options))
    finally:
        engine.close()


def contents(folder: str) -> dict[str, dict[Any, Any]]:
    """The rows of each table by key; those that are empty are left out."""
    found = {}
    for path in sorted(Path(folder).iterdir()):
        if not DeltaTable.is_deltatable(str(path)):
            continue
        by_key = [tuple(row.values()) for row in read_rows(path)]
        assert len(dict(by_key)) == len(by_key), "a key stands twice"
        found[path.name] = dict(by_key)
    return {name: rows for name, rows in found.items() if rows}


def versions(folder: str) -> dict[str, int]:
    return {path.name: DeltaTable(path).version() for path in Path(folder).iterdir()}
